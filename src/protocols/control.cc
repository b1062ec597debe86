// SPDX-License-Identifier: BSD-3-Clause
// Queues of an endpoint, control messages, flush and close, cancel.
#include <cstddef>
#include <cstring>

#include "protocols/endpoint.hpp"
#include "protocols/rail.hpp"
#include "protocols/stripe.hpp"
#include "protocols/worker.hpp"
#include "ucs/log/log.hpp"

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
    steps_left_ = kStepsMax;
    ucs_status_t status = UCS_INPROGRESS;
    while (status == UCS_INPROGRESS && state_ == EpState::kReady && may_step()) {
        status = drain_controls();
        if (has_asked_)
            continue;  // messages wait for the answer
        if (status == UCS_OK)
            status = drain_queue();
        if (status == UCS_OK)
            status = drain_data();
    }
    is_draining_ = false;
    if (steps_left_ == 0 && state_ == EpState::kReady) {
        stall();  // the rest is for the next calls of progress
        return UCS_OK;
    }
    return status == UCS_ERR_NO_RESOURCE ? status : UCS_OK;
}

// The steps of drain(). UCS_OK: there is nothing to do; UCS_INPROGRESS: something was done, look
// again.

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
void Endpoint::say_reset(bool is_gone) {
    if (state_ != EpState::kReady || worker_id == worker.id())
        return;
    const bool is_in_order = is_gone && is_quiet();
    send_control(
        {static_cast<std::uint32_t>(ControlOp::kReset), 0, 0, is_in_order ? 1 : 0, number_});
}

/// The peer's program has closed its endpoint. One that ours never had counts as closed, too.
void Endpoint::on_bye() {
    peer_is_closed = true;
    if (!is_open && !std::exchange(has_said_bye_, true))
        control(ControlOp::kBye, 0);
    worker.retire(*this);
}

/// The peer asks whether the connection can go. From the answer on its transport may see the end
/// before ours has seen that the answer is through.
void Endpoint::on_leave() {
    peer_is_closed = true;
    has_left_ = !is_open && has_said_bye_ && is_quiet();
    if (has_left_) {
        worker.tell_end(*this, UCS_OK);
        farewell = UCS_ERR_NOT_CONNECTED;
    }
    control(ControlOp::kLeft, has_left_ ? 1 : 0);
    worker.retire(*this);
}

namespace {

/// Status of an operation whose end the peer reports.
ucs_status_t status_of_peer(const Control& message) {
    if (message.b >= 0)
        return UCS_OK;
    return message.b > UCS_ERR_LAST ? static_cast<ucs_status_t>(message.b) : UCS_ERR_IO_ERROR;
}

/// The request is an eager message that has gone, in part at least.
bool awaits_ack(const Request& request) {
    constexpr std::uint32_t kAsked = TW_OP_MATCH_COMPLETE | TW_OP_DELIVERY_COMPLETE;
    return request.kind == RequestKind::kSend && !request.is_rndv &&
           (request.flags & kAsked) != 0 && (request.has_gone || request.offset > 0);
}

/// The peer was asked to drop it, and no data of it is under way.
bool awaits_cancel(const Request& request) {
    return request.kind == RequestKind::kSend && request.is_outstanding && request.wants_cancel &&
           !request.is_queued && request.transfer == nullptr &&
           (!request.is_rndv || request.peer_id == 0);
}

bool awaits_flush(const Request& request) {
    const bool is_flush =
        request.kind == RequestKind::kFlush || request.kind == RequestKind::kClose;
    return is_flush && !request.is_queued;
}

}  // namespace

