// SPDX-License-Identifier: BSD-3-Clause
// The shared-memory interface: receives from any number of senders, each through a ring of its own.
//
// Threads: the owner thread of the worker only. Nothing runs in the background.
//
// One call of progress():
//   1. the bell: rings that slept and have messages become hot
//   2. the hot rings are polled, each for at most kPollBudget messages
//   3. links with work (queued answers, copies in steps, pending sends) get a turn
//   4. when nothing moved: now and then, a look at the sockets (new peers, descriptors, deaths)
// A ring without messages for a while turns cold: its sender rings the bell for the next one. The
// last few rings stay hot, so a lone idle peer is answered without a bell.
#pragma once

#include <unistd.h>

#include <memory>
#include <unordered_map>
#include <vector>

#include "ucs/memory/mpool.hpp"
#include "ucs/memory/reserve.hpp"
#include "ucs/stats/counters.hpp"
#include "uct/base_iface.hpp"
#include "uct/pending.hpp"
#include "uct/sm/both_copy.hpp"
#include "uct/sm/link.hpp"
#include "uct/sm/op_table.hpp"
#include "uct/sm/options.hpp"
#include "uct/sm/remote_access.hpp"
#include "uct/sm/rendezvous.hpp"
#include "uct/sm/rx_descs.hpp"
#include "uct/sm/sm_md.hpp"
#include "uct/soft_tags.hpp"

namespace tagwire::sm {

enum class SmCounter {
    kDelivered,
    kUnexpected,
    kMatched,
    kNoResource,
    kBells,
    kWakeups,
    kCooled,
    kConnections,
    kRefused,
    kViolations,
    kPeerFailures,
    kDirectBytes,
    kProcessVmBytes,
    kMessageBytes,
    kHelpedBytes,
    kCopiedDescs,
    kCount
};
extern const ucs::CounterTable<SmCounter> kSmCounterInfos;

class alignas(kNoFalseSharing) SmIface : public uct::BaseIface {
  public:
    static ucs_status_t open(SmMd& md, uct::Worker& worker, const uct_iface_params_t& params,
                             const SmOptions& options, uct_iface_h* iface_p);
    ~SmIface() override;

    // ---- UCT operations (make_ops) ----
    ucs_status_t tag_recv_zcopy(uct_tag_t tag, uct_tag_t mask, const uct_iov_t* iov,
                                std::size_t iovcnt, uct_tag_context_t* ctx);
    ucs_status_t tag_recv_cancel(uct_tag_context_t* ctx, int force);
    ucs_status_t flush(unsigned flags, uct_completion_t* comp);
    ucs_status_t fence(unsigned flags);
    unsigned progress();
    ucs_status_t event_fd_get(int* fd_p);
    ucs_status_t event_arm(unsigned events);
    void close();
    ucs_status_t query(uct_iface_attr_t* attr);
    ucs_status_t get_device_address(uct_device_addr_t* addr);
    ucs_status_t get_address(uct_iface_addr_t* addr);

    // ---- for tagwire's own queries ----
    bool reachable(const uct_device_addr_t* dev_addr, const uct_iface_addr_t* iface_addr,
                   std::string* reason) override;
    ucs::CounterSet counters() const override { return counters_.set(kSmCounterInfos); }
    void describe(const uct::DescribeSink& sink) const override;
    void describe_ep(uct_ep_h ep, const uct::DescribeSink& sink) const override;

    // ---- for endpoints ----
    ucs_status_t link_to(const IfaceAddress& address, Link** link_p);
    void detach(Link& link, SmEp& ep);
    Link& cancelled_link() { return cancelled_link_; }
    void fail(Link& link, ucs_status_t status);
    void violation(Link& link, const char* what);
    ucs_status_t make_tx(Link& link);
    void add_work(Link& link);
    void look_soon() { next_look_ = 0; }
    void keep_all_hot();
    void want_work() { has_work_ = true; }
    void count(SmCounter counter, std::uint64_t amount = 1) { counters_.add(counter, amount); }

    // ---- for the parts
    /// False, and the connection ends: nobody would be told of a tagged message.
    bool takes_tags(Link& link) {
        if (tags_.depth() > 0) [[likely]]
            return true;
        violation(link, "tagged message to an interface that was opened without tag callbacks");
        return false;
    }
    /// The data of a buffer for a callback, and whether it may keep it. False: no descriptor now.
    bool hand_over(Link& link, std::uint32_t seg, std::size_t bytes, void** data_p,
                   unsigned* flags_p);
    void after_callback(Link& link, std::uint32_t seg, void* data, ucs_status_t status) {
        descs_.settle(*link.rx_segment, seg, data, status);
    }
    void complete_entry(PostedEntry& entry, uct_tag_t tag, std::uint64_t imm, std::size_t bytes,
                        ucs_status_t status) {
        counters_.add(SmCounter::kMatched);
        tags_.complete(entry, tag, imm, bytes, status);
    }
    [[nodiscard]] uct::SoftTags<PostedEntry>& tags() { return tags_; }
    using BaseIface::invoke_unexpected_rndv;

    OpTable ops{*this};
    BothCopy both{*this};
    Rendezvous rndv{*this};
    RemoteAccess remote{*this};
    uct::PendingQueue pending;
    [[nodiscard]] SmMd& sm_md() const { return md_; }
    [[nodiscard]] const SmOptions& options() const { return options_; }
    [[nodiscard]] std::size_t seg_bytes() const { return seg_bytes_; }

