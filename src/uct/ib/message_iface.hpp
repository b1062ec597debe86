// SPDX-License-Identifier: BSD-3-Clause
// Base of rc and dc interfaces: puts the parts of an interface together (message_parts.hpp), and
// drives them. The transport connects endpoints, gives them send queues, finds the sender of a
// message, and limits senders.
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

#include "ucs/memory/reserve.hpp"
#include "uct/ib/keepalive.hpp"
#include "uct/ib/message_receiver.hpp"
#include "uct/ib/op_ends.hpp"
#include "uct/ib/watched_time.hpp"

namespace tagwire::ib {

class MessageIface : public MessageReceiver {
  public:
    // ---- UCT operations (make_ops)
    ucs_status_t flush(unsigned flags, uct_completion_t* comp);
    ucs_status_t fence(unsigned flags);
    ucs_status_t event_arm(unsigned events);

    ucs::CounterSet counters() const override { return counts.set(kMessageCounterInfos); }

    // ---- The ends of endpoints
    /// `why` is told in the log.
    void fail(MessageEp& ep, ucs_status_t status, const char* why);
    void cancel(MessageEp& ep);
    /// Within destroy, when it has failed: its sends, reads, writes and flushes end, and the
    /// program's memory is its own again. Callbacks of others run in the next progress. Bounded.
    void end_now(MessageEp& ep);
    /// The device completes nothing any more: by the next progress all requests end and all
    /// endpoints fail. `why` is a constant.
    void lose_device(const char* why);
    [[nodiscard]] bool has_lost_device() const { return loss_ != nullptr; }
    /// For a queue that is one endpoint's. Its places have come back, if they do now.
    void owned_completed(WorkQueue& queue, const Completion& completion);

    OpEnds op_ends{reads, has_work};
    WatchedTime watched;

  protected:
    static constexpr unsigned kIdlePerLook = 64;  // idle calls per look at the clock
    static constexpr std::uint64_t kLookNs = 1'000'000;
    // Watched time:
    static constexpr std::uint64_t kEndNs = 1'000'000'000;    // that destroys wait for the device
    static constexpr std::uint64_t kFlushNs = 5'000'000'000;  // that a failed endpoint does

    using MessageReceiver::MessageReceiver;
    ~MessageIface() override = default;

    /// progress() of a transport, whose calls are inlined: `peer_of(qp_num)`, `deliver_common(c)`,
    /// which is false where it has done nothing, and `deliver(c)` of all other messages.
    template <class PeerOf, class DeliverCommon, class Deliver>
    unsigned progress_by(const PeerOf& peer, const DeliverCommon& deliver_common,
                         const Deliver& deliver);

    // ---- Properties of a transport
    /// The endpoint has failed, and all its operations have ended. False: it is the transport's
    /// own, or was destroyed before, and is gone.
    virtual bool settled(MessageEp& ep) = 0;
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
    void broke_off(MessageEp& ep) override;

    // ---- Set-up
    ucs_status_t open_queues();
    void query_messages(uct_iface_attr_t* attr) const;
    void describe_messages(const uct::DescribeSink& sink) const;

    void end_operations(MessageEp& ep);

  private:
    struct Failing {
        MessageEp* ep;
        std::uint64_t mark;      // receive completions seen when it failed
        std::uint64_t deadline;  // watched ns; not to wait longer for the ends of its requests
    };

    // ---- Send completions
    [[nodiscard]] bool is_time_for_sends(bool has_moved) const;
    unsigned look_at_sends();
    void end_sends(const Completion* completions, unsigned count);
    void handle_sends();
    void send_completed(const Completion& completion);

    // ---- Work
    unsigned work();
    unsigned settle_failing();
    void end_all();
    bool waits_on(MessageEp& ep, std::uint64_t begin);
    [[nodiscard]] bool is_overdue(const Failing& failing) const;
    [[nodiscard]] bool is_any_busy() const;

    // ---- Now and then
    static constexpr unsigned kCallsPerLook = 4096;  // busy ones; an idle one counts for many
    void look_now_and_then();
    /// False: there is no room to ask it now.
    bool probe(MessageEp& ep);
    [[nodiscard]] std::uint64_t sleep_ns() const;

