// SPDX-License-Identifier: BSD-3-Clause
// The shared-memory interface: receives from any number of senders, each through a ring of its own.
//
// Threads: the owner thread of the worker only. Nothing runs in the background.
//
// One call of progress():
//   1. the first hot ring that has messages is polled; where it is the only one, and nothing else
//      is to do, that was all
//   2. the bell: rings that slept and have messages are polled, too, once or from now on
//   3. the other hot rings are polled; each ring for at most kPollBudget messages a call
//   4. links with work (queued answers, copies in steps, pending sends) get a turn
//   5. when nothing moved: now and then, a look at the sockets (new peers, descriptors, deaths)
// A ring without messages for a while turns cold: its sender rings the bell for each one. The last
// rings stay hot, so a lone idle peer is answered without a bell (hot_rings.hpp).
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "ucs/memory/reserve.hpp"
#include "ucs/stats/counters.hpp"
#include "uct/base_iface.hpp"
#include "uct/pending.hpp"
#include "uct/progress_guard.hpp"
#include "uct/sm/both_copy.hpp"
#include "uct/sm/buffer_pool.hpp"
#include "uct/sm/hot_rings.hpp"
#include "uct/sm/lending.hpp"
#include "uct/sm/link.hpp"
#include "uct/sm/link_ends.hpp"
#include "uct/sm/op_table.hpp"
#include "uct/sm/options.hpp"
#include "uct/sm/peer_looks.hpp"
#include "uct/sm/remote_access.hpp"
#include "uct/sm/rendezvous.hpp"
#include "uct/sm/room_wait.hpp"
#include "uct/sm/rx_descs.hpp"
#include "uct/sm/sm_connections.hpp"
#include "uct/sm/sm_md.hpp"
#include "uct/sm/tag_receives.hpp"

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
    kRingChanges,
    kLentReads,
    kLentEnded,
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
                                std::size_t iovcnt, uct_tag_context_t* ctx) {
        return tags.post(tag, mask, iov, iovcnt, ctx);
    }
    ucs_status_t tag_recv_cancel(uct_tag_context_t* ctx, int force) {
        const ucs_status_t status = tags.cancel(*ctx, force != 0);
        rest_.has_work |= tags.has_cancelled();
        return status;
    }
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
    uct::PeerWatch* peer_watch() override { return &looks_; }

    // ---- for endpoints and parts ----
    /// The link gets a turn in progress.
    void add_work(Link& link);
    void forget_work(Link& link) { std::erase(working_, &link); }
    /// Progress does more than poll rings.
    void want_work() { rest_.has_work = true; }
    /// More rings than one are hot.
    void set_several_hot(bool are_several) { rest_.are_several_hot = are_several; }
    /// Delivers at most kPollBudget messages; how many.
    unsigned poll_ring(Link& link);
    /// The data of a buffer for a callback, and whether it may keep it. False: no descriptor now.
    bool hand_over(Link& link, std::uint32_t seg, std::size_t bytes, void** data_p,
                   unsigned* flags_p);
    /// Inside: callbacks may run, and links are walked.
    [[nodiscard]] uct::ProgressGuard& guard() { return guard_; }
    /// The interface is in progress, or its progress does more than poll rings.
    [[nodiscard]] bool is_busy() const { return guard_.is_inside() || rest_.has_work; }
    void count(SmCounter counter, std::uint64_t amount = 1) { counters_.add(counter, amount); }
    [[nodiscard]] SmMd& sm_md() const { return md_; }
    [[nodiscard]] std::size_t seg_bytes() const { return seg_bytes_; }
    using BaseIface::invoke_unexpected_eager;
    using BaseIface::invoke_unexpected_rndv;
    using BaseIface::report_failure;

  private:
    static constexpr unsigned kPollBudget = 32;
    static constexpr unsigned kIdlePerLook = 8;        // idle calls per look at the clock
    static constexpr unsigned kIdlePerRingsLook = 64;  // idle calls per HotRings::look()
    static_assert(kIdlePerRingsLook % kIdlePerLook == 0);
    static constexpr int kBusyPerLook = 4096;  // busy calls per look at the clock

    /// Work of a call behind the first ring that has messages.
    struct Rest {
        // Links that work, failed or unused ones, cancelled receives, pending requests.
        bool has_work = false;
        bool are_several_hot = false;

        /// Both in one load.
        [[nodiscard]] bool is_any() const {
            std::uint16_t word;
            static_assert(sizeof word == sizeof(Rest));
            std::memcpy(&word, this, sizeof word);
            return word != 0;
        }
    };

    SmIface(SmMd& md, uct::Worker& worker, const SmOptions& options, const SmForce& force);
    ucs_status_t init(const uct_iface_params_t& params);

    // sm_progress.cc
    unsigned progress_from(Link& link, Control control);
    unsigned progress_rest(const Link* polled, unsigned count);
    void look_although_busy();
    static unsigned progress_from_others(Link& link, Control control, unsigned count);
    unsigned end_of_ring(Link& link, unsigned count);
    static void deliver_short(Link& link, Control control);
    unsigned receive(Link& link, Control control, unsigned count);
    bool deliver(Link& link, Control control);
    bool deliver_am_seg(Link& link, Control control);
    bool deliver_control(Link& link, Control control);
    unsigned idle();
    bool step_link(Link& link);
    unsigned work();

    SmMd& md_;
    SmOptions options_;
    SmForce force_;
    std::size_t seg_bytes_ = 0;

    Rest rest_;
    uct::ProgressGuard guard_;
    unsigned idle_calls_ = 0;
    int busy_left_ = kBusyPerLook;  // busy calls until look_although_busy()
    int busy_seen_ = kBusyPerLook;  // busy_left_ at the last HotRings::look()
    RoomWait room_wait_;
    PeerLooks looks_{*this};
    ucs::CounterArray<SmCounter> counters_;
    ucs::ReserveVector<Link*> working_;

  public:
    // ---- Parts
    RxDescs descs;
    BufferPool buffers;  // outlives the links that borrow from it
    HotRings rings{*this};
    TagReceives tags{*this};
    uct::PendingQueue pending;
    OpTable ops{*this};
    BothCopy both{*this, options_.both_copy_min};
    Rendezvous rndv{*this};
    RemoteAccess remote{*this};
    SmLending loans{*this};
    LinkEnds ends{*this};
    SmConnections connections{*this, options_, force_};
};

[[gnu::always_inline]] inline bool SmIface::hand_over(Link& link, std::uint32_t seg,
                                                      std::size_t bytes, void** data_p,
                                                      unsigned* flags_p) {
    *data_p = descs.hand_over(*link.rx_segment, seg, bytes);
    *flags_p = UCT_CB_PARAM_FLAG_DESC;
    if (*data_p != link.rx_segment->buffer(seg) && *data_p != nullptr) [[unlikely]]
        counters_.add(SmCounter::kCopiedDescs);
    return *data_p != nullptr;
}

}  // namespace tagwire::sm
