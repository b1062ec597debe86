// SPDX-License-Identifier: BSD-3-Clause
// The turns of a send queue: whether an operation may begin, and the steps of the lines.

#include "protocols/request/attention.hpp"
#include "protocols/request/rail.hpp"
#include "protocols/request/rma_op.hpp"
#include "protocols/transfer/send_queue.hpp"
#include "protocols/transfer/transfer.hpp"
#include "protocols/wire/limits.hpp"

namespace tagwire::proto {

namespace {

/// While the peer wants nothing to keep, or has not told that it does: messages, and puts that it
/// is told of.
bool is_held_back(const Request& request) {
    if ((request.flags & TW_OP_URGENT) != 0)
        return false;
    return request.kind == RequestKind::kSend ||
           (request.kind == RequestKind::kRma && (request.flags & TW_OP_IMM) != 0);
}

constexpr unsigned bit_of(Line line) {
    return 1U << static_cast<unsigned>(line);
}

/// Turns that need room for a message; others go on while there is none.
constexpr unsigned kGetsBit = 1U << kLines;
constexpr unsigned kMessageBits = bit_of(Line::kUrgent) | bit_of(Line::kMessages) |
                                  bit_of(Line::kAsked) | bit_of(Line::kReplies) |
                                  bit_of(Line::kData) | kGetsBit;

}  // namespace

// ---- May it begin

/// The first of a line is a message that has gone in part.
bool SendQueue::is_among_parts(Line line) const {
    const Request* first = of(line).front();
    return first != nullptr && first->kind == RequestKind::kSend && first->offset > 0;
}

bool SendQueue::may_pass_urgently() const {
    return to_.lane.state == EpState::kReady && !to_.closing.has_asked() && controls_.empty() &&
           of(Line::kUrgent).empty() && !is_among_parts(Line::kMessages);
}

/// Messages have their order, but that urgent ones pass others.
bool SendQueue::may_start_message(const Request& request) const {
    if (request.stream == Line::kUrgent)
        return !is_among_parts(Line::kMessages);
    const Request* urgent = of(Line::kUrgent).front();
    return urgent == nullptr || request.stream != Line::kMessages ||
           (!is_among_parts(Line::kUrgent) && urgent->order > request.order);
}

bool SendQueue::may_start(const Request& request) const {
    if (has_begun(request))
        return true;
    const Request* fence = fences_.front();
    if (fence != nullptr && fence->order < request.order && request.stream != Line::kUrgent)
        return false;
    if (!may_start_message(request) ||
        ((to_.lane.is_paused || !to_.window.is_open()) && is_held_back(request)))
        return false;
    if (request.kind == RequestKind::kRma) {
        if (!may_ask(request))
            return false;
    } else if (to_.outstanding[index_of(Line::kMessages)].size() +
                   to_.outstanding[index_of(Line::kUrgent)].size() + to_.flushes.size() >=
               kNamedMax) {
        return false;
    }
    const bool is_fence = (request.flags & TW_OP_FENCE) != 0;
    if (!is_fence && request.kind != RequestKind::kFlush && request.kind != RequestKind::kClose)
        return true;
    for (std::size_t i = 0; i < kOperationLines; ++i) {
        const Request* first = lines_[i].front();
        if (first != nullptr && first->order < request.order)
            return false;
    }
    return !is_fence || (to_.outstanding.operations() == 0 && to_.flushes.is_empty() &&
                         !to_.calls.awaits_replies(to_.owner));
}

/// Enough replies have come; and no put by messages has begun in another line.
bool SendQueue::may_ask(const Request& request) const {
    const auto is_in_parts = [&](Line line) {
        const Request* first = of(line).front();
        return first != nullptr && first != &request && is_put_in_parts(*first);
    };
    const bool is_free =
        to_.calls.may_ask(to_.owner) && !is_in_parts(Line::kMessages) && !is_in_parts(Line::kAsked);
    return is_free || (request.stream != Line::kAsked && !to_.calls.is_asked(to_.owner, request));
}

/// The transport has refused something, but not the first of a line that needs no room for a
/// message.
bool SendQueue::may_need_no_room() const {
    if (to_.closing.has_asked())
        return false;
    const auto is_new = [&](Line line) { return !of(line).empty() && (full_ & bit_of(line)) == 0; };
    return is_new(Line::kSteps) || is_new(Line::kMoves) ||
           (is_new(Line::kDirect) && may_start(*of(Line::kDirect).front()));
}

ucs_status_t SendQueue::start(Request& request) {
    // Once it has begun its link is that of the outstanding ones.
    const bool is_fence = RequestList::is_linked(request);
    if (is_fence)
        fences_.erase(request);
    const ucs_status_t status = to_.calls.start(to_.owner, request);
    if (is_fence && status == UCS_ERR_NO_RESOURCE)
        fences_.push_front(request);
    return status;
}

// ---- Turns

uct_ep_h SendQueue::drainable() const {
    return to_.lane.state == EpState::kReady ? to_.lane.ep : nullptr;
}

void SendQueue::drained() {
    if (to_.flushes.are_leaving() && controls_.empty()) [[unlikely]]
        to_.flushes.check_room();
    to_.peer.lane.update_direct();
}

/// Sends what waits. UCS_ERR_NO_RESOURCE: the transport is full; UCS_OK: nothing waits, or only for
/// something else.
ucs_status_t SendQueue::drain() {
    const Walk walk(to_.worker.attention);
    steps_.begin();
    full_ = 0;
    bool is_ring_full = false;
    for (unsigned idle = 0;
         idle < kTurns && to_.lane.state == EpState::kReady && steps_.has_left();) {
        const Step of_controls = is_ring_full ? Step::kFull : drain_controls();
        is_ring_full = of_controls == Step::kFull;
        const bool is_leaving = to_.closing.has_asked();  // all else waits for the answer
        if (is_leaving && of_controls != Step::kDone)
            break;
        const Step step = is_leaving ? Step::kIdle : take_turn(is_ring_full);
        const bool has_moved = of_controls == Step::kDone || step == Step::kDone;
        idle = has_moved ? 0 : idle + 1;
    }
    if (!steps_.has_left() && to_.lane.state == EpState::kReady) {
        stall();  // the rest is for the next calls of progress
        return UCS_OK;
    }
    return is_ring_full || full_ != 0 ? UCS_ERR_NO_RESOURCE : UCS_OK;
}

/// One step of the line whose turn it is.
SendQueue::Step SendQueue::take_turn(bool is_ring_full) {
    const unsigned turn = turn_;
    turn_ = (turn_ + 1) % kTurns;
    const unsigned bit = 1U << turn;
    if ((full_ & bit) != 0 || (is_ring_full && (kMessageBits & bit) != 0))
        return Step::kIdle;
    const auto line = static_cast<Line>(turn);
    Step step = Step::kIdle;
    if (turn < kOperationLines)
        step = drain_operation(line);
    else if (turn < kLines)
        step = line == Line::kMoves ? drain_moves() : drain_step(line);
    else
        step = drain_gets();
    if (step == Step::kFull)
        full_ |= bit;
    if (step == Step::kDone)
        steps_.take(1);
    return step;
}

SendQueue::Step SendQueue::drain_controls() {
    for (unsigned i = 0; i < kControlsInARow && !controls_.empty() && steps_.try_take(); ++i) {
        const Control& message = controls_.front();
        if (send_now(message) == UCS_ERR_NO_RESOURCE)
            return Step::kFull;
        if (message.is_reply())
            --replies_;
        if (message.operation() == ControlOp::kRmaReply)
            to_.calls.reply_has_gone(to_.owner);
        controls_.pop_front();
        if (i + 1 == kControlsInARow || controls_.empty())
            return Step::kDone;
    }
    return Step::kIdle;
}

/// Begins the first, or goes on with it.
SendQueue::Step SendQueue::drain_operation(Line line) {
    Request* const request = of(line).front();
    if (request == nullptr)
        return Step::kIdle;
    if (line == Line::kDirect && !has_begun(*request) && to_.calls.is_asked(to_.owner, *request)) {
        // The way was not known when it was called.
        of(line).erase(*request);
        request->stream = Line::kAsked;
        add(Line::kAsked, *request);
        return Step::kDone;
    }
    if (!may_start(*request))
        return Step::kIdle;
    const ucs_status_t status = start(*request);
    if (status == UCS_ERR_NO_RESOURCE)
        return Step::kFull;
    of(line).erase(*request);
    request->is_queued = false;
    if (status == UCS_INPROGRESS)
        to_.calls.begun(to_.owner, *request);
    else
        to_.worker.finish(*request, status);
    return Step::kDone;
}

/// A step of the first of kSteps, kReplies or kData.
SendQueue::Step SendQueue::drain_step(Line line) {
    Request* const request = of(line).front();
    if (request == nullptr)
        return Step::kIdle;
    const ucs_status_t status = to_.calls.step(to_.owner, *request);
    return status == UCS_ERR_NO_RESOURCE ? Step::kFull : Step::kDone;
}

SendQueue::Step SendQueue::drain_gets() {
    switch (to_.calls.send_get(to_.owner)) {
        case UCS_ERR_NO_ELEM:
            return Step::kIdle;
        case UCS_ERR_NO_RESOURCE:
            return Step::kFull;
        default:
            return Step::kDone;
    }
}

SendQueue::Step SendQueue::drain_moves() {
    Request* const request = of(Line::kMoves).front();
    if (request == nullptr)
        return Step::kIdle;
    return move_pieces(*request) ? Step::kDone : Step::kFull;
}

/// Pieces of the own lane's part of a transfer. False: the transport is full.
bool SendQueue::move_pieces(Request& request) {
    TransferPart& part = request.transfer->own;
    if (!part.begin_pieces(to_.lane.ep, to_.lane.rail()))
        return false;
    steps_.take(kStepsOfPieces);
    remove(request);
    part.release();
    return true;
}

}  // namespace tagwire::proto