    unsigned calls_ = 0;  // since the last look at the clock
    ucs::ReserveVector<Failing> failing_;
    const char* loss_ = nullptr;    // why the device is lost
    bool has_ended_all_ = false;    // since then
    bool is_unresponsive_ = false;  // a destroy waited in vain, and nothing has completed since
    const Completion* sends_ = nullptr;  // those of the last poll that were not handled yet
    unsigned sends_left_ = 0;
    std::uint64_t next_look_ = 0;  // ns
    Keepalive keepalive_;
};

// Send completions wait while messages come, but not for long, and not while requests wait. While
// no completion was asked for only failures can come.
inline bool MessageIface::is_time_for_sends(bool has_moved) const {
    constexpr unsigned kBusyPerLook = 8;  // both divide what an idle call counts for, times a few
    constexpr unsigned kQuietPerLook = 512;
    if (has_work)
        return true;
    if (sends.signals_out() == 0)
        return calls_ % kQuietPerLook == 0;
    return !has_moved || calls_ % kBusyPerLook == 0;
}

template <class PeerOf, class DeliverCommon, class Deliver>
[[gnu::always_inline]] inline unsigned MessageIface::progress_by(
    const PeerOf& peer, const DeliverCommon& deliver_common, const Deliver& deliver) {
    if (guard.is_inside()) [[unlikely]]
        return 0;
    const Completion* completions = nullptr;
    unsigned moved = poll_receives(&completions);
    if (moved != 0) {
        guard.enter();
        receives_seen_ += moved;
        bool are_common = true;
        for (const Completion* each = completions; each != completions + moved; ++each) {
            if (!TagList::is_own(each->wr_id)) {
                if (deliver_common(*each)) [[likely]]
                    continue;
                deliver(*each);
            } else if (TagEntry* const entry = tag_list.take_whole(*each); entry != nullptr) {
                matched(*entry, peer(each->qp_num), *each);
                continue;
            } else {
                tag_event(*each);
            }
            are_common = false;
        }
        if (are_common) [[likely]]
            receives.refill();
        else
            end_receiving();
        guard.leave();
    }
    if (is_time_for_sends(moved != 0)) [[unlikely]]
        moved += look_at_sends();
    if (moved == 0) {
        calls_ += kCallsPerLook / kIdlePerLook;
        if (calls_ >= kCallsPerLook) [[unlikely]]
            look_now_and_then();
        worker().found_nothing(*this, 1);
        return 0;
    }
    if (++calls_ >= kCallsPerLook) [[unlikely]]
        look_now_and_then();
    count_moved(moved);
    return moved;
}

inline MessageIface& MessageEp::owner() const {
    return static_cast<MessageIface&>(static_cast<uct::BaseIface&>(*iface));  // never null
}

inline bool MessageEp::has_ended() const {
    return queue->is_shared ? !owner().source->has_requests(*this) : queue->is_drained();
}

inline bool MessageEp::is_idle() const {
    return has_ended() && rndv_first == nullptr && !owner().op_ends.has_late(*this);
}

template <class Callback>
void MessageEp::purge(Callback&& callback) {
    if (group != nullptr)
        owner().pending.purge(*group, std::forward<Callback>(callback));
}

inline bool MessageEp::has_room(unsigned requests) const {
    return queue->free >= requests + queue->reserve && owner().sends.has_places(requests);
}

inline bool MessageEp::gets_room(unsigned requests) {
    return has_room(requests) || make_own_room(requests);
}

inline ucs_status_t MessageEp::room(unsigned requests, unsigned messages) {
    if (failure == UCS_OK && !blocks_sends() && has_room(requests) && has_credit(messages))
        [[likely]]
        return UCS_OK;
    return make_room(requests, messages);
}

[[gnu::always_inline]] inline ucs_status_t MessageEp::post_short(std::uint32_t head_bytes,
                                                                 const void* data,
                                                                 std::uint32_t length) {
    MessageIface& own = owner();
    ShortSend& short_send = own.short_send;
    ibv_send_wr& request = short_send.request;
    request.wr_id = queue->next_wr_id();
    request.num_sge = length == 0 ? 1 : 2;
    short_send.sges[0].length = head_bytes;
    short_send.sges[1].addr = address_of(data);
    short_send.sges[1].length = length;
    request.send_flags = IBV_SEND_INLINE | own.sends.take_places(*queue, 1, false);
    ++sent;
    ibv_send_wr* bad = nullptr;
    const int error = queue->post(*this, &request, &bad);
    return error == 0 ? UCS_OK : post_failed(bad, error);
}

}  // namespace tagwire::ib
