// SPDX-License-Identifier: BSD-3-Clause
// Queues of an endpoint, control messages, flush and close, cancel.
#include <cstddef>
#include <cstring>

#include "protocols/endpoint.hpp"
#include "protocols/rail.hpp"
#include "protocols/stripe.hpp"
#include "protocols/worker.hpp"

namespace tagwire::proto {

struct PendingOfEndpoint {
    static ucs_status_t run(uct_pending_req_t* self) {
        Endpoint& ep = *static_cast<OwnedBy<uct_pending_req_t, Endpoint>*>(self)->owner;
        ep.is_armed_ = false;
        const ucs_status_t status = ep.drain();
        ep.is_armed_ = status != UCS_OK;
        ep.update_direct();
        return status;
    }
};

void Endpoint::update_direct() {
    const bool is_direct = state_ == EpState::kReady && rail_->short_max >= sizeof(Header) &&
                           !rail_->matches_tags() && queue_.empty() && controls_.empty() &&
                           !holds_data_ && !holds_ && !is_closing && !has_asked_;
    direct_end_ = is_direct ? short_data_max_ + 1 : 0;
    if (!worker.is_multi)
        unlocked_end_ = direct_end_;
}

/// Sends what waits, in order. UCS_ERR_NO_RESOURCE: the transport is full; UCS_OK: nothing waits,
/// or only for something else. Callbacks that it runs may add to the queues.
ucs_status_t Endpoint::drain() {
    if (is_draining_)
        return UCS_OK;
    is_draining_ = true;
    ucs_status_t status = UCS_INPROGRESS;
    while (status == UCS_INPROGRESS && state_ == EpState::kReady) {
        status = drain_controls();
        if (has_asked_)
            continue;  // messages wait for the answer
        if (status == UCS_OK)
            status = drain_queue();
        if (status == UCS_OK)
            status = drain_data();
    }
    is_draining_ = false;
    return status == UCS_ERR_NO_RESOURCE ? status : UCS_OK;
}

// Of these, UCS_OK: there is nothing to do; UCS_INPROGRESS: something was done, look again.

ucs_status_t Endpoint::drain_controls() {
    if (controls_.empty())
        return UCS_OK;
    const ucs_status_t status = send_control(controls_.front());
    if (status == UCS_ERR_NO_RESOURCE)
        return status;
    controls_.pop_front();
    return UCS_INPROGRESS;
}

ucs_status_t Endpoint::drain_queue() {
    if (queue_.empty() || !may_start(*queue_.front()))
        return UCS_OK;
    Request& request = *queue_.front();
    if (holds_ && request.kind == RequestKind::kSend && request.offset == 0)
        return UCS_OK;
    const ucs_status_t status = start(request);
    if (status == UCS_ERR_NO_RESOURCE)
        return status;
    queue_.pop_front();
    request.is_queued = false;
    if (status != UCS_INPROGRESS)
        worker.finish(request, status);
    return UCS_INPROGRESS;
}

/// A transport that has no room and yet answers that nothing needs to wait for room is asked again
/// in progress, so that this call returns whatever it answers.
void Endpoint::drain_and_arm() {
    for (int round = 0; state_ == EpState::kReady && !is_armed_ && !is_draining_; ++round) {
        if (drain() != UCS_ERR_NO_RESOURCE)
            break;
        if (round == kDrainRoundsMax) {
            stall();
            break;
        }
        pending_.func = PendingOfEndpoint::run;
        pending_.owner = this;
        const ucs_status_t added = uct_ep_pending_add(lane_, &pending_, 0);
        is_armed_ = added == UCS_OK;
        if (added != UCS_ERR_BUSY)
            break;
    }
    update_direct();
}

void Endpoint::stall() {
    is_stalled_ = true;
    worker.ask_wireup(*this);
}

// ---- Control messages

// A peer that has our hello may speak before we have its own, so we name ourselves only now.
ucs_status_t Endpoint::send_control(Control message) {
    message.sender = peer_names;
    std::uint64_t head = 0;
    std::memcpy(&head, &message, sizeof head);
    return uct_ep_am_short(lane_, static_cast<std::uint8_t>(AmId::kControl), head,
                           reinterpret_cast<const std::byte*>(&message) + sizeof head,
                           sizeof message - sizeof head);
}

void Endpoint::control(ControlOp op, std::uint32_t a, std::int32_t b, std::uint64_t c) {
    if (state_ == EpState::kFailed)
        return;
    controls_.push_back({static_cast<std::uint32_t>(op), 0, a, b, c});
    drain_and_arm();
}

/// The peer hears of the end, if the transport has room for that; else when it speaks to us.
void Endpoint::say_reset() {
    if (state_ == EpState::kReady && worker_id != worker.id())
        send_control({static_cast<std::uint32_t>(ControlOp::kReset), 0, 0, 0, number_});
}

void Endpoint::on_control(const Control& message) {
    Request* request = worker.request_named(message.a);
    const bool is_ours = request != nullptr && request->ep == this;
    const auto status = static_cast<ucs_status_t>(message.b);
    switch (static_cast<ControlOp>(message.op)) {
        case ControlOp::kAck:
            if (is_ours && request->kind == RequestKind::kSend) {
                request->is_answered = true;  // it may come before the last part has gone
                if (request->is_outstanding)
                    worker.finish(*request, UCS_OK);
            }
            break;
        case ControlOp::kAts:
            if (is_ours && request->kind == RequestKind::kSend && request->is_outstanding)
                worker.finish(*request, status < 0 ? status : UCS_OK);
            break;
        case ControlOp::kCts:
            if (is_ours && request->kind == RequestKind::kSend && request->is_outstanding) {
                send_data(*request, static_cast<std::uint32_t>(message.b), message.c);
            } else {  // nobody waits for what is not there
                control(ControlOp::kDataEnd, static_cast<std::uint32_t>(message.b),
                        UCS_ERR_CANCELED);
            }
            break;
        case ControlOp::kDataEnd:
            if (!is_ours || request->kind != RequestKind::kReceive || !request->is_outstanding)
                break;
            if (status < 0) {
                worker.rndv_ended(*request, status);
            } else {
                worker.rndv_written(*request);
            }
            break;
        case ControlOp::kCancel:
            if (worker.withdraw(*this, message.a))
                control(ControlOp::kCanceled, message.a);
            break;
        case ControlOp::kCanceled:
            if (is_ours && request->kind == RequestKind::kSend && request->is_outstanding)
                worker.finish(*request, UCS_ERR_CANCELED);
            break;
        case ControlOp::kFlush:
            control(ControlOp::kFlushed, message.a);
            break;
        case ControlOp::kFlushed:
            if (is_ours && request->kind != RequestKind::kReceive) {
                request->is_answered = true;
                check_flushes();
            }
            break;
        case ControlOp::kHoldData:
            holds_data_ = true;
            break;
        case ControlOp::kSendData:
            holds_data_ = false;
            break;
        case ControlOp::kHold:
            holds_ = true;
            break;
        case ControlOp::kResume:
            holds_ = false;
            break;
        case ControlOp::kBye:
            peer_is_closed = true;
            worker.retire(*this);
            break;
        case ControlOp::kBack:
            peer_is_closed = false;
            break;
        case ControlOp::kLeave:
            peer_is_closed = true;
            has_left_ = !is_open && has_said_bye_ && is_quiet();
            control(ControlOp::kLeft, has_left_ ? 1 : 0);
            worker.retire(*this);
            break;
        case ControlOp::kLeft:
            on_left(message.a != 0);
            break;
        case ControlOp::kReset:
            worker.connection_is_over(*this, static_cast<std::uint32_t>(message.c));
            break;
        case ControlOp::kLane:
            if (DeviceTags* tags = worker.device_tags())
                tags->on_lane(*this, message.a);
            break;
        case ControlOp::kDown:
            if (stripes_ != nullptr)
                stripes_->on_down(message.a, static_cast<std::uint32_t>(message.b));
            break;
        default:
            worker.count(WorkerCounter::kGarbage);
            break;
    }
    if (state_ == EpState::kReady)
        drain_and_arm();
}

// ---- Flush and close

tw_status_t Endpoint::flush(RequestKind kind, const tw_op_t* op, tw_request_h* request_p) {
    if (failure_ != UCS_OK && kind == RequestKind::kFlush)
        return static_cast<tw_status_t>(failure_);
    Request* request = worker.make(kind, op, request_p);
    if (request == nullptr)
        return TW_ERR_NO_RESOURCE;
    request->ep = this;
    request->order = order_;
    request->done.flags = TW_DONE_FLUSH;
    request->done.ep = this;
    request->flags &= ~std::uint32_t{TW_OP_FENCE};
    if (kind == RequestKind::kClose)
        is_closing = true;
    // Messages that left by the short way are not numbered; there are none before it is ready.
    if (state_ != EpState::kReady && order_ == 0) {
        if (kind == RequestKind::kClose)
            closed();
        worker.finish(*request, UCS_OK);
    } else {
        ++order_;
        enqueue(*request);
    }
    return worker.answer(*request, op, request_p);
}

ucs_status_t Endpoint::start_flush(Request& request) {
    if (request.id == 0 && worker.name(request) == 0)
        return UCS_ERR_NO_MEMORY;
    const ucs_status_t status =
        send_control({static_cast<std::uint32_t>(ControlOp::kFlush), 0, request.id, 0, 0});
    if (status != UCS_OK)
        return status;
    flushes_.push_back(request);
    return UCS_INPROGRESS;
}

/// Ends the flushes that the peer has answered and that no earlier send holds back.
void Endpoint::check_flushes() {
    while (Request* flush = flushes_.front()) {
        std::uint64_t earliest = UINT64_MAX;
        if (!outstanding.empty())
            earliest = outstanding.front()->order;
        if (!flush->is_answered || earliest < flush->order)
            return;
        flushes_.erase(*flush);
        if (flush->kind == RequestKind::kClose)
            closed();
        worker.finish(*flush, UCS_OK);
    }
}

void Endpoint::request_ended() {
    if (state_ == EpState::kFailed)
        return;
    if (!flushes_.empty())
        check_flushes();
    if (!queue_.empty())
        drain_and_arm();
}

// ---- Cancel

void Endpoint::cancel(Request& request) {
    if (request.is_announced) {
        request.wants_cancel = true;
    } else if (request.is_queued && !request.is_outstanding && request.offset == 0 &&
               !request.has_gone && request.kind == RequestKind::kSend) {
        queue_.remove_if([&](Request& queued) { return &queued == &request; });
        request.is_queued = false;
        worker.finish(request, UCS_ERR_CANCELED);
        request_ended();
        update_direct();
    } else if (request.is_outstanding && request.id != 0 && request.kind == RequestKind::kSend) {
        control(ControlOp::kCancel, request.id);
    }
}

}  // namespace tagwire::proto
