// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/core/queue_pair.hpp"

#include <cerrno>
#include <new>

#include "vhca/core/device_impl.hpp"

namespace tagwire::vhca {

namespace {

unsigned transport_of(ibv_qp_type type) {
    switch (type) {
        case IBV_QPT_RC:
            return kTransportRc;
        case IBV_QPT_UC:
            return kTransportUc;
        case IBV_QPT_DRIVER:
            return kTransportDc;
        default:
            return kTransportUd;
    }
}

}  // namespace

QueuePair::QueuePair(Device::Impl& device_, const QpConfig& config_, QueuePair* owner)
    : Qp(config_.user),
      device(device_),
      config(config_),
      transport_(static_cast<std::uint8_t>(transport_of(config_.type))),
      is_reliable_(config_.type == IBV_QPT_RC || config_.type == IBV_QPT_DRIVER),
      owner_(owner == nullptr ? this : owner),
      requester_(*this),
      responder_(*this) {
    if (config.srq != nullptr) {
        config.cap.max_recv_wr = config.cap.max_recv_sge = 0;
        matching_ = static_cast<SharedReceiveQueue*>(config.srq)->matching();
    }
    if ((matching_ != nullptr && !config.sends_beside_device) || is_dct())
        config.cap = {};
    reset();
}

QueuePair::~QueuePair() = default;

int QueuePair::allocate() {
    if (is_dct())
        target_.reset(new (std::nothrow) DcTarget(*this));
    else if (config.dc.has_streams)
        initiator_.reset(new (std::nothrow) DcInitiator(*this));
    if ((is_dct() && target_ == nullptr) || (config.dc.has_streams && initiator_ == nullptr))
        return ENOMEM;
    const int error = requester_.queue().allocate();
    return error != 0 ? error : responder_.allocate();
}

void QueuePair::query(ibv_qp_attr* attr) const {
    *attr = attr_;
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
    return has_streams() ? initiator_->enqueue(work) : requester_.queue().enqueue(work);
}

void QueuePair::ring(Time now) {
    device.now = now;
    if (has_streams()) [[unlikely]] {
        initiator_->ring(now);
        return;
    }
    requester_.queue().ring();
    if (state_ == IBV_QPS_ERR || state_ == IBV_QPS_SQE) [[unlikely]]
        requester_.flush();
    else if (!requester_.transmit())
        device.schedule(*this);
    device.settle();
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
    if (packet.transport() != transport_of(config.type) || packet.pkey != kDefaultPkey ||
        transport_ == kTransportDc) {
        return false;
    }
    const bool receives = state_ >= IBV_QPS_RTR && state_ <= IBV_QPS_SQE;
    return receives && (config.type == IBV_QPT_UD || from == route_);
}

void QueuePair::receive(Route from, Packet& packet) {
    if (!is_for_us(from, packet)) [[unlikely]] {
        if (config.dc.kind != DcKind::kNone && packet.transport() == kTransportDc) {
            receive_dc(from, packet);
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
    device.late.tell(type, *owner_, device.now);
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
        enter_dc_error();
    requester_.flush();
    responder_.flush();
    if (!keep_replies)
        responder_.replies().drop();
    if (config.srq != nullptr && owner_ == this)
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
    if (state_ != IBV_QPS_RESET && is_dci())
        requester_.session().close();
    state_ = IBV_QPS_RESET;
    device.unschedule(*this);
    requester_.reset();
    responder_.reset();
    attr_ = {};
    attr_.path_mtu = device.config.active_mtu;
    mtu_bytes_ = 128U << device.config.active_mtu;
    communicates_ = tells_drained_ = false;
}

void QueuePair::retire() {
    if (has_streams())
        initiator_->reset();
    if (target_ != nullptr)
        target_->close_all();
    reset();
    static_cast<CompletionQueue*>(config.send_cq)->purge(*this);
    static_cast<CompletionQueue*>(config.recv_cq)->purge(*this);
}

}  // namespace tagwire::vhca
