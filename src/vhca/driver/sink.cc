// SPDX-License-Identifier: BSD-3-Clause
// Events of the device, to the pipes of the contexts that they are for.
#include "vhca/driver/commands.hpp"
#include "vhca/driver/objects.hpp"

namespace tagwire::vhca::driver {
namespace {

template <typename T>
void tell(T& object, ibv_event_type type) {
    if (object.is_devx) {
        return;
    }
    const ib_uverbs_async_event_desc event{.element = object.user_handle,
                                           .event_type = static_cast<std::uint32_t>(type),
                                           .reserved = 0};
    ++object.async_events;
    object.context->async_pipe->push(std::as_bytes(std::span(&event, 1)));
}

class DriverSink final : public EventSink {
  public:
    void cq_event(Cq& /*cq*/) override {}  // its ring announces by itself
    void qp_event(ibv_event_type type, Qp& qp) override {
        QpObject& object = *static_cast<QpObject*>(qp.user());
        if (type == IBV_EVENT_QP_LAST_WQE_REACHED && object.last_receive_pipe != nullptr) {
            object.last_receive_pipe->push(std::as_bytes(std::span(&object.user_handle, 1)));
        }
        tell(object, type);
    }
    void srq_event(ibv_event_type type, Srq& srq) override {
        tell(*static_cast<SrqObject*>(srq.user()), type);
    }
    void cq_error(Cq& cq) override { tell(*static_cast<CqObject*>(cq.user()), IBV_EVENT_CQ_ERR); }
};

}  // namespace

EventSink& driver_sink() {
    static DriverSink sink;
    return sink;
}

// As many events as were pushed, less those that nobody read, which are taken back.
std::uint32_t Context::retire_events(std::uint64_t user_handle, std::uint32_t pushed,
                                     bool (*is_kind)(std::uint32_t)) {
    if (pushed == 0) {
        return 0;
    }
    const std::size_t unread = async_pipe->take_back([&](std::span<const std::byte> bytes) {
        ib_uverbs_async_event_desc event;
        std::memcpy(&event, bytes.data(), sizeof event);
        return event.element == user_handle && is_kind(event.event_type);
    });
    return pushed - static_cast<std::uint32_t>(std::min<std::size_t>(unread, pushed));
}

}  // namespace tagwire::vhca::driver
