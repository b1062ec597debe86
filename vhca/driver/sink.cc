// SPDX-License-Identifier: BSD-3-Clause
// Events of the device, to the pipes of the contexts that they are for.
#include <optional>

#include "vhca/driver/commands.hpp"
#include "vhca/driver/objects.hpp"

namespace tagwire::vhca::driver {
namespace {

template <typename T>
void tell_program(T& object, ibv_event_type type) {
    if (object.is_devx)
        return;
    const ib_uverbs_async_event_desc event{.element = object.user_handle,
                                           .event_type = static_cast<std::uint32_t>(type),
                                           .reserved = 0};
    ++object.async_events;
    object.context->async_pipe->push(std::as_bytes(std::span(&event, 1)));
}

/// False: event queues have no such event.
bool devx_event_of(ibv_event_type type, DevxEvent* event_p) {
    switch (type) {
        case IBV_EVENT_COMM_EST:
            *event_p = DevxEvent::kEstablished;
            return true;
        case IBV_EVENT_SQ_DRAINED:
            *event_p = DevxEvent::kSendsDrained;
            return true;
        case IBV_EVENT_QP_FATAL:
            *event_p = DevxEvent::kFatal;
            return true;
        case IBV_EVENT_QP_REQ_ERR:
            *event_p = DevxEvent::kInvalidRequest;
            return true;
        case IBV_EVENT_QP_ACCESS_ERR:
            *event_p = DevxEvent::kAccessError;
            return true;
        case IBV_EVENT_QP_LAST_WQE_REACHED:
            *event_p = DevxEvent::kLastReceive;
            return true;
        case IBV_EVENT_SRQ_LIMIT_REACHED:
            *event_p = DevxEvent::kReceiveLimit;
            return true;
        case IBV_EVENT_CQ_ERR:
            *event_p = DevxEvent::kCqError;
            return true;
        default:
            return false;
    }
}

template <typename T>
void tell_all(T& object, ibv_event_type type, std::uint32_t number) {
    constexpr std::uint8_t kOverrun = 1;  // the one error that a CQ has here
    DevxEvent event;
    if (!object.subscriptions.empty() && devx_event_of(type, &event))
        tell(object.subscriptions, event, number, type == IBV_EVENT_CQ_ERR ? kOverrun : 0);
    tell_program(object, type);
}

class DriverSink final : public EventSink {
  public:
    void cq_event(Cq& /*cq*/) override {}  // its ring announces by itself
    void qp_event(ibv_event_type type, Qp& qp) override {
        tell_all(*static_cast<QpObject*>(qp.user()), type, qp.number());
    }
    void srq_event(ibv_event_type type, Srq& srq) override {
        tell_all(*static_cast<SrqObject*>(srq.user()), type, srq.number());
    }
    void cq_error(Cq& cq) override {
        CqObject& object = *static_cast<CqObject*>(cq.user());
        tell_all(object, IBV_EVENT_CQ_ERR, object.ring->number());
    }
};

/// The numbers that event queues have for changes of a port.
std::optional<std::uint8_t> port_change_of(ibv_event_type type) {
    switch (type) {
        case IBV_EVENT_PORT_ERR:
            return 1;
        case IBV_EVENT_PORT_ACTIVE:
            return 4;
        case IBV_EVENT_LID_CHANGE:
            return 6;
        case IBV_EVENT_PKEY_CHANGE:
            return 7;
        case IBV_EVENT_GID_CHANGE:
            return 8;
        case IBV_EVENT_CLIENT_REREGISTER:
            return 9;
        default:
            return std::nullopt;
    }
}

}  // namespace

void Context::device_event(ibv_event_type type, unsigned port) {
    if (const auto change = port_change_of(type))
        tell_port_change(port_subscriptions, port, *change);
    if (async_pipe == nullptr)
        return;
    const ib_uverbs_async_event_desc event{
        .element = port, .event_type = static_cast<std::uint32_t>(type), .reserved = 0};
    async_pipe->push(std::as_bytes(std::span(&event, 1)));
}

EventSink& driver_sink() {
    static DriverSink sink;
    return sink;
}

// As many events as were pushed, less those that nobody read, which are taken back.
std::uint32_t Context::retire_events(std::uint64_t user_handle, std::uint32_t pushed,
                                     bool (*is_kind)(std::uint32_t)) {
    if (pushed == 0)
        return 0;
    const std::size_t unread = async_pipe->take_back([&](std::span<const std::byte> bytes) {
        ib_uverbs_async_event_desc event;
        std::memcpy(&event, bytes.data(), sizeof event);
        return event.element == user_handle && is_kind(event.event_type);
    });
    return pushed - static_cast<std::uint32_t>(std::min<std::size_t>(unread, pushed));
}

}  // namespace tagwire::vhca::driver
