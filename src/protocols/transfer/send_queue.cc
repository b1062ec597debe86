// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/transfer/send_queue.hpp"

#include <cstring>

#include "protocols/wire/am_part.hpp"
#include "protocols/wire/wire.hpp"
#include "protocols/worker/endpoint.hpp"
#include "protocols/worker/peer_table.hpp"
#include "protocols/worker/worker_core.hpp"

namespace tagwire::proto {

namespace {

/// The completion of a message that has gone.
[[gnu::cold]] tw_completion_t end_of(const Outgoing& message, tw_ep_h ep) {
    const tw_op_t* op = message.op;
    tw_completion_t done{};
    if (op != nullptr) {
        done.context = op->context;
        done.imm = (op->flags & TW_OP_IMM) != 0 ? op->imm : 0;
        done.flags = flag_if((op->flags & TW_OP_IMM) != 0, TW_DONE_IMM);
    }
    done.flags |= TW_DONE_SEND | flag_if(message.is_tagged, TW_DONE_TAGGED) |
                  flag_if(message.am != nullptr, TW_DONE_AM);
    done.length = done.message_length = message.length;
    done.tag = message.am == nullptr ? message.tag : message.am->id;
    done.ep = ep;
    return done;
}

}  // namespace

void SendQueue::push_control(const Control& message) {
    if (ep_.state() == EpState::kFailed)
        return;
    controls_.push_back(message);
    replies_ += message.is_reply() ? 1 : 0;
    run();
}

void SendQueue::add_control(const Control& message) {
    if (ep_.state() == EpState::kFailed)
        return;
    controls_.push_back(message);
    stall();
}

Request* SendQueue::begin(const Outgoing& message) {
    RequestTable& requests = ep_.worker.requests();
    Request* request = requests.make(RequestKind::kSend, message.op, message.request_p);
    if (request == nullptr)
        return nullptr;
    if (!requests.set_buffer(*request, message.base, message.length, message.list, message.count,
                             message.op == nullptr ? nullptr : message.op->mem)) {
        requests.release(*request);
        return nullptr;
    }
    request->ep = &ep_;
    if (message.am != nullptr && !requests.set_am(*request, *message.am)) {
        requests.release(*request);
        return nullptr;
    }
    request->is_tagged = message.is_tagged;
    request->done = end_of(message, sender_handle(ep_));
    request->done.request = request;
    if (may_start(*request) && ep_.may_send_short(0) &&
        ep_.rndv().try_start_at_once(*request, ep_.flushes().order())) {
        ep_.flushes().next_order();
        return request;
    }
    if (submit(*request))
        return request;
    requests.release(*request);
    return nullptr;
}

bool SendQueue::submit(Request& request) {
    request.order = ep_.flushes().next_order();
    request.stream = line_of_new(request);
    const bool is_message = request.stream == Line::kMessages || request.stream == Line::kUrgent;
    const bool is_next = of(request.stream).empty() && (!is_message || controls_.empty());
    ucs_status_t status = UCS_ERR_NO_RESOURCE;
    if (ep_.state() == EpState::kReady && !ep_.closing().has_asked() && is_next &&
        may_start(request)) {
        begin_steps();
        status = ep_.start(request);
    }
    if (status == UCS_ERR_NO_RESOURCE) {
        if ((request.flags & TW_OP_INJECT) != 0 &&
            ep_.worker.requests().copy_of(request) == nullptr)
            return false;
        push(request);
    } else if (status == UCS_INPROGRESS) {
        started(request);
    } else {
        ep_.worker.finish(request, status);
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
        ep_.state() == EpState::kReady && of(Line::kDirect).empty() && ep_.rma.is_asked(request);
    return is_asked ? Line::kAsked : Line::kDirect;
}

void SendQueue::started(Request& request) {
    if (request.kind == RequestKind::kRma)
        ep_.rma.begun(request);
}

void SendQueue::add(Line line, Request& request) {
    request.line = line;
    request.is_queued = true;
    of(line).push_back(request);
}

void SendQueue::push(Request& request) {
    ep_.worker.count(WorkerCounter::kTxQueued);
    add(request.stream, request);
    if ((request.flags & TW_OP_FENCE) != 0)
        fences_.push_back(request);
    ep_.update_direct();
    if (ep_.state() == EpState::kReady)
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
    message.sender = ep_.peer_names;
    std::uint64_t head = 0;
    std::memcpy(&head, &message, sizeof head);
    return uct_ep_am_short(ep_.lane(), static_cast<std::uint8_t>(AmId::kControl), head,
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
    ep_.worker.peers().ask_wireup(ep_);
}

}  // namespace tagwire::proto
