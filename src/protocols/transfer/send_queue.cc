// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/transfer/send_queue.hpp"

#include <algorithm>
#include <cstring>

#include "protocols/am/am_part.hpp"
#include "protocols/eager/receiver.hpp"
#include "protocols/request/rail.hpp"
#include "protocols/transfer/transfer.hpp"
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

/// While the peer wants nothing to keep: messages, and puts that it is told of.
bool is_held_back(const Request& request) {
    if (request.kind == RequestKind::kRma)
        return (request.flags & TW_OP_IMM) != 0 && !RmaSender::has_begun(request);
    return request.kind == RequestKind::kSend && request.offset == 0;
}

}  // namespace

void SendQueue::push_control(const Control& message) {
    if (ep_.state() == EpState::kFailed)
        return;
    controls_.push_back(message);
    run();
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
    if (submit(*request))
        return request;
    requests.release(*request);
    return nullptr;
}

bool SendQueue::submit(Request& request) {
    request.order = ep_.flushes().next_order();
    ucs_status_t status = UCS_ERR_NO_RESOURCE;
    if (ep_.state() == EpState::kReady && !ep_.closing().has_asked() && is_empty() &&
        ep_.may_start(request)) {
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

void SendQueue::started(Request& request) {
    if (request.kind == RequestKind::kRma)
        ep_.rma.begun(request);
}

void SendQueue::push(Request& request) {
    ep_.worker.count(WorkerCounter::kTxQueued);
    request.is_queued = true;
    operations_.push_back(request);
    ep_.update_direct();
    if (ep_.state() == EpState::kReady)
        run();
}

void SendQueue::add_data(Request& request) {
    request.is_queued = true;
    data_.push_back(request);
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
    operations_.remove_if([&](Request& queued) { return &queued == &request; });
    request.is_queued = false;
}

void SendQueue::remove_data(Request& request) {
    data_.remove_if([&](Request& queued) { return &queued == &request; });
    request.is_queued = false;
}

Request* SendQueue::pop() {
    Request* request = operations_.pop_front();
    if (request != nullptr)
        request->is_queued = false;
    return request;
}

void SendQueue::clear_data() {
    while (Request* request = data_.pop_front())
        request->is_queued = false;
}

void SendQueue::stall() {
    is_stalled_ = true;
    ep_.worker.peers().ask_wireup(ep_);
}

// ---- Sending

uct_ep_h SendQueue::drainable() const {
    return ep_.state() == EpState::kReady ? ep_.lane() : nullptr;
}

void SendQueue::drained() {
    ep_.update_direct();
}

/// Sends what waits, in order. UCS_ERR_NO_RESOURCE: the transport is full; UCS_OK: nothing waits,
/// or only for something else. Callbacks that it runs may add to the queues.
ucs_status_t SendQueue::drain() {
    begin_steps();
    Step step = Step::kDone;
    while (step == Step::kDone && ep_.state() == EpState::kReady && may_step()) {
        step = drain_controls();
        if (ep_.closing().has_asked())
            continue;  // messages wait for the answer
        if (step == Step::kIdle)
            step = drain_operations();
        if (step == Step::kIdle)
            step = drain_data();
        if (step == Step::kIdle)
            step = drain_gets();
    }
    if (steps_left_ == 0 && ep_.state() == EpState::kReady) {
        stall();  // the rest is for the next calls of progress
        return UCS_OK;
    }
    return step == Step::kFull ? UCS_ERR_NO_RESOURCE : UCS_OK;
}

SendQueue::Step SendQueue::drain_controls() {
    if (controls_.empty())
        return Step::kIdle;
    if (send_now(controls_.front()) == UCS_ERR_NO_RESOURCE)
        return Step::kFull;
    controls_.pop_front();
    return Step::kDone;
}

SendQueue::Step SendQueue::drain_operations() {
    if (operations_.empty() || !ep_.may_start(*operations_.front()))
        return Step::kIdle;
    Request& request = *operations_.front();
    if (ep_.is_paused() && is_held_back(request))
        return Step::kIdle;
    const ucs_status_t status = ep_.start(request);
    if (status == UCS_ERR_NO_RESOURCE)
        return Step::kFull;
    pop();
    if (status == UCS_INPROGRESS)
        started(request);
    else
        ep_.worker.finish(request, status);
    return Step::kDone;
}

/// One step of the first that waits.
SendQueue::Step SendQueue::drain_data() {
    Request* request = data_.front();
    if (request == nullptr)
        return Step::kIdle;
    ucs_status_t status = UCS_OK;
    if (request->transfer != nullptr)
        return move_pieces(*request) ? Step::kDone : Step::kFull;
    if (request->kind == RequestKind::kRma)
        status = ep_.rma.resume(*request);
    else if (request->kind == RequestKind::kReceive)
        status = ep_.worker.receiver().send_rtr(*request);
    else
        status = ep_.rndv().send_piece(*request);
    return status == UCS_ERR_NO_RESOURCE ? Step::kFull : Step::kDone;
}

/// Data that the peer gets from us.
SendQueue::Step SendQueue::drain_gets() {
    RmaTarget& target = ep_.rma_target;
    if (!target.has_gets())
        return Step::kIdle;
    return target.send_piece() == UCS_ERR_NO_RESOURCE ? Step::kFull : Step::kDone;
}

/// Pieces of the own lane's part of a transfer. False: the transport is full.
bool SendQueue::move_pieces(Request& request) {
    TransferPart& part = request.transfer->own;
    steps_left_ -= std::min(steps_left_, kStepsOfPieces);
    if (!part.begin_pieces(ep_.lane(), ep_.rail()))
        return false;
    data_.pop_front();
    request.is_queued = false;
    part.release();
    return true;
}

}  // namespace tagwire::proto
