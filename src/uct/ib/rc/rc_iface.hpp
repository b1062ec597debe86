// SPDX-License-Identifier: BSD-3-Clause
// The interface of reliable connections: completions of all endpoints, receive buffers, posted
// receives.
//
// Threads: owner thread of the worker. Nothing runs in the background.
//
// One call of progress():
//   1. receive completions: messages are delivered, tags matched, buffers posted again
//   2. send completions: operations end, in the order of each endpoint
//   3. when there is any: owed credit, reads of rendezvous, pending requests, failed endpoints
//   4. when nothing moved: now and then, asynchronous events and keepalive
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "ucs/datastruct/tag_matcher.hpp"
#include "ucs/memory/mpool.hpp"
#include "ucs/stats/counters.hpp"
#include "uct/ib/ib_iface.hpp"
#include "uct/ib/rc/rc_ep.hpp"
#include "uct/ib/rc/rc_options.hpp"
#include "uct/ib/receive_queue.hpp"
#include "uct/ib/tag_list.hpp"

namespace tagwire::rc {

enum class RcCounter {
    kDelivered,
    kUnexpected,
    kMatched,
    kDeviceMatched,
    kNoResource,
    kNoCredit,
    kCreditMessages,
    kSoftwareReads,
    kRnrFailures,
    kReceiveLow,
    kGarbage,
    kProbes,
    kPeerFailures,
    kCount
};
extern const ucs::CounterInfo kRcCounterInfos[static_cast<std::size_t>(RcCounter::kCount)];

/// A posted receive that software matches, or one that software goes on with.
struct SoftReceive : ucs::PostedReceive {
    uct_tag_context_t* ctx;  // null: cancelled by force after the match
    std::byte* buffer;
    std::size_t capacity;
    std::uint32_t lkey;
    bool is_matched;
};

/// A rendezvous send: the handle that tag_rndv_zcopy gives.
struct RndvSend {
    RcEp* ep;  // null: free
    uct_completion_t* comp;
    RndvSend* next;  // of the endpoint; of the free ones
    RndvSend* prev;
    std::uint64_t serial;
    std::uint32_t id;  // what travels as app_ctx: index and generation
};

/// A rendezvous whose data software reads.
struct RndvRead {
    SoftReceive* receive;
    RcEp* ep;
    uct_tag_t tag;
    std::uint64_t remote_addr;
    std::size_t length;  // that the sender announced
    std::size_t wanted;  // that are read: at most the receive's capacity
    std::size_t asked;   // by requests so far
    std::uint32_t rkey;
    std::uint32_t id;    // of the sender's operation, big endian
    unsigned under_way;  // requests
    ucs_status_t status;
};

class RcIface : public ib::IbIface {
  public:
    static ucs_status_t open(ib::IbMd& md, uct::Worker& worker, const uct_iface_params_t& params,
                             const void* values, uct_iface_h* iface_p);

    // ---- UCT operations (make_ops) ----
    ucs_status_t tag_recv_zcopy(uct_tag_t tag, uct_tag_t mask, const uct_iov_t* iov,
                                std::size_t iovcnt, uct_tag_context_t* ctx);
    ucs_status_t tag_recv_cancel(uct_tag_context_t* ctx, int force);
    ucs_status_t flush(unsigned flags, uct_completion_t* comp);
    ucs_status_t fence(unsigned flags);
    unsigned progress();
    ucs_status_t event_arm(unsigned events);
    void close();
    ucs_status_t query(uct_iface_attr_t* attr);
    ucs_status_t get_address(uct_iface_addr_t* addr);

    // ---- for tagwire's own queries ----
    bool reachable(const uct_device_addr_t* dev_addr, const uct_iface_addr_t* iface_addr,
                   std::string* reason) override;
    ucs::CounterSet counters() const override { return counters_.set(kRcCounterInfos); }
    void describe(const uct::DescribeSink& sink) const override;
    void describe_ep(uct_ep_h ep, const uct::DescribeSink& sink) const override;

  private:
    friend class RcEp;
    static constexpr unsigned kIdlePerLook = 64;    // idle calls per look at the clock
    static constexpr unsigned kControlPerPeer = 8;  // messages that take no credit
    static constexpr std::uint64_t kLookNs = 1'000'000;
    static constexpr std::uint64_t kLastRequestNs = 100'000'000;  // not every device tells

    RcIface(ib::IbMd& md, uct::Worker& worker, const RcOptions& options);
    ~RcIface() override;
    ucs_status_t init(const uct_iface_params_t& params);
    ucs_status_t choose_matching();
    ucs_status_t open_queues();
    ucs_status_t open_receives(unsigned tags, unsigned tag_ops);
    ucs_status_t measure_inline();
    void query_tags(uct_iface_attr_t* attr) const;
    [[nodiscard]] bool has_atomics() const;
    [[nodiscard]] std::size_t am_header_max() const {
        return std::min(kZcopyHeaderMax, seg_bytes_);
    }
    /// What a peer may send before it hears of us, and what tells it of that.
    [[nodiscard]] unsigned buffers_per_peer() const {
        return static_cast<unsigned>(options_.credits) + kControlPerPeer;
    }
    bool agrees(std::uint8_t flags, std::uint32_t seg_bytes, std::string* reason_p) const;

