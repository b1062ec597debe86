// SPDX-License-Identifier: BSD-3-Clause
// Base of rc and dc interfaces: completions of all endpoints, receive buffers, posted receives,
// rendezvous. The transport connects endpoints, finds the sender of a message, and limits senders.
//
// Threads: owner thread of the worker. Nothing runs in the background.
//
// One call of progress():
//   1. receive completions: messages are delivered, tags matched, buffers posted again
//   2. send completions: operations end, in the order of each endpoint
//   3. when there is any: messages owed to peers, reads of rendezvous, pending requests, failed
//      endpoints
//   4. when nothing moved: now and then, asynchronous events and keepalive
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ucs/datastruct/address_set.hpp"
#include "ucs/datastruct/tag_matcher.hpp"
#include "ucs/memory/mpool.hpp"
#include "ucs/memory/reserve.hpp"
#include "ucs/stats/counters.hpp"
#include "uct/ib/ib_iface.hpp"
#include "uct/ib/message_ep.hpp"
#include "uct/ib/message_options.hpp"
#include "uct/ib/receive_queue.hpp"
#include "uct/ib/tag_list.hpp"

namespace tagwire::ib {

enum class MessageCounter {
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
    kPostedAgain,
    kCount
};
extern const ucs::CounterTable<MessageCounter> kMessageCounterInfos;

/// A posted receive that software matches, or one that software goes on with.
struct SoftReceive : ucs::PostedReceive {
    uct_tag_context_t* ctx;  // null: cancelled by force after the match
    std::byte* buffer;
    std::size_t capacity;  // not 0: the buffer is among those in use, unless the device matched
    std::uint32_t lkey;
    bool is_matched;
    bool is_read;  // the device reads its data
};

/// A rendezvous send: the handle that tag_rndv_zcopy gives.
struct RndvSend : ucs::FromReserve {
    MessageEp* ep;  // null: free
    uct_completion_t* comp;
    RndvSend* next;  // of the endpoint; of the free ones
    RndvSend* prev;  // the oldest's is the newest
    std::uint64_t serial;
    std::uint32_t id;  // what travels as app_ctx: index and generation
};

/// A rendezvous whose data software reads.
struct RndvRead {
    SoftReceive* receive;
    MessageEp* ep;
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

class MessageIface : public IbIface {
  public:
    // ---- UCT operations (make_ops)
    ucs_status_t tag_recv_zcopy(uct_tag_t tag, uct_tag_t mask, const uct_iov_t* iov,
                                std::size_t iovcnt, uct_tag_context_t* ctx);
    ucs_status_t tag_recv_cancel(uct_tag_context_t* ctx, int force);
    ucs_status_t flush(unsigned flags, uct_completion_t* comp);
    ucs_status_t fence(unsigned flags);
    unsigned progress();
    ucs_status_t event_arm(unsigned events);

    ucs::CounterSet counters() const override { return counters_.set(kMessageCounterInfos); }

  protected:
    friend class MessageEp;
    static constexpr unsigned kIdlePerLook = 64;  // idle calls per look at the clock
    static constexpr std::uint64_t kLookNs = 1'000'000;
    static constexpr std::uint64_t kEndNs = 1'000'000'000;  // that a destroy waits for the device
    static constexpr std::size_t kProbedMax = 4096;         // endpoints looked at in one interval

    /// `prefix` is that of the options' names: "RC".
    MessageIface(IbMd& md, uct::Worker& worker, const uct_iface_ops_t& table,
                 ucs_callback_t progress_call, const char* prefix, const MessageOptions& options);
    ~MessageIface() override = default;

    // ---- Properties of a transport
    /// Messages are handed to deliver_x(), tag events to tag_event(); then end_receiving().
    virtual void receive(const Completion* completions, unsigned count) = 0;
    /// The endpoint of the local queue pair `qp_num`; null: none, or the queue pair serves any
    /// peer.
    [[nodiscard]] virtual MessageEp* peer_of(std::uint32_t qp_num) const = 0;
    /// There is too little room for so many requests and messages: makes it, if it can.
    virtual bool make_room(MessageEp& ep, unsigned requests, unsigned messages) = 0;
    /// The endpoint does not use the room that it had after all.
    virtual void gave_up(MessageEp&) {}
    /// Each request of the queue has ended.
    virtual void drained(SendQueue& queue) = 0;
    // ---- Special queues, and queues with requests of several endpoints
    virtual void special_completed(SendQueue&, const Completion&) {}
    [[nodiscard]] virtual bool has_requests(const MessageEp&) const { return false; }
    /// Whose requests are under way there and may be followed by another; null: nobody's.
    [[nodiscard]] virtual MessageEp* poster_of(const SendQueue& queue) const { return queue.owner; }

