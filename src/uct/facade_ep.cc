// SPDX-License-Identifier: BSD-3-Clause
// The C API of endpoints and, as refusals, of connection managers: check, convert, call.
#include <uct/api/uct.h>

#include <cinttypes>

#include "ucs/memory/no_memory.hpp"
#include "uct/base_iface.hpp"
#include "uct/refuse.hpp"

namespace uct = tagwire::uct;
using uct::refuse;

namespace {

constexpr std::uint64_t kAddresses = UCT_EP_PARAM_FIELD_DEV_ADDR | UCT_EP_PARAM_FIELD_IFACE_ADDR;
constexpr std::uint64_t kFieldsServed = UCT_EP_PARAM_FIELD_IFACE | UCT_EP_PARAM_FIELD_USER_DATA |
                                        kAddresses | UCT_EP_PARAM_FIELD_PATH_INDEX;
constexpr std::uint64_t kFieldsKnown = UCS_MASK(17);

/// An address may be NULL only where its length is 0.
ucs_status_t check_addresses(const char* call, const uct_ep_params_t& params) {
    if ((params.field_mask & kAddresses) == 0)
        return UCS_OK;
    if ((params.field_mask & kAddresses) != kAddresses) {
        return refuse(
            UCS_ERR_INVALID_PARAM, call,
            "%s is missing: set both dev_addr and iface_addr, or neither",
            (params.field_mask & UCT_EP_PARAM_FIELD_DEV_ADDR) == 0 ? "dev_addr" : "iface_addr");
    }
    if (uct::iface_of(params.iface).addresses_given(params.dev_addr, params.iface_addr))
        return UCS_OK;
    return refuse(UCS_ERR_INVALID_PARAM, call, "%s is NULL",
                  params.dev_addr == nullptr ? "dev_addr" : "iface_addr");
}

ucs_status_t no_connection_manager(const char* call) {
    return refuse(UCS_ERR_UNSUPPORTED, call, "this library has no connection manager");
}

}  // namespace

extern "C" {

ucs_status_t uct_ep_create(const uct_ep_params_t* params, uct_ep_h* ep_p) try {
    if (uct::has_null(__func__, {{"params", params}, {"ep_p", ep_p}}))
        return UCS_ERR_INVALID_PARAM;
    if ((params->field_mask & ~kFieldsKnown) != 0) {
        return refuse(UCS_ERR_INVALID_PARAM, __func__, "field_mask has unknown bits 0x%" PRIx64,
                      params->field_mask & ~kFieldsKnown);
    }
    if ((params->field_mask & ~kFieldsServed) != 0) {
        return refuse(UCS_ERR_UNSUPPORTED, __func__,
                      "field_mask 0x%" PRIx64
                      " asks for a connection manager: this library has none",
                      params->field_mask);
    }
    if ((params->field_mask & UCT_EP_PARAM_FIELD_IFACE) == 0 || params->iface == nullptr) {
        return refuse(UCS_ERR_INVALID_PARAM, __func__,
                      "iface is not given (UCT_EP_PARAM_FIELD_IFACE)");
    }
    ucs_status_t status = check_addresses(__func__, *params);
    if (status == UCS_OK && tagwire::ucs::reserve_is_low())
        status = tagwire::ucs::no_memory(__func__);
    if (status != UCS_OK)
        return status;
    uct_ep_h ep = nullptr;
    status = params->iface->ops.ep_create(params, &ep);
    if (status == UCS_OK)
        *ep_p = ep;
    return status;
} catch (const std::bad_alloc&) {
    return tagwire::ucs::no_memory(__func__);
}

void uct_ep_destroy(uct_ep_h ep) {
    if (ep != nullptr)
        ep->iface->ops.ep_destroy(ep);
}

ucs_status_t uct_ep_get_address(uct_ep_h ep, uct_ep_addr_t* addr) try {
    if (uct::has_null(__func__, {{"ep", ep}, {"addr", addr}}))
        return UCS_ERR_INVALID_PARAM;
    return ep->iface->ops.ep_get_address(ep, addr);
} catch (const std::bad_alloc&) {
    return tagwire::ucs::no_memory(__func__);
}

ucs_status_t uct_ep_connect_to_ep(uct_ep_h ep, const uct_device_addr_t* dev_addr,
                                  const uct_ep_addr_t* ep_addr) try {
    if (uct::has_null(__func__, {{"ep", ep}, {"ep_addr", ep_addr}}))
        return UCS_ERR_INVALID_PARAM;
    return ep->iface->ops.ep_connect_to_ep(ep, dev_addr, ep_addr);
} catch (const std::bad_alloc&) {
    return tagwire::ucs::no_memory(__func__);
}

ucs_status_t uct_ep_check(const uct_ep_h ep, unsigned flags, uct_completion_t* comp) try {
    if (uct::has_null(__func__, {{"ep", ep}}))
        return UCS_ERR_INVALID_PARAM;
    if (flags != 0)
        return refuse(UCS_ERR_INVALID_PARAM, __func__, "flags is 0x%x; it must be 0", flags);
    return ep->iface->ops.ep_check(ep, flags, comp);
} catch (const std::bad_alloc&) {
    return tagwire::ucs::no_memory(__func__);
}

// ---- Connection manager

ucs_status_t uct_ep_connect(uct_ep_h /*ep*/, const uct_ep_connect_params_t* /*params*/) {
    return no_connection_manager(__func__);
}

ucs_status_t uct_ep_disconnect(uct_ep_h /*ep*/, unsigned /*flags*/) {
    return no_connection_manager(__func__);
}

ucs_status_t uct_iface_accept(uct_iface_h /*iface*/, uct_conn_request_h /*conn_request*/) {
    return no_connection_manager(__func__);
}

ucs_status_t uct_iface_reject(uct_iface_h /*iface*/, uct_conn_request_h /*conn_request*/) {
    return no_connection_manager(__func__);
}

ucs_status_t uct_cm_open(uct_component_h /*component*/, uct_worker_h /*worker*/,
                         const uct_cm_config_t* /*config*/, uct_cm_h* /*cm_p*/) {
    return no_connection_manager(__func__);
}

void uct_cm_close(uct_cm_h /*cm*/) {}

ucs_status_t uct_cm_query(uct_cm_h /*cm*/, uct_cm_attr_t* /*cm_attr*/) {
    return no_connection_manager(__func__);
}

ucs_status_t uct_cm_config_read(uct_component_h /*component*/, const char* /*env_prefix*/,
                                const char* /*filename*/, uct_cm_config_t** /*config_p*/) {
    return no_connection_manager(__func__);
}

ucs_status_t uct_cm_client_ep_conn_notify(uct_ep_h /*ep*/) {
    return no_connection_manager(__func__);
}

ucs_status_t uct_listener_create(uct_cm_h /*cm*/, const struct sockaddr* /*saddr*/,
                                 socklen_t /*socklen*/, const uct_listener_params_t* /*params*/,
                                 uct_listener_h* /*listener_p*/) {
    return no_connection_manager(__func__);
}

void uct_listener_destroy(uct_listener_h /*listener*/) {}

ucs_status_t uct_listener_reject(uct_listener_h /*listener*/, uct_conn_request_h /*conn_request*/) {
    return no_connection_manager(__func__);
}

ucs_status_t uct_listener_query(uct_listener_h /*listener*/,
                                uct_listener_attr_t* /*listener_attr*/) {
    return no_connection_manager(__func__);
}

}  // extern "C"