    // ---- Endpoints
    ucs_status_t add(RcEp& ep);
    void remove(RcEp& ep);
    [[nodiscard]] RcEp* find(std::uint32_t id) const {
        const std::uint32_t index = id & kIndexMask;
        RcEp* ep = index < eps_.size() ? eps_[index] : nullptr;
        return ep != nullptr && ep->id_ == id ? ep : nullptr;
    }
    [[nodiscard]] RcEp* of_qp(std::uint32_t qp_num) const {
        const auto& page = by_qp_[(qp_num >> 12) & 0xfff];
        return page == nullptr ? nullptr : (*page)[qp_num & 0xfff];
    }
    void map_qp(std::uint32_t qp_num, RcEp* ep);
    void fail(RcEp& ep, ucs_status_t status);
    void cancel(RcEp& ep);
    void bury(RcEp& ep);

    // ---- rc_progress.cc
    void end_sends(const ib::Completion* completions, unsigned count);
    [[nodiscard]] bool is_time_for_sends(bool has_moved) const;
    unsigned work();
    void look();
    void take_event(const ib::AsyncEvent& event);
    void keep_alive();
    unsigned settle_failing();
    unsigned reap(std::uint64_t now);
    void send_completed(const ib::Completion& completion);
    void finish(RcEp& ep, ib::SendOp& op, ucs_status_t status);
    void finish_flush(RcEp& ep, ib::SendOp& op);
    void settle_flushes(RcEp& ep);
    void send_credits();
    void signal_all();
    void end_operations(RcEp& ep);

    // ---- rc_receive.cc
    [[nodiscard]] ib::ReceiveQueue& queue_of(const std::byte* message) {
        return has_device_tags_ && ends_.owns(message) ? ends_ : receives_;
    }
    void receive(const ib::Completion* completions, unsigned count);
    /// False: deliver() looks closer, and nothing was done.
    bool deliver_common(const ib::Completion& completion);
    void deliver(const ib::Completion& completion);
    void deliver_untagged(RcEp* ep, std::byte* message, std::size_t bytes);
    void deliver_am(RcEp* ep, std::byte* message, std::uint8_t id, std::size_t bytes);
    void deliver_tagged(RcEp* ep, std::byte* message, std::size_t bytes, bool has_imm,
                        std::uint32_t imm_low);
    void deliver_eager(RcEp& ep, std::byte* message, std::size_t bytes, uct_tag_t tag,
                       std::uint64_t imm, bool has_more);
    void deliver_fragment(RcEp& ep, std::byte* message, std::size_t bytes, bool is_last);
    void deliver_request(RcEp& ep, std::byte* message, std::size_t bytes, uct_tag_t tag);
    void deliver_rndv(RcEp& ep, std::byte* message, std::size_t bytes, uct_tag_t tag);
    void deliver_fin(RcEp& ep, std::uint32_t id);
    void garbage(const char* what);
    void give_eager(RcEp& ep, std::byte* message, std::size_t bytes, uct_tag_t tag,
                    std::uint64_t imm, unsigned flags, void** context);
    /// A count that cannot be is not believed: more than was sent, or less than was told before.
    void take_released(RcEp& ep, std::uint32_t released) {
        if (released - ep.peer_released_ <= ep.sent_ - ep.peer_released_) [[likely]]
            ep.peer_released_ = released;
        else
            garbage("a credit for messages that were not sent");
    }
    /// The user has `message` or it is free; the credit follows.
    void after_callback(RcEp* ep, std::byte* message, ucs_status_t status);
    void keep(RcEp* ep, std::byte* message);
    void release_credit(RcEp& ep) {
        ++ep.released_;
        if (ep.released_ - ep.told_ >= credit_step_ || ep.held_ > 0) [[unlikely]]
            tell_released(ep);
    }
    void tell_released(RcEp& ep);
    static void released(void* iface, std::uint64_t ep_id);

    // ---- rc_tags.cc
    void tag_event(const ib::Completion& completion);
    void matched(ib::TagEntry& entry);
    void arrived(ib::TagEntry& entry);
    void end_entry(ib::TagEntry& entry, ucs_status_t status);
    void go_on(ib::TagEntry& entry, RcEp* ep);
    SoftReceive* match(uct_tag_t tag);
    [[gnu::cold]] ucs_status_t refuse_receive(std::size_t capacity) const;
    SoftReceive* new_receive(uct_tag_context_t* ctx, void* buffer, std::size_t capacity,
                             std::uint32_t lkey);
    void complete(SoftReceive& receive, uct_tag_t tag, std::uint64_t imm, std::size_t bytes,
                  ucs_status_t status);
    [[nodiscard]] bool rndv_room() const { return rndvs_under_way_ < options_.rndv_max; }
    RndvSend* new_rndv(RcEp& ep, uct_completion_t* comp);
    void drop_rndv(RndvSend& send);
    [[nodiscard]] RndvSend* rndv_of(std::uint32_t id) const;
    void start_read(RcEp& ep, SoftReceive& receive, uct_tag_t tag, const ibv_tmh& head,
                    const ibv_rvh& from);
    /// False: no room now.
    bool step_read(RndvRead& read);
    bool tell_end(const RndvRead& read);
    void finish_read(RndvRead& read);
    void read_part_done(RndvRead& read, ucs_status_t status);
    unsigned step_reads();
    void end_reads(RcEp& ep);
    unsigned report_cancelled();

