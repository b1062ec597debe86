// SPDX-License-Identifier: BSD-3-Clause
// Objects that fail without a request's fault, and incidents of the port and the whole device.
#include <cerrno>

#include "vhca/core/device_impl.hpp"

namespace tagwire::vhca {

template <typename F>
void Device::Impl::fail_queue_pairs(const F& fails) {
    qps.for_each([&](QueuePair& qp) {
        if (!qp.dc().is_owned() && qp.state() != IBV_QPS_RESET && fails(qp)) {
            qp.enter_error(false);
            qp.report(IBV_EVENT_QP_FATAL);
        }
    });
}

void Device::Impl::settle_broken() {
    while (!broken.empty()) {
        CompletionQueue* cq = broken.back();
        broken.pop_back();
        sink.cq_error(*cq);
        fail_queue_pairs([cq](const QueuePair& qp) { return qp.uses(*cq); });
    }
}

void Device::Impl::fail_srqs() {
    srqs.for_each([this](SharedReceiveQueue& srq) { late.tell(IBV_EVENT_SRQ_ERR, srq, now); });
    fail_queue_pairs([](const QueuePair& qp) { return qp.config.srq != nullptr; });
    settle();
}

void Device::Impl::set_link(bool is_up) {
    if (is_up == !wire.is_cut())
        return;
    wire.cut(!is_up);
    sink.device_event(is_up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR, 1);
}

void Device::Impl::die() {
    is_dead = true;
    wire.cut(true);
    late.stop();
    for (const auto& cq : cqs)
        cq->stop();
    sink.device_event(IBV_EVENT_DEVICE_FATAL, 0);
}

int Device::Impl::happen(Incident incident) {
    if (is_dead)
        return EIO;
    switch (incident) {
        case Incident::kDeviceFatal:
            die();
            break;
        case Incident::kPortDown:
        case Incident::kPortUp:
            set_link(incident == Incident::kPortUp);
            break;
        case Incident::kLidChange:
            sink.device_event(IBV_EVENT_LID_CHANGE, 1);
            break;
        case Incident::kGidChange:
            sink.device_event(IBV_EVENT_GID_CHANGE, 1);
            break;
        case Incident::kPkeyChange:
            sink.device_event(IBV_EVENT_PKEY_CHANGE, 1);
            break;
        case Incident::kSmChange:
            sink.device_event(IBV_EVENT_SM_CHANGE, 1);
            break;
        case Incident::kClientReregister:
            sink.device_event(IBV_EVENT_CLIENT_REREGISTER, 1);
            break;
        case Incident::kSrqError:
            fail_srqs();
            break;
    }
    return 0;
}

int Device::happen(Incident incident, Time now) {
    impl_->now = now;
    return impl_->happen(incident);
}

bool Device::is_dead() const {
    return impl_->is_dead;
}

bool Device::is_link_up() const {
    return !impl_->wire.is_cut();
}

}  // namespace tagwire::vhca