    /// The device may still read or write memory of the program for it.
    [[nodiscard]] virtual bool uses_memory(const MessageEp& ep) const { return !ep.has_ended(); }
    /// Operations still in the queue of an endpoint that uses no memory of the program end for the
    /// program; flushes go to the endpoint's own list, because rendezvous end before them.
    virtual void end_copied(MessageEp&) {}
    /// The device ends its requests by no completion: from now on it touches nothing of them.
    virtual void give_up(MessageEp& ep) = 0;
    /// The endpoint has failed, and all its operations have ended. False: it is the transport's
    /// own, or was destroyed before, and is gone.
    virtual bool settled(MessageEp& ep) = 0;
    /// The peer of a message that the user keeps from now on.
    virtual void keep(MessageEp* ep, std::byte* message) = 0;
    /// The user gave back what keep() was called for.
    virtual void released(std::uint64_t ep_id) = 0;
    /// The peer should hear soon what was released.
    virtual void tell_released(MessageEp& ep) = 0;
    /// Sends the messages that the transport owes to peers, as far as there is room.
    virtual void send_owed() = 0;
    [[nodiscard]] virtual bool owes() const = 0;
    /// Nothing is posted for it any more, and what was posted ends.
    virtual void stop(MessageEp& ep) = 0;
    /// Messages that began to arrive from it end with its failure.
    virtual void end_arrivals(MessageEp& ep) = 0;
    /// Once a millisecond or less often.
    virtual void look(std::uint64_t now) = 0;
    virtual void take_event(const AsyncEvent& event);
    /// look() wants to be called though nothing happens.
    [[nodiscard]] virtual bool looks_soon() const = 0;
    /// Something is to come from the peer beside what the base knows of: its death must be noticed.
    [[nodiscard]] virtual bool waits_for(const MessageEp& ep) const = 0;
    /// The peer's device may be asked; asked once per keepalive interval.
    [[nodiscard]] virtual bool may_ask(MessageEp&) { return true; }
    /// Sends a message again that the peer may have missed; false: nothing was sent.
    virtual bool sends_again(MessageEp&) { return false; }
    /// The endpoint for answers to a sender that gives these bytes as its return address; null:
    /// they lead nowhere.
    virtual MessageEp* way_back(std::span<const std::byte>) { return nullptr; }

    // ---- Set-up
    /// Device or software matches tags. `obstacle`: why the device cannot ("it has no x"); null: it
    /// says that it can. open_queues() falls back to software where it cannot after all.
    ucs_status_t choose_matching(const char* obstacle);
    ucs_status_t open_queues();
    ucs_status_t check_depths();
    void set_limits();
    ucs_status_t open_receiving();
    ucs_status_t open_receives(unsigned tags, unsigned tag_ops, std::string* refusal_p);
    [[nodiscard]] bool may_match_by_software() const {
        return static_cast<TagMatching>(options_.tag_matching) == TagMatching::kAuto;
    }
    /// Why a peer that matches tags the other way cannot be reached.
    [[nodiscard]] std::string differing_matching() const;
    ucs_status_t take_inline(std::uint32_t of_device);
    [[nodiscard]] std::uint32_t inline_wanted() const;
    void query_messages(uct_iface_attr_t* attr) const;
    void query_tags(uct_iface_attr_t* attr) const;
    void describe_messages(const uct::DescribeSink& sink) const;
    [[nodiscard]] bool has_atomics() const;
    [[nodiscard]] std::size_t rndv_header_max() const {
        return rndv_behind_max_ + (has_device_tags_ ? kRndvTailBytes : 0);
    }
    [[nodiscard]] std::size_t am_header_max() const {
        return std::min(kZcopyHeaderMax, seg_bytes_);
    }
    /// Frees what the user left posted. The queue pairs are gone.
    void drop_receives();

