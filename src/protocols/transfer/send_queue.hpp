// SPDX-License-Identifier: BSD-3-Clause
// Everything that waits for the lane of an endpoint: control messages first, then operations
// of the program in the order of their calls, then data of rendezvous that the peer has asked for.
//
// 1. While an operation or a control message waits, no operation overtakes it: the fast path is
//    closed (Endpoint::update_direct()).
// 2. A transport that is full calls when it has room (RoomWaiter); else progress tries again.
#pragma once

#include <uct/api/uct.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "protocols/index/fifo.hpp"
#include "protocols/request/request.hpp"
#include "protocols/request/room_waiter.hpp"
#include "protocols/wire/control_message.hpp"

namespace tagwire::proto {

struct Outgoing;

class SendQueue {
  public:
    explicit SendQueue(Endpoint& ep) : ep_(ep) {}
    SendQueue(const SendQueue&) = delete;
    SendQueue& operator=(const SendQueue&) = delete;

    /// No operation and no control message waits.
    bool is_empty() const { return operations_.empty() && controls_.empty(); }
    bool has_operations() const { return !operations_.empty(); }
    std::size_t operations() const { return operations_.size(); }
    std::size_t controls() const { return controls_.size(); }

    // ---- Each is sent at once if it can be

    void push_control(const Control& message);
    /// A message of the program: it has ended, is outstanding, or waits here. nullptr: there is no
    /// room for its request.
    Request* begin(const Outgoing& message);
    /// A new operation: it has ended, is outstanding, or waits here. False: there is no room for a
    /// copy of what it injects, and nothing has happened.
    bool submit(Request& request);
    void push(Request& request);
    /// Pieces of a transfer, or an offer to the sender to write it.
    void push_data(Request& request);
    /// Queues it without sending; the next run() sends it.
    void add_data(Request& request);
    /// Sends what waits.
    void run() { room_.run(); }

    /// Sends a control message ahead of the queue. UCS_ERR_NO_RESOURCE: it was not sent.
    ucs_status_t send_now(Control message);

    // ---- Taking back

    void remove(Request& request);
    void remove_data(Request& request);
    /// Removes and returns the oldest operation, which the caller completes; nullptr: none.
    Request* pop();
    void clear_controls() { controls_.clear(); }
    void clear_data();
    /// The lane's pending requests were purged.
    void disarm() { room_.disarm(); }

    // ---- Steps

    /// A call begins to send. A step is a message, a part of one or a piece of a transfer.
    void begin_steps() { steps_left_ = kStepsMax; }
    bool may_step() {
        if (steps_left_ == 0)
            return false;
        --steps_left_;
        return true;
    }
    /// Progress tries again whatever waits for room.
    void stall();
    /// True if stall() was called.
    bool take_stall() { return std::exchange(is_stalled_, false); }
    bool is_stalled() const { return is_stalled_; }

    // ---- For RoomWaiter

    ucs_status_t drain();
    uct_ep_h drainable() const;
    void drained();

  private:
    /// There was nothing to do, something was done, the transport is full.
    enum class Step : std::uint8_t { kIdle, kDone, kFull };

    /// Endpoint::start() has begun it, and no queue has it any more.
    void started(Request& request);
    Step drain_controls();
    Step drain_operations();
    Step drain_data();
    Step drain_gets();
    bool move_pieces(Request& request);

    /// Steps of one call: a fast receiver cannot keep the sender inside one call.
    static constexpr unsigned kStepsMax = 64;
    /// Steps that beginning some pieces takes: they may move at once.
    static constexpr unsigned kStepsOfPieces = 8;

    Endpoint& ep_;
    RequestQueue operations_;
    RequestQueue data_;  // outstanding rendezvous whose data the peer wants, or is to write
    Fifo<Control> controls_;
    bool is_stalled_ = false;  // run() is repeated in progress
    unsigned steps_left_ = 0;  // of this call
    RoomWaiter<SendQueue> room_{*this};
};

}  // namespace tagwire::proto
