// SPDX-License-Identifier: BSD-3-Clause
// Everything that waits for the lane of an endpoint, in lines that take turns:
//
//     control messages   up to 8, then a turn of another line
//     kUrgent            messages with TW_OP_URGENT, which no pause holds back
//     kMessages          messages, flushes, closes, puts with a notice: in the order of the calls
//     kDirect            other one-sided operations, which go by the lane
//     kAsked             ... which the owner carries out; at most kAskedMax are without a reply
//     kSteps, kReplies   next steps of one-sided operations, offers to senders of rendezvous
//     kData              data of rendezvous that the peer has asked for, in messages
//     kMoves             reads and writes of transfers
//     gets               data that the peer gets from us by messages (rma_target.hpp)
//
// 1. Each line that can go on gets one step in each round, so no stream of one line starves
//    another. A line without room, or that waits for something else, holds back no other line.
// 2. Operations begin in the order of their line. Between lines only fences and flushes order them:
//    a fence begins when all earlier operations have ended, and no later one begins before it; a
//    flush begins when all earlier ones have begun.
// 3. An urgent message passes other messages and their fences, but never between the parts of one;
//    no other message passes an earlier urgent one.
// 4. While a message waits, no later message overtakes it; while a fence waits, no operation does:
//    the fast path is closed (Endpoint::update_direct()).
// 5. A transport that is full calls when it has room (RoomWaiter); else progress tries again.
#pragma once

#include <ucs/type/status.h>
#include <uct/api/uct.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "protocols/connect/closing.hpp"
#include "protocols/index/fifo.hpp"
#include "protocols/match/match_peer.hpp"
#include "protocols/port/peer_port.hpp"
#include "protocols/port/worker_port.hpp"
#include "protocols/request/lane_state.hpp"
#include "protocols/request/outstanding.hpp"
#include "protocols/request/request.hpp"
#include "protocols/request/room_waiter.hpp"
#include "protocols/transfer/flushes.hpp"
#include "protocols/transfer/send_window.hpp"
#include "protocols/transfer/steps.hpp"
#include "protocols/wire/control_message.hpp"

namespace tagwire::proto {

/// The place in arrays that have one element for each line.
constexpr std::size_t index_of(Line line) {
    return static_cast<std::size_t>(line);
}

/// The protocols whose operations wait in a queue; the first argument of each is their owner.
struct SendCalls {
    /// Begins the operation, or goes on with it. UCS_OK: it has ended. UCS_INPROGRESS: it is
    /// outstanding. UCS_ERR_NO_RESOURCE: to be called again.
    ucs_status_t (*start)(void* owner, Request& request);
    /// start() has begun it, and no line has it any more.
    void (*begun)(void* owner, Request& request);
    /// Takes the next step of the first of kSteps, kReplies or kData, which leaves the queue with
    /// its last one. UCS_ERR_NO_RESOURCE: it waits on.
    ucs_status_t (*step)(void* owner, Request& request);
    /// The owner of the memory carries out the one-sided operation. With kReady.
    bool (*is_asked)(const void* owner, const Request& request);
    /// One more of those may begin.
    bool (*may_ask)(const void* owner);
    /// Some of those have begun whose reply has not come.
    bool (*awaits_replies)(const void* owner);
    /// Sends a piece of the data that the peer gets. UCS_ERR_NO_ELEM: it gets nothing.
    ucs_status_t (*send_get)(void* owner);
    /// The reply to a one-sided operation of the peer has gone.
    void (*reply_has_gone)(void* owner);
};

/// The world of a send queue.
struct SendQueuePorts {
    const WorkerPort& worker;
    const MatchPeer& peer;
    const PeerPort& table;
    const LaneState& lane;
    const Closing& closing;
    const Outstanding& outstanding;
    const SendWindow& window;
    Flushes& flushes;
    void* owner;
    const SendCalls& calls;
};

class SendQueue {
  public:
    explicit SendQueue(const SendQueuePorts& ports) : to_(ports) {}
    SendQueue(const SendQueue&) = delete;
    SendQueue& operator=(const SendQueue&) = delete;

