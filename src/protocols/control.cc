// SPDX-License-Identifier: BSD-3-Clause
// Queues of an endpoint, control messages, flush and close, cancel.
#include <cstddef>
#include <cstring>

#include "protocols/control_message.hpp"
#include "protocols/device_tags.hpp"
#include "protocols/endpoint.hpp"
#include "protocols/peer_table.hpp"
#include "protocols/rail.hpp"
#include "protocols/receiver.hpp"
#include "protocols/stripe.hpp"
#include "protocols/worker_core.hpp"
#include "ucs/log/log.hpp"

namespace tagwire::proto {

/// The request of this endpoint that a message names; nullptr: there is none.
Request* Endpoint::own_request(std::uint32_t request_id) const {
    Request* request = worker.requests().find(request_id);
    return request != nullptr && request->ep == this ? request : nullptr;
}

void Endpoint::update_direct() {
    const bool is_direct = state_ == EpState::kReady && rail_->short_max >= sizeof(Header) &&
                           !rail_->matches_tags() && queue_.empty() && controls_.empty() &&
                           !eager_is_paused_ && !is_paused_ && !is_closing && !has_asked_;
    direct_end_ = is_direct ? short_data_max_ + 1 : 0;
    if (!worker.is_multi)
        unlocked_end_ = direct_end_;
}

/// Sends what waits, in order. UCS_ERR_NO_RESOURCE: the transport is full; UCS_OK: nothing waits,
/// or only for something else. Callbacks that it runs may add to the queues.
ucs_status_t Endpoint::drain() {
    steps_left_ = kStepsMax;
    Step step = Step::kDone;
    while (step == Step::kDone && state_ == EpState::kReady && may_step()) {
        step = drain_controls();
        if (has_asked_)
            continue;  // messages wait for the answer
        if (step == Step::kIdle)
            step = drain_queue();
        if (step == Step::kIdle)
            step = drain_data();
    }
    if (steps_left_ == 0 && state_ == EpState::kReady) {
        stall();  // the rest is for the next calls of progress
        return UCS_OK;
    }
    return step == Step::kFull ? UCS_ERR_NO_RESOURCE : UCS_OK;
}

Endpoint::Step Endpoint::drain_controls() {
    if (controls_.empty())
        return Step::kIdle;
    if (send_now(controls_.front()) == UCS_ERR_NO_RESOURCE)
        return Step::kFull;
    controls_.pop_front();
    return Step::kDone;
}

Endpoint::Step Endpoint::drain_queue() {
    if (queue_.empty() || !may_start(*queue_.front()))
        return Step::kIdle;
    Request& request = *queue_.front();
    if (is_paused_ && request.kind == RequestKind::kSend && request.offset == 0)
        return Step::kIdle;
    const ucs_status_t status = start(request);
    if (status == UCS_ERR_NO_RESOURCE)
        return Step::kFull;
    queue_.pop_front();
    request.is_queued = false;
    if (status != UCS_INPROGRESS)
        worker.finish(request, status);
    return Step::kDone;
}

void Endpoint::stall() {
    is_stalled_ = true;
    worker.peers().ask_wireup(*this);
}

// ---- Control messages

// A peer that has our hello may speak before we have its own, so we name ourselves only now.
ucs_status_t Endpoint::send_now(Control message) {
    message.sender = peer_names;
    std::uint64_t head = 0;
    std::memcpy(&head, &message, sizeof head);
    return uct_ep_am_short(lane_, static_cast<std::uint8_t>(AmId::kControl), head,
                           reinterpret_cast<const std::byte*>(&message) + sizeof head,
                           sizeof message - sizeof head);
}

void Endpoint::queue_control(const Control& message) {
    if (state_ == EpState::kFailed)
        return;
    controls_.push_back(message);
    drain_and_arm();
}

/// The peer hears of the end, if the transport has room for that; else when it speaks to us.
void Endpoint::say_reset(bool is_gone) {
    if (state_ != EpState::kReady || worker_id == worker.id())
        return;
    const bool is_in_order = is_gone && is_quiet();
    send_now(Control::of(Reset{0, is_in_order ? 1U : 0U, number_}));
}

/// The peer's program has closed its endpoint. One that ours never had counts as closed, too.
void Endpoint::on_bye() {
    peer_is_closed = true;
    if (!is_open && !std::exchange(has_said_bye_, true))
        control(Bye{});
    worker.peers().retire(*this);
}

/// The peer asks whether the connection can go. From the answer on its transport may see the end
/// before ours has seen that the answer is through.
void Endpoint::on_leave() {
    peer_is_closed = true;
    has_left_ = !is_open && has_said_bye_ && is_quiet();
    if (has_left_) {
        worker.peers().tell_end(*this, UCS_OK);
        farewell = UCS_ERR_NOT_CONNECTED;
    }
    control(Left{has_left_ ? 1U : 0U});
    worker.peers().retire(*this);
}

namespace {

/// Status of an operation whose end the peer reports.
ucs_status_t status_of_peer(std::int32_t status) {
    if (status >= 0)
        return UCS_OK;
    return status > UCS_ERR_LAST ? static_cast<ucs_status_t>(status) : UCS_ERR_IO_ERROR;
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

/// The ends of operations. False: the peer cannot say that of a request of ours, or of none, at
/// this time.
bool Endpoint::on_ack(Ack message) {
    Request* request = own_request(message.send_id);
    if (request == nullptr || !awaits_ack(*request))
        return false;
    request->is_answered = true;  // it may come before the last part has gone
    if (request->is_outstanding)
        worker.finish(*request, UCS_OK);
    return true;
}

bool Endpoint::on_ats(Ats message) {
    Request* request = own_request(message.send_id);
    if (!is_rndv_of_ours(request))
        return false;
    worker.finish(*request, status_of_peer(message.status));
    return true;
}

bool Endpoint::on_data_end(DataEnd message) {
    Request* request = own_request(message.receive_id);
    if (!Receiver::awaits_data(request, this))
        return false;
    if (message.status >= 0)
        return worker.receiver().rndv_written(*request);
    worker.receiver().rndv_ended(*request, status_of_peer(message.status));
    return true;
}

bool Endpoint::on_canceled(Canceled message) {
    Request* request = own_request(message.send_id);
    if (request == nullptr || !awaits_cancel(*request))
        return false;
    worker.finish(*request, UCS_ERR_CANCELED);
    return true;
}

bool Endpoint::on_flushed(Flushed message) {
    Request* request = own_request(message.flush_id);
    if (request == nullptr || !awaits_flush(*request))
        return false;
    request->is_answered = true;
    check_flushes();
    return true;
}

/// The receiver of a rendezvous asks for its data.
bool Endpoint::on_cts(Cts message) {
    Request* request = own_request(message.send_id);
    const bool is_there =
        request != nullptr && request->kind == RequestKind::kSend && request->is_outstanding;
    if (!is_there) {  // nobody waits for what is not there
        control(DataEnd{.receive_id = message.receive_id, .status = UCS_ERR_CANCELED});
        return true;
    }
    if (!awaits_receiver(request) || message.receive_id == 0 || message.bytes == 0 ||
        message.bytes > request->buffer.length)
        return false;
    send_data(*request, message.receive_id, message.bytes);
    return true;
}

/// Messages that end operations, or move their data on. False: it fits none.
bool Endpoint::on_operation(const Control& message) {
    switch (message.operation()) {
        case ControlOp::kAck:
            return on_ack(message.as<Ack>());
        case ControlOp::kAts:
            return on_ats(message.as<Ats>());
        case ControlOp::kDataEnd:
            return on_data_end(message.as<DataEnd>());
        case ControlOp::kCanceled:
            return on_canceled(message.as<Canceled>());
        case ControlOp::kFlushed:
            return on_flushed(message.as<Flushed>());
        default:
            return on_cts(message.as<Cts>());
    }
}

void Endpoint::on_reset(Reset message) {
    worker.peers().connection_is_over(
        *this, message.connection,
        message.is_in_order == 1 ? UCS_ERR_NOT_CONNECTED : UCS_ERR_CONNECTION_RESET);
}

void Endpoint::on_control(const Control& message) {
    if (controls_.size() >= kControlsMax) {
        TW_LOG_WARN("endpoint to worker %016lx ends: its peer has %zu answers to take, and asks on",
                    worker_id, controls_.size());
        return fail(UCS_ERR_EXCEEDS_LIMIT);
    }
    switch (message.operation()) {
        case ControlOp::kAck:
        case ControlOp::kAts:
        case ControlOp::kDataEnd:
        case ControlOp::kCanceled:
        case ControlOp::kFlushed:
        case ControlOp::kCts:
            if (!on_operation(message))
                worker.count(WorkerCounter::kGarbage);
            break;
        case ControlOp::kCancel:
            if (const auto [send_id] = message.as<Cancel>();
                worker.matches().withdraw(*this, send_id))
                control(Canceled{send_id});
            break;
        case ControlOp::kFlush:
            peer_may_go = message.as<Flush>().is_close == 1;
            control(Flushed{message.as<Flush>().flush_id});
            break;
        case ControlOp::kPauseEager:
            eager_is_paused_ = true;
            break;
        case ControlOp::kResumeEager:
            eager_is_paused_ = false;
            break;
        case ControlOp::kPause:
            is_paused_ = true;
            break;
        case ControlOp::kResume:
            is_paused_ = false;
            worker.count_event();
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
            on_left(message.as<Left>().is_gone != 0);
            break;
        case ControlOp::kReset:
            on_reset(message.as<Reset>());
            break;
        case ControlOp::kLane:
            if (DeviceTags* tags = worker.device_tags())
                tags->on_lane(*this, message.as<Lane>().rail);
            break;
        case ControlOp::kDown:
            if (stripes_ != nullptr)
                stripes_->on_down(message.as<Down>());
            break;
    }
    if (state_ == EpState::kReady)
        drain_and_arm();
}

// ---- Flush and close

tw_status_t Endpoint::flush(RequestKind kind, const tw_op_t* op, tw_request_h* request_p) {
    if (failure_ != UCS_OK && kind == RequestKind::kFlush)
        return static_cast<tw_status_t>(failure_);
    Request* request = worker.requests().make(kind, op, request_p);
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
    return worker.requests().answer(*request, op, request_p);
}

ucs_status_t Endpoint::start_flush(Request& request) {
    if (request.id == 0 && worker.requests().assign_id(request) == 0)
        return UCS_ERR_NO_MEMORY;
    const bool is_close = request.kind == RequestKind::kClose;
    const ucs_status_t status = send_now(Control::of(Flush{request.id, is_close ? 1U : 0U}));
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
        control(Cancel{request.id});
    }
}

}  // namespace tagwire::proto
