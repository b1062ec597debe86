// SPDX-License-Identifier: BSD-3-Clause
// Lends channels to endpoints: assigns them in turns, and takes them back.
//
//   owned   endpoint needs room -> take -> its turn -> drained -> give back -> longest waiting one
//                               '-> waits, and ends the turns of others
//   shared  endpoint needs room -> drawn once, for good
//
// An endpoint that waits for a grant holds no channel: its requests are acknowledged by the peer's
// device, which needs receive buffers only, and those come back by the peer's progress alone. So
// answers always find a channel.
//
// Threads: owner of the interface.
// Invariants
//  (1) An owned channel is idle, or owned by one endpoint from its first request until the
//      acknowledgement of its last: no other endpoint's requests are lost when a target fails.
//  (2) While an endpoint waits for a channel its owner asks for a completion at the end of its
//      turn.
#pragma once

#include <cstdint>

#include "ucs/memory/reserve.hpp"
#include "uct/ib/dc/dc_ep.hpp"
#include "uct/ib/dc/dc_pool.hpp"
#include "uct/ib/dc/dc_shared.hpp"
#include "uct/ib/queue_source.hpp"

namespace tagwire::dc {

class DcFlow;

class ChannelLender final : public ib::QueueSource {
  public:
    ChannelLender(ib::MessageIface& owner, DcFlow& flow, const DcOptions& options);

    [[nodiscard]] DciPool& pool() { return pool_; }
    [[nodiscard]] const DciPool& pool() const { return pool_; }
    /// The queue of endpoints without a channel: it has no room.
    [[nodiscard]] ib::WorkQueue& no_queue() { return no_queue_; }
    [[nodiscard]] bool has_channel(const DcEp& ep) const { return ep.queue != &no_queue_; }
    /// The endpoint has failed and all has ended: others get its channel.
    void take_back(DcEp& ep);
    /// Once a millisecond or less often.
    void look();
    [[nodiscard]] bool looks_soon() const { return !closing_.empty(); }

    // ---- Room (QueueSource)
    bool make_room(ib::MessageEp& ep, unsigned requests, unsigned messages) override;
    void gave_up(ib::MessageEp& ep) override;
    void drained(ib::WorkQueue& queue) override;
    void special_completed(ib::WorkQueue& queue, const ib::Completion& completion) override;
    [[nodiscard]] bool has_requests(const ib::MessageEp& ep) const override {
        return static_cast<const DcEp&>(ep).under_way != 0;
    }
    [[nodiscard]] ib::MessageEp* poster_of(const ib::WorkQueue& queue) const override;

    // ---- The ends of endpoints (QueueSource)
    void stop(ib::MessageEp& ep) override;
    [[nodiscard]] bool uses_memory(const ib::MessageEp& ep) const override;
    void press(ib::MessageEp& ep, std::uint64_t waited_ns) override;
    void end_copied(ib::MessageEp& ep) override;
    [[nodiscard]] bool ends_soon(const ib::MessageEp& ep) const override {
        const auto& dc_ep = static_cast<const DcEp&>(ep);
        return has_channel(dc_ep) && (is_alone(dc_ep) || dc_ep.queue->is_broken ||
                                      static_cast<const Channel&>(*dc_ep.queue).dci->is_breaking);
    }
    void give_up(ib::MessageEp& ep) override;

  private:
    /// An endpoint that failed while others may have requests where it has some.
    struct Closing {
        std::uint32_t ep_id;
        Dci* dci;
        std::uint64_t deadline;  // watched ns
        bool is_held = false;    // nobody sends there until it is stopped
    };

    static int post_call(ib::WorkQueue& queue, ib::MessageEp& ep, ibv_send_wr* first,
                         ibv_send_wr** bad_p);

    // ---- Turns
    bool own_channel(DcEp& ep);
    bool share_channel(DcEp& ep);
    void begin_turn(Channel& channel, DcEp& ep);
    void give_back(Channel& channel);
    void hand_on(Channel& channel);
    DcEp* next_waiting();
    /// Somebody waits: whoever had his turn gets no more room until his requests are done.
    void end_turns();
    /// Places came back to channels of a DCI with streams: whoever waited for them goes on.
    void use_places(const Dci& dci);
    /// A channel without an owner must have so many.
    [[nodiscard]] std::uint32_t places_of_a_turn() const {
        return static_cast<std::uint32_t>(owner_.limits.options.tx_depth) / 2;
    }

    /// Nobody else has requests in its DCI.
    [[nodiscard]] bool is_alone(const DcEp& ep) const;
    void close_later(const DcEp& ep);
    bool must_wait(Closing& closing);
    void hold(Closing& closing, bool is_held);
    /// Completions come for all that was posted there.
    void ask_for_ends(Dci& dci);
    void break_off(Dci& dci);
    void mark_stop(Channel& channel);
    void mark_stops(Dci& dci);
    void end_break_if_flushed(Dci& dci);
    void start_anew(Dci& dci);
    void drop_requests(Dci& dci);

    ib::MessageIface& owner_;
    DcFlow& flow_;
    const DciOptions options_;
    const Policy policy_;
    DciPool pool_;
    SharedChannels shared_;
    ib::WorkQueue no_queue_;
    ucs::ReserveDeque<std::uint32_t> waiting_;  // ids of endpoints without a channel, in order
    bool is_contended_ = false;                 // somebody waited since the last look
    ucs::ReserveVector<Closing> closing_;
    const std::uint64_t close_ns_;  // that their requests may take to end by themselves
};

}  // namespace tagwire::dc
