// SPDX-License-Identifier: BSD-3-Clause
#include "tools/link.hpp"

#include <poll.h>
#include <sched.h>

#include <uct/api/tagwire_uct.h>

#include "cli/failure.hpp"

namespace tagwire::tools {
namespace {

constexpr int kSleepMs = 1000;

bool has_events(const uct_iface_attr_t& attr) {
    constexpr std::uint64_t kNeeded = UCT_IFACE_FLAG_EVENT_FD | UCT_IFACE_FLAG_EVENT_RECV;
    return (attr.cap.event_flags & kNeeded) == kNeeded;
}

unsigned armable_events(const uct_iface_attr_t& attr) {
    unsigned events = UCT_EVENT_RECV;
    if ((attr.cap.event_flags & UCT_IFACE_FLAG_EVENT_SEND_COMP) != 0)
        events |= UCT_EVENT_SEND_COMP;
    return events;
}

}  // namespace

Link::Link(Side side, const Setup& setup, Channel* channel)
    : side_(side),
      setup_(setup),
      channel_(channel),
      resource_(find_resource(setup.transport, setup.device, named_by(setup.transport))),
      md_(open_md(resource_.component, resource_.md_name)) {
    check(uct_md_query(md_.get(), &md_attr_), "uct_md_query");
    check(ucs_async_context_create(UCS_ASYNC_MODE_POLL, &objects_.async),
          "ucs_async_context_create");
    check(uct_worker_create(objects_.async, UCS_THREAD_MODE_SINGLE, &objects_.worker),
          "uct_worker_create");
    const std::size_t count = side == Side::kDriver ? 1 : setup.open_peers();
    for (std::size_t i = 0; i < count; ++i)
        open_interface(i);
    check(uct_iface_query(objects_.interfaces.front(), &attr_), "uct_iface_query");
    if (setup_.wait == Wait::kSleep && !has_events(attr_)) {
        throw UsageError(text("--wait sleep: transport %s raises no events for what arrives",
                              resource_.transport.c_str()));
    }
    objects_.endpoints.reserve(setup_.peers);
    if (!connects_to_interface())
        create_endpoints();
}

Link::Objects::~Objects() {
    for (const uct_ep_h ep : endpoints)
        uct_ep_destroy(ep);
    for (const uct_iface_h iface : interfaces)
        uct_iface_close(iface);
    if (worker != nullptr)
        uct_worker_destroy(worker);
    if (async != nullptr)
        ucs_async_context_destroy(async);
}

void Link::open_interface(std::size_t index) {
    uct_iface_config_t* config = nullptr;
    check(
        uct_md_iface_config_read(md_.get(), resource_.transport.c_str(), nullptr, nullptr, &config),
        "uct_md_iface_config_read");
    uct_iface_params_t params{};
    params.field_mask = UCT_IFACE_PARAM_FIELD_OPEN_MODE | UCT_IFACE_PARAM_FIELD_DEVICE |
                        UCT_IFACE_PARAM_FIELD_ERR_HANDLER | UCT_IFACE_PARAM_FIELD_ERR_HANDLER_ARG |
                        UCT_IFACE_PARAM_FIELD_ERR_HANDLER_FLAGS |
                        UCT_IFACE_PARAM_FIELD_HW_TM_EAGER_CB |
                        UCT_IFACE_PARAM_FIELD_HW_TM_EAGER_ARG |
                        UCT_IFACE_PARAM_FIELD_HW_TM_RNDV_CB | UCT_IFACE_PARAM_FIELD_HW_TM_RNDV_ARG;
    params.open_mode = UCT_IFACE_OPEN_MODE_DEVICE;
    params.mode.device.tl_name = resource_.transport.c_str();
    params.mode.device.dev_name = resource_.device.c_str();
    params.err_handler = &Link::on_error;
    params.err_handler_arg = this;
    params.eager_cb = &Link::on_unexpected_eager;
    params.eager_arg = this;
    params.rndv_cb = &Link::on_unexpected_rndv;
    params.rndv_arg = this;
    uct_iface_h iface = nullptr;
    const ucs_status_t status = uct_iface_open(md_.get(), objects_.worker, &params, config, &iface);
    uct_config_release(config);
    check(status, text("cannot open interface %zu of %s/%s", index, resource_.transport.c_str(),
                       resource_.device.c_str())
                      .c_str());
    objects_.interfaces.push_back(iface);
    uct_iface_progress_enable(iface, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
}

void Link::set_am_handler(std::size_t index, std::uint8_t id, uct_am_callback_t handler,
                          void* arg) {
    check(uct_iface_set_am_handler(objects_.interfaces[index], id, handler, arg, 0),
          "uct_iface_set_am_handler");
}

void Link::check_alive() const {
    if (failed_ != UCS_OK)
        throw Failure(text("the connection failed: %s", ucs_status_string(failed_)));
    if (channel_->stalled())
        throw Failure("the peer stopped in the middle of a measurement");
}

void Link::idle() {
    switch (setup_.wait) {
        case Wait::kSpin:
            idle_budget_ = kSpinsBetweenChecks;
            check_alive();
            return;
        case Wait::kYield:
            idle_budget_ = 1;
            sched_yield();
            if (++idle_rounds_ % kYieldsBetweenChecks == 0)
                check_alive();
            return;
        case Wait::kSleep:
            idle_budget_ = 1;
            sleep();
            return;
    }
}

void Link::sleep() {
    std::vector<pollfd> fds;
    for (const uct_iface_h iface : objects_.interfaces) {
        const ucs_status_t status = uct_iface_event_arm(iface, armable_events(attr_));
        if (status == UCS_ERR_BUSY)
            return;
        check(status, "uct_iface_event_arm");
        int fd = -1;
        check(uct_iface_event_fd_get(iface, &fd), "uct_iface_event_fd_get");
        fds.push_back({fd, POLLIN, 0});
    }
    if (poll(fds.data(), fds.size(), kSleepMs) == 0)
        check_alive();
}

ucs_status_t Link::on_error(void* arg, uct_ep_h, ucs_status_t status) {
    static_cast<Link*>(arg)->failed_ = status;
    return UCS_OK;
}

ucs_status_t Link::on_unexpected_eager(void* arg, void* data, std::size_t length, unsigned flags,
                                       uct_tag_t tag, std::uint64_t immediate, void** context) {
    auto* link = static_cast<Link*>(arg);
    if (link->unexpected_ == nullptr) {
        ++link->stray_;
        return UCS_OK;
    }
    return link->unexpected_(link->unexpected_arg_, data, length, flags, tag, immediate, context);
}

ucs_status_t Link::on_unexpected_rndv(void* arg, unsigned, std::uint64_t, const void*, unsigned,
                                      std::uint64_t, std::size_t, const void*) {
    ++static_cast<Link*>(arg)->stray_;
    return UCS_OK;
}

}  // namespace tagwire::tools