    // ---- Endpoints
    ucs_status_t add(MessageEp& ep);
    void remove(MessageEp& ep);
    /// Room for requests that are not the user's. False: what lacks was asked for.
    bool gets_room(MessageEp& ep, unsigned requests) {
        if (ep.has_room(requests) || make_room(ep, requests, 0)) [[likely]]
            return true;
        if (cq_free_ < requests + cq_reserve_)
            ask_for_completions();
        return false;
    }
    /// Places and buffers of requests that asked for no completion lack: nobody else brings them
    /// back.
    void ask_for_completions() { wants_signals_ = has_work_ = true; }
    /// By its id; what completes there finds it.
    void map_queue(SendQueue& queue);
    void unmap_queue(SendQueue& queue);
    void drop_idle_queues();
    [[nodiscard]] bool is_any_busy() const;
    [[nodiscard]] MessageEp* find(std::uint32_t id) const {
        const std::uint32_t index = id & kIndexMask;
        MessageEp* ep = index < eps_.size() ? eps_[index] : nullptr;
        return ep != nullptr && ep->id_ == id ? ep : nullptr;
    }
    /// The queue of a completion, by the upper half of its wr_id; null when it is gone.
    [[nodiscard]] SendQueue* queue_of(std::uint32_t id) const {
        const std::uint32_t index = id & kIndexMask;
        SendQueue* queue = index < queues_.size() ? queues_[index] : nullptr;
        return queue != nullptr && queue->id == id ? queue : nullptr;
    }
    /// `why` is told in the log.
    void fail(MessageEp& ep, ucs_status_t status, const char* why);
    void cancel(MessageEp& ep);

    // ---- message_progress.cc
    [[nodiscard]] bool is_time_for_sends(bool has_moved) const;
    void end_sends(const Completion* completions, unsigned count);
    void handle_sends();
    void send_completed(const Completion& completion);
    /// For a queue that is one endpoint's. Its places have come back, if they do now.
    void owned_completed(SendQueue& queue, const Completion& completion);
    void finish(MessageEp& ep, SendOp& op, ucs_status_t status);
    void finish_flush(MessageEp& ep, SendOp& op);
    /// It ends when no rendezvous before it is under way; settle_flushes() looks.
    static void keep_flush(MessageEp& ep, SendOp& op);
    void settle_flushes(MessageEp& ep);
    unsigned work();
    unsigned settle_failing();
    /// All that had arrived when so many receive completions had been seen has been looked at.
    [[nodiscard]] bool has_heard_all(std::uint64_t mark) const {
        return receives_empty_ || receives_seen_ - mark > receive_cq_.entries();
    }
    void end_operations(MessageEp& ep);
    /// Within destroy, when it has failed: its sends, reads, writes and flushes end, and the
    /// program's memory is its own again. Callbacks of others run in the next progress. Bounded.
    void end_now(MessageEp& ep);
    void abandon(SendQueue& queue);
    /// By the next call of progress, or when its endpoint is destroyed. It is in no queue.
    void finish_later(SendOp& op, ucs_status_t status);
    void finish_late(const MessageEp* of);
    [[nodiscard]] bool has_late(const MessageEp& ep) const;
    void release_group(MessageEp& ep);
    void release_groups();
    void signal_all();
    bool signal(SendQueue& queue);
    /// Nothing more is posted there, and what was posted ends with a completion behind it.
    void mark_end(SendQueue& queue, MessageEp& ep);
    void look_now_and_then();
    void keep_alive();
    /// False: there is no room to ask it now.
    bool probe(MessageEp& ep);
    [[nodiscard]] std::uint64_t sleep_ns() const;

    // ---- message_receive.cc
    void end_receiving();
    void garbage(const char* what);
    void deliver_am(MessageEp* ep, std::byte* message, std::uint8_t id, std::size_t bytes) {
        count(MessageCounter::kDelivered);
        after_callback(ep, message,
                       invoke_am(id, message + kPrefixBytes, bytes, UCT_CB_PARAM_FLAG_DESC));
    }
    /// A whole message with a TMH.
    void deliver_eager(MessageEp* ep, std::byte* message, std::size_t bytes, uct_tag_t tag,
                       std::uint64_t imm);
    void deliver_request(MessageEp* ep, std::byte* message, std::size_t bytes, uct_tag_t tag);
    /// `bytes` end where the user's header does.
    void deliver_rndv(MessageEp& ep, std::byte* message, std::size_t bytes, uct_tag_t tag);
    /// `from` null: whoever sent it.
    void deliver_fin(const MessageEp* from, std::uint32_t id);
    void give_eager(MessageEp* ep, std::byte* message, std::size_t bytes, uct_tag_t tag,
                    std::uint64_t imm, unsigned flags, void** context);
    /// The user has `message` or it is free; the credit follows.
    void after_callback(MessageEp* ep, std::byte* message, ucs_status_t status) {
        if (status == UCS_INPROGRESS) [[unlikely]]
            return keep(ep, message);
        put_back(ep, message);
    }
    void put_back(MessageEp* ep, std::byte* message) {
        receives_.put_back(message);
        if (ep != nullptr)
            release_credit(*ep);
    }
    void release_credit(MessageEp& ep) {
        ++ep.released_;
        if (ep.released_ - ep.told_ >= credit_step_ || receives_.kept() > 0) [[unlikely]]
            tell_released(ep);
    }

