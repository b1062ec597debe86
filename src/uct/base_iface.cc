// SPDX-License-Identifier: BSD-3-Clause
#include "uct/base_iface.hpp"

#include "ucs/log/log.hpp"

namespace tagwire::uct {

namespace {

constexpr unsigned kProgressDirections = UCT_PROGRESS_SEND | UCT_PROGRESS_RECV;

}  // namespace

BaseIface::BaseIface(Md& md, Worker& worker, const uct_iface_ops_t& operations,
                     ucs_callback_t progress)
    : uct_iface_t{operations}, md_(md), worker_(worker), progress_(progress) {
    for (std::size_t id = 0; id < am_.size(); ++id)
        am_[id] = {&BaseIface::drop_am, &am_[id], static_cast<std::uint8_t>(id), false};
    ++md_.iface_count_;
    worker_.add(*this);
}

BaseIface::~BaseIface() {
    if (progress_id_ != UCS_CALLBACKQ_ID_NULL)
        worker_.remove_progress(progress_id_);
    worker_.remove(*this);
    --md_.iface_count_;
}

ucs_status_t BaseIface::take_params(const uct_iface_params_t& given) {
    return check_iface_params(given, &params_);
}

void BaseIface::progress_enable(unsigned flags) {
    const bool was_idle = progress_flags_ == 0;
    progress_flags_ |= flags & kProgressDirections;
    if (!was_idle || progress_flags_ == 0)
        return;
    const bool is_shared = (flags & UCT_PROGRESS_THREAD_SAFE) != 0;
    progress_id_ = is_shared ? worker_.add_progress_safe(progress_, this)
                             : worker_.add_progress(progress_, this);
    worker_.choose_counting();
}

void BaseIface::progress_disable(unsigned flags) {
    progress_flags_ &= ~(flags & kProgressDirections);
    if (progress_flags_ != 0 || progress_id_ == UCS_CALLBACKQ_ID_NULL)
        return;
    if ((flags & UCT_PROGRESS_THREAD_SAFE) != 0)
        worker_.remove_progress_safe(progress_id_);
    else
        worker_.remove_progress(progress_id_);
    progress_id_ = UCS_CALLBACKQ_ID_NULL;
    worker_.choose_counting();
}

int BaseIface::is_reachable(const uct_device_addr_t* dev_addr, const uct_iface_addr_t* iface_addr) {
    return reachable(dev_addr, iface_addr, nullptr) ? 1 : 0;
}

bool BaseIface::addresses_given(const uct_device_addr_t* dev_addr,
                                const uct_iface_addr_t* iface_addr) {
    if (dev_addr != nullptr && iface_addr != nullptr)
        return true;
    uct_iface_attr_t attr{};
    if (ops.iface_query(this, &attr) != UCS_OK)
        return false;
    return (dev_addr != nullptr || attr.device_addr_len == 0) &&
           (iface_addr != nullptr || attr.iface_addr_len == 0);
}

std::uint64_t BaseIface::latency_ns() {
    constexpr double kNsPerS = 1e9;
    uct_iface_attr_t attr{};
    return ops.iface_query(this, &attr) == UCS_OK
               ? static_cast<std::uint64_t>(attr.latency.c * kNsPerS)
               : 0;
}

void BaseIface::set_am_handler(std::uint8_t id, uct_am_callback_t callback, void* arg) {
    AmHandler& handler = am_[id];
    handler.callback = callback != nullptr ? callback : &BaseIface::drop_am;
    handler.arg = callback != nullptr ? arg : &handler;
    handler.has_warned = false;
}

ucs_status_t BaseIface::drop_am(void* arg, void* /*data*/, std::size_t length, unsigned /*flags*/) {
    auto* handler = static_cast<AmHandler*>(arg);
    if (handler->has_warned)
        return UCS_OK;  // a peer must not be able to fill the log
    handler->has_warned = true;
    TW_LOG_WARN(
        "active message id %u has no handler: messages with this id are dropped (first: %zu bytes)",
        handler->id, length);
    return UCS_OK;
}

void BaseIface::report_failure(uct_ep_h ep, ucs_status_t status) {
    if (params_.err_handler == nullptr) {
        TW_LOG_ERROR("%s/%s: endpoint %p failed: %s (the interface has no error handler)",
                     params_.tl_name.c_str(), params_.dev_name.c_str(), static_cast<void*>(ep),
                     ucs_status_string(status));
        return;
    }
    const ucs_status_t answer = params_.err_handler(params_.err_handler_arg, ep, status);
    if (answer != UCS_OK) {
        TW_LOG_ERROR("%s/%s: endpoint failed: %s; the error handler returned: %s",
                     params_.tl_name.c_str(), params_.dev_name.c_str(), ucs_status_string(status),
                     ucs_status_string(answer));
    }
}

}  // namespace tagwire::uct
