// SPDX-License-Identifier: BSD-3-Clause
// The C API of interfaces: check, convert, call.
#include <uct/api/uct.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "ucs/memory/no_memory.hpp"
#include "uct/base_iface.hpp"
#include "uct/config_bundle.hpp"
#include "uct/refuse.hpp"

namespace uct = tagwire::uct;
using uct::refuse;

namespace {

constexpr unsigned kEvents = UCT_EVENT_SEND_COMP | UCT_EVENT_RECV | UCT_EVENT_RECV_SIG;
constexpr std::uint64_t kAmFlags =
    UCT_IFACE_FLAG_AM_SHORT | UCT_IFACE_FLAG_AM_BCOPY | UCT_IFACE_FLAG_AM_ZCOPY;

ucs_status_t check_resource(uct::Md& md, const uct::IfaceParams& params) {
    std::vector<uct::TlDevice> devices;
    const ucs_status_t status = md.query_tl_resources(&devices);
    if (status != UCS_OK)
        return status;
    const auto is_wanted = [&params](const uct::TlDevice& device) {
        return device.tl_name == params.tl_name && device.dev_name == params.dev_name;
    };
    if (std::ranges::any_of(devices, is_wanted))
        return UCS_OK;
    return refuse(UCS_ERR_NO_DEVICE, "uct_iface_open",
                  "the memory domain has no transport %s on a device %s", params.tl_name.c_str(),
                  params.dev_name.c_str());
}

}  // namespace

