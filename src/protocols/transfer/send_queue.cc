// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/transfer/send_queue.hpp"

#include <cstring>

#include "protocols/request/request_table.hpp"
#include "protocols/request/rma_op.hpp"
#include "protocols/wire/wire.hpp"

namespace tagwire::proto {

void SendQueue::push_control(const Control& message) {
    if (to_.lane.state == EpState::kFailed)
        return;
    controls_.push_back(message);
    replies_ += message.is_reply() ? 1 : 0;
    run();
}

void SendQueue::add_control(const Control& message) {
    if (to_.lane.state == EpState::kFailed)
        return;
    controls_.push_back(message);
    stall();
}

bool SendQueue::submit(Request& request) {
    request.order = to_.flushes.next_order();
    request.stream = line_of_new(request);
    const bool is_message = request.stream == Line::kMessages || request.stream == Line::kUrgent;
    const bool is_next = of(request.stream).empty() && (!is_message || controls_.empty());
    ucs_status_t status = UCS_ERR_NO_RESOURCE;
    if (to_.lane.state == EpState::kReady && !to_.closing.has_asked() && is_next &&
        may_start(request)) {
        steps_.begin();
        status = to_.calls.start(to_.owner, request);
    }
    if (status == UCS_ERR_NO_RESOURCE) {
        if ((request.flags & TW_OP_INJECT) != 0 && to_.worker.requests.copy_of(request) == nullptr)
            return false;
        push(request);
    } else if (status == UCS_INPROGRESS) {
        to_.calls.begun(to_.owner, request);
    } else {
        to_.worker.finish(request, status);
    }
    return true;
}

/// One that waits already keeps its place: those behind it are looked at when it is their turn.
Line SendQueue::line_of_new(const Request& request) const {
    if ((request.flags & TW_OP_URGENT) != 0)
        return Line::kUrgent;
    if (!is_one_sided(request))
        return Line::kMessages;
    const bool is_asked =
        to_.lane.is_ready() && of(Line::kDirect).empty() && to_.calls.is_asked(to_.owner, request);
    return is_asked ? Line::kAsked : Line::kDirect;
}

void SendQueue::add(Line line, Request& request) {
    request.line = line;
    request.is_queued = true;
    of(line).push_back(request);
}

void SendQueue::push(Request& request) {
    to_.worker.count(WorkerCounter::kTxQueued);
    add(request.stream, request);
    if ((request.flags & TW_OP_FENCE) != 0)
        fences_.push_back(request);
    to_.peer.lane.update_direct();
    if (to_.lane.state == EpState::kReady)
        run();
}

void SendQueue::add_data(Request& request) {
    Line line = Line::kData;
    if (request.transfer != nullptr)
        line = Line::kMoves;
    else if (request.kind == RequestKind::kReceive)
        line = Line::kReplies;
    else if (request.kind == RequestKind::kRma)
        line = is_one_sided(request) ? Line::kSteps : Line::kReplies;
    add(line, request);
}

void SendQueue::push_data(Request& request) {
    add_data(request);
    run();
}

// A peer that has our hello may speak before we have its own, so we name ourselves only now.
ucs_status_t SendQueue::send_now(Control message) {
    message.sender = to_.peer.peer_names;
    std::uint64_t head = 0;
    std::memcpy(&head, &message, sizeof head);
    return uct_ep_am_short(to_.lane.ep, static_cast<std::uint8_t>(AmId::kControl), head,
                           reinterpret_cast<const std::byte*>(&message) + sizeof head,
                           sizeof message - sizeof head);
}

void SendQueue::remove(Request& request) {
    of(request.line).erase(request);
    request.is_queued = false;
    if (index_of(request.line) < kOperationLines && RequestList::is_linked(request))
        fences_.erase(request);
}

Request* SendQueue::pop() {
    Request* oldest = nullptr;
    for (std::size_t i = 0; i < kOperationLines; ++i) {
        Request* const first = lines_[i].front();
        if (first != nullptr && (oldest == nullptr || first->order < oldest->order))
            oldest = first;
    }
    if (oldest != nullptr)
        remove(*oldest);
    return oldest;
}

void SendQueue::clear_data() {
    for (std::size_t i = kOperationLines; i < kLines; ++i)
        while (Request* request = lines_[i].front())
            remove(*request);
}

void SendQueue::stall() {
    is_stalled_ = true;
    to_.table.ask_wireup();
}

}  // namespace tagwire::proto