/// False: the peer cannot say that of a request of ours, or of none, at this time.
bool Endpoint::on_end_of(Request* request, const Control& message) {
    if (request == nullptr || request->ep != this)
        return false;
    switch (static_cast<ControlOp>(message.op)) {
        case ControlOp::kAck:
            if (!awaits_ack(*request))
                return false;
            request->is_answered = true;  // it may come before the last part has gone
            if (request->is_outstanding)
                worker.finish(*request, UCS_OK);
            return true;
        case ControlOp::kAts:
            if (!is_rndv_of_ours(request))
                return false;
            worker.finish(*request, status_of_peer(message));
            return true;
        case ControlOp::kDataEnd:
            if (!Worker::awaits_data(request, this))
                return false;
            if (message.b >= 0)
                return worker.rndv_written(*request);
            worker.rndv_ended(*request, status_of_peer(message));
            return true;
        case ControlOp::kCanceled:
            if (!awaits_cancel(*request))
                return false;
            worker.finish(*request, UCS_ERR_CANCELED);
            return true;
        default:
            if (!awaits_flush(*request))
                return false;
            request->is_answered = true;
            check_flushes();
            return true;
    }
}

/// The receiver of a rendezvous asks for its data.
void Endpoint::on_cts(Request* request, const Control& message) {
    const auto receive_id = static_cast<std::uint32_t>(message.b);
    const bool is_there = request != nullptr && request->ep == this &&
                          request->kind == RequestKind::kSend && request->is_outstanding;
    if (!is_there)  // nobody waits for what is not there
        return control(ControlOp::kDataEnd, receive_id, UCS_ERR_CANCELED);
    if (!awaits_receiver(request) || receive_id == 0 || message.c == 0 ||
        message.c > request->buffer.length)
        return worker.count(WorkerCounter::kGarbage);
    send_data(*request, receive_id, message.c);
}

void Endpoint::on_control(const Control& message) {
    if (controls_.size() >= kControlsMax) {
        TW_LOG_WARN("endpoint to worker %016lx ends: its peer has %zu answers to take, and asks on",
                    worker_id, controls_.size());
        return fail(UCS_ERR_EXCEEDS_LIMIT);
    }
    Request* request = worker.request_named(message.a);
    switch (static_cast<ControlOp>(message.op)) {
        case ControlOp::kAck:
        case ControlOp::kAts:
        case ControlOp::kDataEnd:
        case ControlOp::kCanceled:
        case ControlOp::kFlushed:
            if (!on_end_of(request, message))
                worker.count(WorkerCounter::kGarbage);
            break;
        case ControlOp::kCts:
            on_cts(request, message);
            break;
        case ControlOp::kCancel:
            if (worker.withdraw(*this, message.a))
                control(ControlOp::kCanceled, message.a);
            break;
        case ControlOp::kFlush:
            peer_may_go = message.b == 1;
            control(ControlOp::kFlushed, message.a);
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
            worker.count_resumed();
            break;
        case ControlOp::kBye:
            on_bye();
            break;
        case ControlOp::kBack:
            peer_is_closed = peer_may_go = false;
            break;
        case ControlOp::kLeave:
            on_leave();
            break;
        case ControlOp::kLeft:
            on_left(message.a != 0);
            break;
        case ControlOp::kReset:
            worker.connection_is_over(
                *this, static_cast<std::uint32_t>(message.c),
                message.b == 1 ? UCS_ERR_NOT_CONNECTED : UCS_ERR_CONNECTION_RESET);
            break;
        case ControlOp::kLane:
            if (DeviceTags* tags = worker.device_tags())
                tags->on_lane(*this, message.a);
            break;
        case ControlOp::kDown:
            if (stripes_ != nullptr)
                stripes_->on_down(message.a, static_cast<std::uint32_t>(message.b));
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
    // Messages that left on the fast path are not numbered; there are none before it is ready.
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
        send_control({static_cast<std::uint32_t>(ControlOp::kFlush), 0, request.id,
                      request.kind == RequestKind::kClose ? 1 : 0, 0});
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

/// The peer is asked to drop a message when all of it has gone: start_eager(), start_rndv().
void Endpoint::cancel(Request& request) {
    request.wants_cancel = true;
    if (request.is_announced)
        return;
    if (request.is_queued && !request.is_outstanding && request.offset == 0 && !request.has_gone &&
        request.kind == RequestKind::kSend) {
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
