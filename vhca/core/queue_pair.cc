// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/core/queue_pair.hpp"

#include <cerrno>
#include <new>

#include "vhca/core/device_impl.hpp"

namespace tagwire::vhca {

QueuePair::QueuePair(Device::Impl& device_, const QpConfig& config_, QueuePair* owner)
    : Qp(config_.user),
      device(device_),
      config(config_),
      context_(config_.type),
      dc_(*this, owner),
      requester_(*this),
      responder_(*this) {
    if (config.srq != nullptr) {
        config.cap.max_recv_wr = config.cap.max_recv_sge = 0;
        matching_ = static_cast<SharedReceiveQueue*>(config.srq)->matching();
    }
    if ((matching_ != nullptr && !config.sends_beside_device) || config.dc.kind == DcKind::kTarget)
        config.cap = {};
    reset();
}

QueuePair::~QueuePair() = default;

int QueuePair::allocate() {
    if (const int error = dc_.allocate(); error != 0)
        return error;
    const int error = requester_.queue().allocate();
    return error != 0 ? error : responder_.allocate();
}

void QueuePair::set_number(std::uint32_t number) {
    table_number_ = number;
    context_.set_number(config.dc.kind == DcKind::kTarget ? 0 : number);
}

void QueuePair::query(ibv_qp_attr* attr) const {
    *attr = context_.attr();
    attr->qp_state = state_;
    attr->cur_qp_state = state_;
    attr->cap = config.cap;
    attr->sq_draining = state_ == IBV_QPS_SQD && !requester_.is_idle() ? 1 : 0;
}

int QueuePair::post_send(const SendWork& work, Time now) {
    if (const int error = enqueue_send(work); error != 0) [[unlikely]]
        return error;
    ring(now);
    return 0;
}

int QueuePair::enqueue_send(const SendWork& work) {
    const bool is_of_device = matching_ != nullptr && !config.sends_beside_device;
    if (state_ < IBV_QPS_RTS || is_of_device) [[unlikely]]
        return EINVAL;
    DcInitiator* streams = dc_.streams();
    return streams != nullptr ? streams->enqueue(work) : requester_.queue().enqueue(work);
}

void QueuePair::ring(Time now) {
    device.now = now;
    if (device.is_dead) [[unlikely]]
        return;
    if (dc_.streams() != nullptr) [[unlikely]] {
        dc_.streams()->ring(now);
        return;
    }
    requester_.queue().ring();
    if (state_ == IBV_QPS_ERR || state_ == IBV_QPS_SQE) [[unlikely]]
        requester_.flush();
    else if (!requester_.transmit())
        device.schedule(*this);
    device.settle();
}

void QueuePair::cancel_enqueued() {
    if (DcInitiator* streams = dc_.streams(); streams != nullptr)
        streams->cancel_enqueued();
    else
        requester_.queue().cancel_enqueued();
}

int QueuePair::reset_stream(std::uint16_t stream) {
    if (device.is_dead)
        return EIO;
    DcInitiator* streams = dc_.streams();
    return streams != nullptr && state_ == IBV_QPS_RTS ? streams->reset_stream(stream) : EINVAL;
}

int QueuePair::post_recv(const RecvWork& work) {
    if (state_ == IBV_QPS_RESET || config.srq != nullptr || config.dc.kind != DcKind::kNone)
        [[unlikely]] {
        return EINVAL;
    }
    const int error = responder_.post(work);
    if (error == 0 && state_ == IBV_QPS_ERR) [[unlikely]] {
        responder_.flush();
        device.settle();
    }
    return error;
}

void QueuePair::flush_source(Time now) {
    if (state_ == IBV_QPS_ERR) {
        device.now = now;
        responder_.flush();
        device.settle();
    }
}

bool QueuePair::is_for_us(Route from, const Packet& packet) const {
    if (packet.transport() != context_.transport() || packet.pkey != kDefaultPkey ||
        context_.transport() == kTransportDc) {
        return false;
    }
    const bool receives = state_ >= IBV_QPS_RTR && state_ <= IBV_QPS_SQE;
    return receives && (config.type == IBV_QPT_UD || from == context_.route());
}

void QueuePair::receive(Route from, Packet& packet) {
    if (!is_for_us(from, packet)) [[unlikely]] {
        if (config.dc.kind != DcKind::kNone && packet.transport() == kTransportDc) {
            dc_.receive(from, packet);
            return;
        }
        ++device.counters.misaddressed;
        return;
    }
    if (packet.has(kIsResponse)) {
        requester_.receive(packet);
        return;
    }
    if (state_ == IBV_QPS_RTR && !communicates_ && config.type != IBV_QPT_UD) [[unlikely]] {
        communicates_ = true;
        report(IBV_EVENT_COMM_EST);
    }
    responder_.receive(packet, from);
}

bool QueuePair::run() {
    const bool is_replied = responder_.replies().transmit();
    return requester_.transmit() && is_replied;
}

Time QueuePair::run_timer() {
    return requester_.run_timer();
}

void QueuePair::report(ibv_event_type type) {
    device.late.tell(type, dc_.owner(), device.now);
}

bool QueuePair::uses(const CompletionQueue& cq) const {
    return config.send_cq == &cq || config.recv_cq == &cq ||
           (matching_ != nullptr && &matching_->cq() == &cq);
}

void QueuePair::enter_error(bool keep_replies) {
    if (state_ == IBV_QPS_ERR)
        return;
    state_ = IBV_QPS_ERR;
    if (config.dc.kind != DcKind::kNone) [[unlikely]]
        dc_.enter_error();
    requester_.flush();
    responder_.flush();
    if (!keep_replies)
        responder_.replies().drop();
    if (config.srq != nullptr && !dc_.is_owned())
        report(IBV_EVENT_QP_LAST_WQE_REACHED);
}

void QueuePair::enter_send_error() {
    state_ = IBV_QPS_SQE;
    requester_.flush();
}

void QueuePair::note_drained() {
    if (tells_drained_ && requester_.is_idle()) {
        tells_drained_ = false;
        report(IBV_EVENT_SQ_DRAINED);
    }
}

void QueuePair::reset() {
    if (state_ != IBV_QPS_RESET && config.dc.kind == DcKind::kInitiator)
        requester_.session().close();
    state_ = IBV_QPS_RESET;
    device.unschedule(*this);
    requester_.reset();
    responder_.reset();
    context_.reset(device.config.active_mtu);
    communicates_ = tells_drained_ = false;
}

void QueuePair::retire() {
    dc_.retire();
    reset();
    static_cast<CompletionQueue*>(config.send_cq)->purge(*this);
    static_cast<CompletionQueue*>(config.recv_cq)->purge(*this);
}

// ---- For the owner of an owned queue pair ------------------------------------------------------

void QueuePair::adopt(std::uint32_t number, ibv_qp_state state, const ibv_qp_attr& attr) {
    context_.set_number(number);
    context_.copy(attr);
    state_ = state;
}

void QueuePair::close_session() {
    device.unschedule(*this);
    responder_.abandon();
    responder_.reset();
    state_ = IBV_QPS_RESET;
}

}  // namespace tagwire::vhca
