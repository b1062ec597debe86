// SPDX-License-Identifier: BSD-3-Clause
// Control messages of the peer.
#include <cstddef>

#include "protocols/offload/device_tags.hpp"
#include "protocols/transfer/stripe.hpp"
#include "protocols/wire/control_message.hpp"
#include "protocols/wire/limits.hpp"
#include "protocols/worker/endpoint.hpp"
#include "protocols/worker/peer_table.hpp"
#include "protocols/worker/worker_core.hpp"
#include "ucs/log/log.hpp"

namespace tagwire::proto {

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

/// The request of the endpoint that a message names; nullptr: there is none.
Request* own_request(const Endpoint& ep, std::uint32_t request_id) {
    Request* request = ep.worker.requests().find(request_id);
    return request != nullptr && request->ep == &ep ? request : nullptr;
}

/// The ends of operations. False: the peer cannot say that of a request of ours, or of none, at
/// this time.
bool on_ack(Endpoint& ep, Ack message) {
    Request* request = own_request(ep, message.send_id);
    if (request == nullptr || !awaits_ack(*request))
        return false;
    request->is_answered = true;  // it may come before the last part has gone
    if (request->is_outstanding)
        ep.worker.finish(*request, UCS_OK);
    return true;
}

bool on_ats(Endpoint& ep, Ats message) {
    Request* request = own_request(ep, message.send_id);
    if (!ep.rndv().may_end(request))
        return false;
    ep.worker.finish(*request, status_of_peer(message.status));
    return true;
}

bool on_data_end(Endpoint& ep, DataEnd message) {
    return ep.rndv_receiver().on_data_end(own_request(ep, message.receive_id),
                                          status_of_peer(message.status));
}

bool on_canceled(Endpoint& ep, Canceled message) {
    Request* request = own_request(ep, message.send_id);
    if (request == nullptr || !awaits_cancel(*request))
        return false;
    ep.worker.finish(*request, UCS_ERR_CANCELED);
    return true;
}

bool on_flushed(Endpoint& ep, Flushed message) {
    Request* request = own_request(ep, message.flush_id);
    if (request != nullptr && request->kind == RequestKind::kRma)
        return ep.rma.on_flushed(*request);
    if (request == nullptr || !awaits_flush(*request))
        return false;
    ep.flushes().on_flushed(*request);
    return true;
}

/// Messages that end operations, or move their data on. False: it fits none.
bool on_operation(Endpoint& ep, const Control& message) {
    switch (message.operation()) {
        case ControlOp::kAck:
            return on_ack(ep, message.as<Ack>());
        case ControlOp::kAts:
            return on_ats(ep, message.as<Ats>());
        case ControlOp::kDataEnd:
            return on_data_end(ep, message.as<DataEnd>());
        case ControlOp::kCanceled:
            return on_canceled(ep, message.as<Canceled>());
        case ControlOp::kFlushed:
            return on_flushed(ep, message.as<Flushed>());
        case ControlOp::kRmaReply:
            return ep.rma.on_reply(message.as<RmaReply>(),
                                   own_request(ep, message.as<RmaReply>().op_id));
        default:
            return ep.rndv().on_cts(message.as<Cts>(), own_request(ep, message.as<Cts>().send_id));
    }
}

void on_reset(Endpoint& ep, Reset message) {
    ep.worker.peers().connection_is_over(
        ep, message.connection,
        message.is_in_order == 1 ? UCS_ERR_NOT_CONNECTED : UCS_ERR_CONNECTION_RESET);
}

}  // namespace

void Endpoint::on_control(const Control& message) {
    if (queue_.replies() >= kRepliesMax) {
        TW_LOG_WARN(
            "endpoint to worker %016lx fails: its peer receives no replies (%zu wait) but asks on",
            worker_id, queue_.replies());
        return closing_.end(UCS_ERR_EXCEEDS_LIMIT);
    }
    switch (message.operation()) {
        case ControlOp::kAck:
        case ControlOp::kAts:
        case ControlOp::kDataEnd:
        case ControlOp::kCanceled:
        case ControlOp::kFlushed:
        case ControlOp::kCts:
        case ControlOp::kRmaReply:
            if (!on_operation(*this, message))
                worker.count(WorkerCounter::kGarbage);
            break;
        case ControlOp::kCancel:
            if (const auto [send_id] = message.as<Cancel>();
                worker.matches().withdraw(*this, send_id))
                control(Canceled{send_id});
            break;
        case ControlOp::kFlush:
            closing_.on_flush(message.as<Flush>().is_close == 1);
            control(Flushed{message.as<Flush>().flush_id});
            break;
        case ControlOp::kPauseEager:
            lane_.eager_is_paused = true;
            break;
        case ControlOp::kResumeEager:
            lane_.eager_is_paused = false;
            break;
        case ControlOp::kPause:
            lane_.is_paused = true;
            break;
        case ControlOp::kResume:
            lane_.is_paused = false;
            worker.count_event();
            break;
        case ControlOp::kProbe:
            control(Probed{});
            break;
        case ControlOp::kProbed:
            if (window_.on_probed())
                worker.count_event();
            else
                worker.count(WorkerCounter::kGarbage);
            break;
        case ControlOp::kBye:
            closing_.on_bye();
            break;
        case ControlOp::kBack:
            closing_.on_back();
            break;
        case ControlOp::kLeave:
            closing_.on_leave();
            break;
        case ControlOp::kLeft:
            closing_.on_left(message.as<Left>().is_gone != 0);
            break;
        case ControlOp::kReset:
            on_reset(*this, message.as<Reset>());
            break;
        case ControlOp::kLane:
            if (DeviceTags* tags = worker.device_tags())
                tags->on_lane(*this, message.as<Lane>().rail);
            break;
        case ControlOp::kAdvice:
            if (!rndv_.on_advice(message.as<Advice>()))
                worker.count(WorkerCounter::kGarbage);
            break;
        case ControlOp::kDown:
            if (stripes_ != nullptr)
                stripes_->on_down(message.as<Down>());
            break;
    }
    if (lane_.state == EpState::kReady)
        queue_.run();
}

}  // namespace tagwire::proto