extern "C" {

ucs_status_t uct_iface_open(uct_md_h md, uct_worker_h worker, const uct_iface_params_t* params,
                            const uct_iface_config_t* config, uct_iface_h* iface_p) try {
    if (uct::has_null(__func__, {{"md", md},
                                 {"worker", worker},
                                 {"params", params},
                                 {"config", config},
                                 {"iface_p", iface_p}})) {
        return UCS_ERR_INVALID_PARAM;
    }
    uct::IfaceParams checked;
    ucs_status_t status = uct::check_iface_params(*params, &checked);
    if (status == UCS_OK)
        status = check_resource(uct::md_of(md), checked);
    if (status != UCS_OK)
        return status;
    uct::ConfigBundle* bundle = uct::ConfigBundle::from(config);
    if (bundle == nullptr ||
        !bundle->is_of(uct::md_of(md).owner().iface_options(checked.tl_name.c_str()))) {
        return refuse(UCS_ERR_INVALID_PARAM, __func__,
                      "config was not read by uct_md_iface_config_read() for transport %s",
                      checked.tl_name.c_str());
    }
    uct_iface_h iface = nullptr;
    status = uct::md_of(md).iface_open(uct::worker_of(worker), *params, bundle->values(), &iface);
    if (status == UCS_OK)
        *iface_p = iface;
    return status;
} catch (const std::bad_alloc&) {
    return tagwire::ucs::no_memory(__func__);
}

void uct_iface_close(uct_iface_h iface) {
    if (iface != nullptr)
        iface->ops.iface_close(iface);
}

ucs_status_t uct_iface_query(uct_iface_h iface, uct_iface_attr_t* iface_attr) try {
    if (uct::has_null(__func__, {{"iface", iface}, {"iface_attr", iface_attr}}))
        return UCS_ERR_INVALID_PARAM;
    uct_iface_attr_t attr{};
    const ucs_status_t status = iface->ops.iface_query(iface, &attr);
    if (status == UCS_OK)
        *iface_attr = attr;
    return status;
} catch (const std::bad_alloc&) {
    return tagwire::ucs::no_memory(__func__);
}

ucs_status_t uct_iface_get_device_address(uct_iface_h iface, uct_device_addr_t* addr) try {
    if (uct::has_null(__func__, {{"iface", iface}, {"addr", addr}}))
        return UCS_ERR_INVALID_PARAM;
    return iface->ops.iface_get_device_address(iface, addr);
} catch (const std::bad_alloc&) {
    return tagwire::ucs::no_memory(__func__);
}

ucs_status_t uct_iface_get_address(uct_iface_h iface, uct_iface_addr_t* addr) try {
    if (uct::has_null(__func__, {{"iface", iface}, {"addr", addr}}))
        return UCS_ERR_INVALID_PARAM;
    return iface->ops.iface_get_address(iface, addr);
} catch (const std::bad_alloc&) {
    return tagwire::ucs::no_memory(__func__);
}

int uct_iface_is_reachable(const uct_iface_h iface, const uct_device_addr_t* dev_addr,
                           const uct_iface_addr_t* iface_addr) try {
    if (uct::has_null(__func__, {{"iface", iface}}))
        return 0;
    if (!uct::iface_of(iface).addresses_given(dev_addr, iface_addr))
        return 0;
    return iface->ops.iface_is_reachable(iface, dev_addr, iface_addr);
} catch (const std::bad_alloc&) {
    tagwire::ucs::no_memory(__func__);
    return 0;
}

ucs_status_t uct_iface_event_fd_get(uct_iface_h iface, int* fd_p) try {
    if (uct::has_null(__func__, {{"iface", iface}, {"fd_p", fd_p}}))
        return UCS_ERR_INVALID_PARAM;
    return iface->ops.iface_event_fd_get(iface, fd_p);
} catch (const std::bad_alloc&) {
    return tagwire::ucs::no_memory(__func__);
}

ucs_status_t uct_iface_event_arm(uct_iface_h iface, unsigned events) try {
    if (uct::has_null(__func__, {{"iface", iface}}))
        return UCS_ERR_INVALID_PARAM;
    if ((events & ~kEvents) != 0)
        return refuse(UCS_ERR_INVALID_PARAM, __func__, "events 0x%x has unknown bits", events);
    return iface->ops.iface_event_arm(iface, events);
} catch (const std::bad_alloc&) {
    return tagwire::ucs::no_memory(__func__);
}

ucs_status_t uct_iface_set_am_handler(uct_iface_h iface, uint8_t id, uct_am_callback_t cb,
                                      void* arg, uint32_t flags) {
    if (uct::has_null(__func__, {{"iface", iface}}))
        return UCS_ERR_INVALID_PARAM;
    if (id >= UCT_AM_ID_MAX)
        return refuse(UCS_ERR_INVALID_PARAM, __func__, "id %u is not below %lu", id, UCT_AM_ID_MAX);
    if ((flags & ~std::uint32_t{UCT_CB_FLAG_ASYNC}) != 0) {
        return refuse(UCS_ERR_INVALID_PARAM, __func__,
                      "flags 0x%x has bits besides UCT_CB_FLAG_ASYNC", flags);
    }
    if (cb != nullptr) {
        uct_iface_attr_t attr{};
        const ucs_status_t status = iface->ops.iface_query(iface, &attr);
        if (status != UCS_OK)
            return status;
        if ((attr.cap.flags & kAmFlags) == 0)
            return refuse(UCS_ERR_UNSUPPORTED, __func__, "the interface has no active messages");
    }
    uct::iface_of(iface).set_am_handler(id, cb, arg);
    return UCS_OK;
}

ucs_status_t tagwire_uct_iface_set_am_head_handler(uct_iface_h iface, uint8_t id,
                                                   tagwire_uct_am_head_callback_t cb, void* arg) {
    if (uct::has_null(__func__, {{"iface", iface}}))
        return UCS_ERR_INVALID_PARAM;
    if (id >= UCT_AM_ID_MAX)
        return refuse(UCS_ERR_INVALID_PARAM, __func__, "id %u is not below %lu", id, UCT_AM_ID_MAX);
    uct::iface_of(iface).set_am_head_handler(id, cb, arg);
    return UCS_OK;
}

ucs_status_t uct_iface_set_am_tracer(uct_iface_h iface, uct_am_tracer_t /*tracer*/, void* /*arg*/) {
    if (uct::has_null(__func__, {{"iface", iface}}))
        return UCS_ERR_INVALID_PARAM;
    return UCS_ERR_UNSUPPORTED;
}

}  // extern "C"