    /// No operation and no control message waits.
    bool is_empty() const { return !has_operations() && controls_.empty(); }
    /// No line has anything, and progress is not asked to run it.
    bool has_nothing() const {
        return controls_.empty() && !is_stalled_ &&
               std::ranges::all_of(lines_, [](const RequestQueue& line) { return line.empty(); });
    }
    bool has_operations() const { return operations() != 0; }
    std::size_t operations() const {
        return of(Line::kUrgent).size() + of(Line::kMessages).size() + of(Line::kDirect).size() +
               of(Line::kAsked).size();
    }
    /// No one-sided operation waits, but puts with a notice.
    bool has_no_one_sided() const { return of(Line::kDirect).empty() && of(Line::kAsked).empty(); }
    std::size_t controls() const { return controls_.size(); }
    /// A new message overtakes none.
    bool may_pass() const {
        return of(Line::kUrgent).empty() && of(Line::kMessages).empty() && controls_.empty() &&
               fences_.empty();
    }
    /// A new urgent message overtakes only what it may.
    bool may_pass_urgently() const;
    /// The operation need not wait: all that must begin first has begun, and the peer wants it.
    bool may_start(const Request& request) const;
    /// A new one-sided operation that goes by the lane overtakes none.
    bool may_pass_directly() const { return of(Line::kDirect).empty() && fences_.empty(); }
    /// Replies to requests of the peer that wait for the transport.
    std::size_t replies() const { return replies_; }

    // ---- Each is sent at once if it can be

    void push_control(const Control& message);
    /// Queues it without sending; the next call that sends, or progress, does.
    void add_control(const Control& message);
    /// A new operation: it has ended, is outstanding, or waits here. False: there is no room for a
    /// copy of what it injects, and nothing has happened.
    bool submit(Request& request);
    void push(Request& request);
    /// The next step of one that has begun, or of a receive.
    void push_data(Request& request);
    /// Queues it without sending; the next run() sends it.
    void add_data(Request& request);
    /// Sends what waits.
    void run() {
        if (room_.is_armed() && may_need_no_room())
            room_.release();
        room_.run();
    }

    /// Sends a control message ahead of the queue. UCS_ERR_NO_RESOURCE: it was not sent.
    ucs_status_t send_now(Control message);

    // ---- Taking back

    void remove(Request& request);
    /// Removes and returns the oldest operation, which the caller completes; nullptr: none.
    Request* pop();
    void clear_controls() {
        controls_.clear();
        replies_ = 0;
    }
    void clear_data();
    /// The lane's pending requests were purged.
    void disarm() { room_.disarm(); }

    // ---- Steps

    Steps& steps() { return steps_; }
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

    RequestQueue& of(Line line) { return lines_[index_of(line)]; }
    const RequestQueue& of(Line line) const { return lines_[index_of(line)]; }
    void add(Line line, Request& request);
    Line line_of_new(const Request& request) const;
    bool is_among_parts(Line line) const;
    bool may_start_message(const Request& request) const;
    bool may_ask(const Request& request) const;
    bool may_need_no_room() const;
    ucs_status_t start(Request& request);
    Step take_turn(bool is_ring_full);
    Step drain_controls();
    Step drain_operation(Line line);
    Step drain_step(Line line);
    Step drain_gets();
    Step drain_moves();
    bool move_pieces(Request& request);

    /// Steps that beginning some pieces takes: they may move at once.
    static constexpr unsigned kStepsOfPieces = 8;
    /// Control messages before the turn of a line.
    static constexpr unsigned kControlsInARow = 8;
    /// Turns of a round: those of the lines, then that of the gets.
    static constexpr unsigned kTurns = kLines + 1;

    const SendQueuePorts to_;
    std::array<RequestQueue, kLines> lines_;
    RequestList fences_;  // of the operations that wait, by Request::list_link
    Fifo<Control> controls_;
    std::size_t replies_ = 0;  // of these
    unsigned turn_ = 0;        // whose is next
    unsigned full_ = 0;        // bits of the turns that have found no room since drain() began
    bool is_stalled_ = false;  // run() is repeated in progress
    Steps steps_;
    RoomWaiter<SendQueue> room_{*this};
};

}  // namespace tagwire::proto