    void count(RcCounter counter, std::uint64_t amount = 1) { counters_.add(counter, amount); }

    static constexpr std::uint32_t kRndvGeneration = 1U << 16;  // below: index
    static constexpr std::uint32_t kIndexBits = 20;
    static constexpr std::uint32_t kIndexMask = (1U << kIndexBits) - 1;
    using QpPage = std::array<RcEp*, 4096>;

    /// A request for a short message. The device has copied it when the post returns, so one does
    /// for all.
    struct ShortSend {
        union Head {
            struct {
                ib::Prefix prefix;
                std::uint64_t header;
            } am;
            ibv_tmh tagged;
        };
        ShortSend();
        ShortSend(const ShortSend&) = delete;
        ShortSend& operator=(const ShortSend&) = delete;

        ibv_send_wr request{};
        ibv_sge sges[2]{};  // the head, the data
        Head head{};
    };

    // The data path's.
    ShortSend short_send_;
    RcOptions options_;
    bool has_device_tags_ = false;
    bool has_work_ = false;  // for work(): any of the lists below is not empty
    bool wants_signals_ = false;
    bool receives_empty_ = false;    // at the last poll
    unsigned calls_ = 0;             // since the last look at the clock
    std::uint32_t cq_free_ = 0;      // requests that may still be posted
    std::uint32_t signals_out_ = 0;  // requests whose completion was asked for; never too few
    std::uint32_t cq_reserve_ = 0;   // of them only for what brings completions
    std::uint32_t signal_every_ = 1;
    std::uint32_t inline_max_ = 0;
    std::uint32_t credit_step_ = 1;  // messages per report to the peer
    std::size_t seg_bytes_ = 0;
    unsigned sges_max_ = 1;
    unsigned reads_max_ = 1;
    std::size_t message_max_ = 0;
    std::size_t eager_parts_max_ = 1;
    std::size_t rndv_bytes_max_ = 0;
    std::size_t rndv_header_max_ = 0;
    std::size_t receive_bytes_min_ = 0;
    std::uint64_t receives_seen_ = 0;
    ib::CompletionQueue receive_cq_;
    ib::CompletionQueue send_cq_;
    ib::ReceiveQueue receives_;
    ib::ReceiveQueue ends_;  // tags matched by the device: the ends of our rendezvous sends
    ib::TagList tag_list_;
    ib::SendPool buffers_;  // with room for a segment
    ib::SendPool small_;    // with room for headers
    uct::PendingQueue pending_;
    ucs::PostedReceives posted_;
    ucs::ObjectPool<SoftReceive> soft_receives_;
    std::vector<SoftReceive*> cancelled_;  // their callbacks run in progress
    std::vector<std::unique_ptr<RndvSend>> rndvs_;
    RndvSend* rndv_free_ = nullptr;
    unsigned rndvs_under_way_ = 0;
    ucs::ObjectPool<RndvRead> reads_;
    std::vector<RndvRead*> reads_waiting_;  // for room in a send queue
    unsigned reads_under_way_ = 0;
    std::vector<RcEp*> owing_;  // credit
    std::vector<RcEp*> failing_;
    std::vector<RcEp*> destroyed_;
    std::vector<RcEp*> eps_;  // by index; null where free
    std::vector<std::uint32_t> free_eps_;
    std::uint32_t generation_ = 0;
    std::size_t ep_count_ = 0;
    std::array<std::unique_ptr<QpPage>, 4096> by_qp_;
    std::string matching_reason_;
    std::uint64_t next_look_ = 0;       // ns
    std::uint64_t next_keepalive_ = 0;  // ns
    std::uint64_t keepalive_ns_ = 0;    // 0: none
    ucs::CounterArray<RcCounter> counters_;
    bool in_progress_ = false;
};

inline RcIface& RcEp::owner() const {
    return static_cast<RcIface&>(static_cast<uct::BaseIface&>(*iface));  // never null
}

inline bool RcEp::has_room(unsigned requests) const {
    const RcIface& own = owner();
    return sq_free_ > requests && own.cq_free_ >= requests + own.cq_reserve_;
}

inline ucs_status_t RcEp::room(unsigned requests, unsigned messages) {
    if (failure_ == UCS_OK && !group_.blocks_sends() && has_room(requests) && has_credit(messages))
        [[likely]]
        return UCS_OK;
    return no_room();
}

}  // namespace tagwire::rc