    // ---- message_tags.cc
    /// The device has put a whole message where it belongs.
    void matched(TagEntry& entry, MessageEp* ep) {
        if (ep != nullptr) [[likely]] {
            ep->was_heard_ = true;
            release_credit(*ep);
        }
        entry.ctx->tag_consumed_cb(entry.ctx);
        arrived(entry);
    }
    void arrived(TagEntry& entry);
    void tag_event(const Completion& completion);
    void end_entry(TagEntry& entry, ucs_status_t status);
    void go_on(TagEntry& entry, MessageEp* ep);
    SoftReceive* match(uct_tag_t tag);
    void free_buffer(SoftReceive& receive);
    void free_receive(SoftReceive& receive);
    [[gnu::cold]] ucs_status_t refuse_receive(std::size_t capacity) const;
    SoftReceive* new_receive(uct_tag_context_t* ctx, void* buffer, std::size_t capacity,
                             std::uint32_t lkey);
    void complete(SoftReceive& receive, uct_tag_t tag, std::uint64_t imm, std::size_t bytes,
                  ucs_status_t status);
    unsigned report_cancelled();

    // ---- message_rndv.cc
    [[nodiscard]] bool rndv_room() const { return rndvs_under_way_ < options_.rndv_max; }
    RndvSend* new_rndv(MessageEp& ep, uct_completion_t* comp);
    void drop_rndv(RndvSend& send);
    [[nodiscard]] RndvSend* rndv_of(std::uint32_t id) const;
    void start_read(MessageEp& ep, SoftReceive& receive, uct_tag_t tag, const ibv_tmh& head,
                    const ibv_rvh& from);
    /// False: no room now.
    bool step_read(RndvRead& read);
    bool tell_end(const RndvRead& read);
    void finish_read(RndvRead& read);
    void read_part_done(RndvRead& read, ucs_status_t status);
    unsigned step_reads();
    void end_reads(MessageEp& ep);

    void count(MessageCounter counter, std::uint64_t amount = 1) { counters_.add(counter, amount); }

    static constexpr std::uint32_t kIndexBits = 20;
    static constexpr std::uint32_t kIndexMask = (1U << kIndexBits) - 1;