  private:
    static constexpr unsigned kPollBudget = 32;
    static constexpr std::size_t kHotKept = 4;         // rings that never cool
    static constexpr unsigned kIdlePerLook = 8;        // idle calls per look at the clock
    static constexpr unsigned kIdlePerCooling = 1024;  // idle calls per cooling round
    static constexpr unsigned kBusyPerLook = 4096;     // busy calls per look at the clock

    SmIface(SmMd& md, uct::Worker& worker, const SmOptions& options);
    ucs_status_t init(const uct_iface_params_t& params);
    ucs_status_t listen();

    // sm_progress.cc
    unsigned poll_ring(Link& link);
    void answer_bell();
    void look_although_busy();
    bool deliver(Link& link, Control control);
    bool deliver_am_seg(Link& link, Control control);
    void deliver_tag(uct_tag_t tag, std::uint64_t imm, const std::byte* data, std::size_t bytes);
    void refuse_tagged(const std::byte* data);
    bool deliver_tag_seg(Link& link, Control control);
    bool deliver_control(Link& link, Control control);
    bool deliver_fragment(Link& link, const TagSegBody& body, std::uint32_t bytes, bool more);
    unsigned idle();
    void cool();
    void sleep_barrier();
    void make_hot(Link& link);
    void make_cold(Link& link);
    bool step_link(Link& link);
    unsigned work();
    ucs_status_t abandon_consumed(PostedEntry& entry);

    // sm_connect.cc
    bool look();
    void accept_peers();
    bool read_socket(Link& link);
    ucs_status_t take_hello(Link& link, const Hello& hello, ucs::ReceivedMessage& message);
    ucs_status_t take_ring(Link& link, const RingOffer& offer, ucs::ReceivedMessage& message);
    ucs_status_t send_hello(Link& link, std::uint64_t cookie);
    ucs_status_t connect(Link& link);
    ucs_status_t reach(Link& link);
    void retry(Link& link);
    void set_retry(Link& link, bool wanted);
    void await_contact();
    void send_leave(Link& link);
    void watch_link(Link& link, bool for_room);
    void close_socket(Link& link);
    PeerProcess* known_process(pid_t pid);
    /// False in a child that inherited the interface: what the kernel keeps for both is the
    /// parent's.
    [[nodiscard]] bool is_ours() const { return ::getpid() == pid_; }
    void choose_copy_path(Link& link, const Hello& hello);
    void watch_process(Link& link);
    Link& new_link();
    void remove(Link& link);
    unsigned bury_failed();
    void set_unused(Link& link);
    void reap();
    void unwatch(PeerProcess& process);
    void process_died(std::uint32_t id);
    void open_pidfd(Link& link, PeerProcess& process);
    void watch_listener();
    void watch_timer();
    void drain_timer();
    void peer_leaves(Link& link);
    void bind_near(ucs::Mapping& segment, std::uint8_t numa_node);
    void report_link_failure(Link& link);
    void end_operations(Link& link);
    void let_go(Link& link);
    static void close_ring(Link& link);
    void watch(int fd, std::uint64_t tag);
    void unwatch_fd(int fd);

    [[gnu::cold]] ucs_status_t refuse_receive(ucs_status_t status) const;
    ucs_status_t post_scattered(uct_tag_t tag, uct_tag_t mask, const uct_iov_t* iov,
                                std::size_t iovcnt, uct_tag_context_t* ctx);
    SmMd& md_;
    SmOptions options_;
    std::size_t seg_bytes_ = 0;

    // The data path's.
    Bell<>* bell_ = nullptr;
    ucs::ReserveVector<Link*> hot_;
    bool has_work_ = false;  // something in working_, failed_ or pending
    bool is_armed_ = false;
    unsigned idle_calls_ = 0;
    unsigned busy_calls_ = 0;
    std::uint64_t next_look_ = 0;    // ticks
    std::uint64_t look_ticks_ = 0;   // between looks
    ucs::ObjectPool<IovCopy> iovs_;  // of scattered receives
    uct::SoftTags<PostedEntry> tags_;
    ucs::CounterArray<SmCounter> counters_;

    ucs::ReserveVector<Link*> working_;
    unsigned in_progress_ = 0;  // nesting of progress(), for removals

    RxDescs descs_;

    // Connections.
    Link cancelled_link_{*this, 0};  // of endpoints after flush(CANCEL): it refuses everything
    ucs::ReserveVector<std::unique_ptr<Link>> links_;
    ucs::ReserveVector<std::uint32_t> free_links_;
    ucs::ReserveVector<Link*> failed_;  // failure set, not reported yet
    ucs::ReserveVector<Link*> unused_;  // to remove when nobody looks at them
    bool reap_wanted_ = false;          // there are some
    std::uint64_t accept_after_ = 0;    // ticks; no descriptors were left
    ucs::ReserveHashMap<std::uint64_t, Link*> by_name_;
    ucs::ReserveHashMap<std::uint32_t, std::unique_ptr<PeerProcess>> processes_;  // by id
    std::uint32_t process_serial_ = 0;
    ucs::ReserveVector<Link*> retrying_;  // what they wait for comes without an event
    std::uint64_t contact_until_ = 0;     // ticks; somebody is getting to know us: look more often
    ucs::UniqueFd listener_;
    ucs::UniqueFd epoll_;
    ucs::UniqueFd bell_fd_;
    ucs::UniqueFd timer_;
    ucs::Mapping bell_page_;
    ucs::UnixAddress address_;
    std::uint64_t name_ = 0;
    std::uint64_t cookie_ = 0;
    std::uint64_t probe_value_ = 0;
    pid_t pid_ = 0;
    bool has_membarrier_ = false;
    bool sleeps_by_timer_ = false;
    std::uint8_t numa_node_ = 0xff;
};

}  // namespace tagwire::sm