    /// A request for a short message. The device has copied it when the post returns, so one does
    /// for all.
    struct ShortSend {
        union Head {
            struct {
                Prefix prefix;
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
    MessageOptions options_;
    std::string prefix_;
    std::span<const std::byte> answer_to_;  // travels behind the RVH
    bool has_device_tags_ = false;
    bool has_ends_queue_ = false;  // the ends of our rendezvous come to a queue of their own
    bool has_work_ = false;        // for work(): any of the lists below is not empty
    bool wants_signals_ = false;
    bool in_progress_ = false;
    bool receives_empty_ = false;    // at the last poll
    unsigned calls_ = 0;             // since the last look at the clock
    std::uint32_t cq_free_ = 0;      // requests that may still be posted
    std::uint32_t signals_out_ = 0;  // requests whose completion was asked for; never too few
    std::uint32_t cq_reserve_ = 0;   // of cq_free_ only for what brings completions
    std::uint32_t signal_every_ = 1;
    unsigned queue_shares_ = 1;  // what a send queue's places are divided by
    std::uint32_t inline_max_ = 0;
    std::uint32_t credit_step_ = 1;  // messages per report to the peer
    std::size_t seg_bytes_ = 0;
    unsigned sges_max_ = 1;
    unsigned reads_max_ = 1;
    std::size_t message_max_ = 0;
    std::size_t eager_parts_max_ = 1;
    std::size_t rndv_bytes_max_ = 0;
    std::size_t rndv_behind_max_ = 0;  // bytes of a rendezvous header behind the other headers
    std::size_t receive_bytes_min_ = 0;
    std::uint64_t receives_seen_ = 0;
    CompletionQueue receive_cq_;
    CompletionQueue send_cq_;
    ReceiveQueue receives_;
    ReceiveQueue ends_;  // of our rendezvous sends
    TagList tag_list_;
    SendPool buffers_;  // with room for a segment
    SendPool small_;    // with room for headers
    uct::PendingQueue pending_;
    ucs::ObjectPool<uct::PendingGroup> groups_;
    ucs::ReserveVector<std::uint32_t> grouped_;  // ids of endpoints that have one of them
    ucs::PostedReceives posted_;
    ucs::ObjectPool<SoftReceive> soft_receives_;
    ucs::ReserveVector<SoftReceive*> cancelled_;  // their callbacks run in progress
    ucs::AddressSet in_use_;                      // the buffers of receives that software matches
    ucs::ReserveVector<std::unique_ptr<RndvSend>> rndvs_;
    RndvSend* rndv_free_ = nullptr;
    // The lowest bits of an id, as many as RNDV_MAX needs; the generation has the others. An end
    // that comes late is that of a rendezvous which was cancelled while its receiver read, so it
    // comes at the latest when that read has ended or its connection failed. To be taken for
    // another's it would have to meet the same generation of the same place again, of 2^22 with
    // 1024 rendezvous: of these each takes a request and its acknowledgement, microseconds at
    // least, and over rc only those of the same endpoint count.
    unsigned rndv_index_bits_ = 16;
    unsigned rndvs_under_way_ = 0;
    std::uint64_t rndv_serial_ = 0;
    ucs::ObjectPool<RndvRead> reads_;
    ucs::ReserveVector<RndvRead*> reads_waiting_;  // for room in a send queue
    unsigned reads_under_way_ = 0;
    struct Failing {
        MessageEp* ep;
        std::uint64_t mark;  // receive completions seen when it failed
    };
    ucs::ReserveVector<Failing> failing_;
    // ---- While an endpoint is destroyed, operations of others that end meanwhile
    struct Late {
        SendOp* op;
        ucs_status_t status;
    };
    ucs::ReserveVector<Late> late_;
    MessageEp* ending_ = nullptr;        // the one that is destroyed
    const Completion* sends_ = nullptr;  // those of the last poll that were not handled yet
    unsigned sends_left_ = 0;
    ucs::ReserveVector<SendQueue*> queues_;  // by index; null where free
    // All that have requests under way, and some that had: so nobody looks at all queues.
    ucs::List<SendQueue, &SendQueue::busy_link> busy_;
    ucs::ReserveVector<MessageEp*> eps_;  // by index; null where free
    ucs::ReserveVector<std::uint32_t> free_eps_;
    std::uint32_t generation_ = 0;
    std::size_t ep_count_ = 0;
    std::string matching_reason_;
    std::uint64_t next_look_ = 0;       // ns
    std::uint64_t next_keepalive_ = 0;  // ns
    std::uint64_t keepalive_ns_ = 0;    // 0: none
    std::size_t next_probed_ = 0;       // index of an endpoint
    std::size_t probes_left_ = 0;       // endpoints to be looked at in this interval
    ucs::CounterArray<MessageCounter> counters_;
};

inline MessageIface& MessageEp::owner() const {
    return static_cast<MessageIface&>(static_cast<uct::BaseIface&>(*iface));  // never null
}

inline bool MessageEp::has_ended() const {
    return queue_->is_shared ? !owner().has_requests(*this) : queue_->is_drained();
}

inline bool MessageEp::is_idle() const {
    return has_ended() && rndv_first_ == nullptr && !owner().has_late(*this);
}

template <class Callback>
void MessageEp::purge(Callback&& callback) {
    if (group_ != nullptr)
        owner().pending_.purge(*group_, std::forward<Callback>(callback));
}

inline bool MessageEp::has_room(unsigned requests) const {
    const MessageIface& own = owner();
    return queue_->free >= requests + queue_->reserve && own.cq_free_ >= requests + own.cq_reserve_;
}

inline ucs_status_t MessageEp::room(unsigned requests, unsigned messages) {
    if (failure_ == UCS_OK && !blocks_sends() && has_room(requests) && has_credit(messages))
        [[likely]]
        return UCS_OK;
    return make_room(requests, messages);
}

}  // namespace tagwire::ib
