// SPDX-License-Identifier: BSD-3-Clause
// The C API: connections by host and port. Arguments are checked here.
#include <algorithm>
#include <string>

#include "protocols/cm/connecting.hpp"
#include "protocols/cm/listener.hpp"
#include "protocols/request/refuse.hpp"
#include "protocols/worker/entry.hpp"

using namespace tagwire::proto;
using tagwire::ucs::read_sized;
using tagwire::ucs::write_sized;

namespace {

/// The manager is made when the worker needs it first.
ucs_status_t manager_of(WorkerCore& worker, ConnectionManager** manager_p) {
    if (worker.lookout == nullptr) {
        std::unique_ptr<Lookout> made;
        const ucs_status_t status = ConnectionManager::create(
            {.worker = &worker, .peers = worker.peers(), .callbacks = worker.callbacks()}, &made);
        if (status != UCS_OK)
            return status;
        set_lookout(worker, std::move(made));
    }
    *manager_p = static_cast<ConnectionManager*>(worker.lookout.get());
    return UCS_OK;
}

tw_status_t check_where(const char* call, const char* where, unsigned port_min,
                        tagwire::ucs::HostPort* at) {
    if (tagwire::ucs::parse_host_port(where, port_min, at))
        return TW_OK;
    TW_LOG_ERROR("%s: '%s' is not HOST:PORT with a port from %u to 65535", call, where, port_min);
    return TW_ERR_INVALID_PARAM;
}

tw_status_t check_private(const char* call, const void* data, size_t length) {
    if (length <= TW_PRIVATE_BYTES_MAX && (data != nullptr || length == 0))
        return TW_OK;
    if (data == nullptr) {
        TW_LOG_ERROR("%s: private_data is NULL, and private_length is %zu", call, length);
    } else {
        TW_LOG_ERROR("%s: private_length is %zu; at most %d bytes can be told", call, length,
                     TW_PRIVATE_BYTES_MAX);
    }
    return TW_ERR_INVALID_PARAM;
}

tw_status_t check_flags(const char* call, uint32_t flags) {
    if ((flags & ~unsigned{TW_EP_ORDERED}) == 0)
        return TW_OK;
    TW_LOG_ERROR("%s: flags is 0x%x; expected TW_EP_ORDERED or 0", call, flags);
    return TW_ERR_INVALID_PARAM;
}

}  // namespace

extern "C" {

tw_status_t tw_listen(tw_worker_h worker, const char* where, const tw_listen_params_t* params,
                      tw_listener_h* listener_p) try {
    TW_REFUSE_NULL(worker);
    TW_REFUSE_NULL(where);
    TW_REFUSE_NULL(params);
    TW_REFUSE_NULL(listener_p);
    TW_REFUSE_SIZE(params);
    const tw_listen_params_t chosen = read_sized(*params);
    TW_REFUSE_NULL(chosen.request);
    tagwire::ucs::HostPort at;
    const tw_status_t refused = check_where(__func__, where, 0, &at);
    if (refused != TW_OK)
        return refused;
    tagwire::ucs::AddressList list(nullptr, &freeaddrinfo);
    if (const int error = tagwire::ucs::resolve(at, AI_PASSIVE, &list); error != 0)
        TW_REFUSE(TW_ERR_UNREACHABLE, "cannot resolve host '%s': %s", at.host.c_str(),
                  gai_strerror(error));
    const Entry entry(core_of(worker));
    const LeavesWork work(core_of(worker));
    ConnectionManager* manager = nullptr;
    Listener* listener = nullptr;
    ucs_status_t status = manager_of(core_of(worker), &manager);
    if (status == UCS_OK)
        status = Listener::create(*manager, where, list, chosen, &listener);
    if (status == UCS_OK)
        *listener_p = listener;
    return tw(status);
} catch (const std::bad_alloc&) {
    return refuse_no_memory(__func__);
}

tw_status_t tw_listener_address(tw_listener_h listener, char* text, size_t* length_p) try {
    TW_REFUSE_NULL(listener);
    TW_REFUSE_NULL(length_p);
    const Entry entry(core_of(listener_of(listener).cm.worker()));
    const std::string address = listener_of(listener).address();
    const size_t room = std::exchange(*length_p, address.size() + 1);
    if (room < address.size() + 1)
        return TW_ERR_BUFFER_TOO_SMALL;
    TW_REFUSE_NULL(text);
    std::ranges::copy(address, text);
    text[address.size()] = 0;
    return TW_OK;
} catch (const std::bad_alloc&) {
    return refuse_no_memory(__func__);
}

void tw_listener_destroy(tw_listener_h listener) {
    if (listener == nullptr)
        return;
    const Entry entry(core_of(listener_of(listener).cm.worker()));
    listener_of(listener).end();
}

tw_status_t tw_conn_request_query(tw_conn_request_h request, tw_conn_request_attr_t* attr) {
    TW_REFUSE_NULL(request);
    TW_REFUSE_NULL(attr);
    TW_REFUSE_SIZE(attr);
    const Entry entry(core_of(request_of(request).cm.worker()));
    tw_conn_request_attr_t full{};
    request_of(request).query(&full);
    write_sized(full, attr);
    return TW_OK;
}

tw_status_t tw_accept(tw_conn_request_h request, const tw_accept_params_t* params,
                      tw_ep_h* ep_p) try {
    TW_REFUSE_NULL(request);
    TW_REFUSE_NULL(ep_p);
    if (params != nullptr)
        TW_REFUSE_SIZE(params);
    const auto chosen = params == nullptr ? tw_accept_params_t{} : read_sized(*params);
    tw_status_t status = check_private(__func__, chosen.private_data, chosen.private_length);
    if (status == TW_OK)
        status = check_flags(__func__, chosen.flags);
    if (status != TW_OK)
        return status;
    WorkerCore& worker = core_of(request_of(request).cm.worker());
    const Entry entry(worker);
    const LeavesWork work(worker);
    return tw(request_of(request).accept(chosen, ep_p));
} catch (const std::bad_alloc&) {
    return refuse_no_memory(__func__);
}

tw_status_t tw_reject(tw_conn_request_h request, const void* private_data,
                      size_t private_length) try {
    TW_REFUSE_NULL(request);
    const tw_status_t refused = check_private(__func__, private_data, private_length);
    if (refused != TW_OK)
        return refused;
    WorkerCore& worker = core_of(request_of(request).cm.worker());
    const Entry entry(worker);
    request_of(request).reject({static_cast<const std::byte*>(private_data), private_length});
    return TW_OK;
} catch (const std::bad_alloc&) {
    return refuse_no_memory(__func__);
}

tw_status_t tw_ep_connect(tw_worker_h worker, const char* where,
                          const tw_connect_params_t* params) try {
    TW_REFUSE_NULL(worker);
    TW_REFUSE_NULL(where);
    TW_REFUSE_NULL(params);
    TW_REFUSE_SIZE(params);
    const tw_connect_params_t chosen = read_sized(*params);
    TW_REFUSE_NULL(chosen.connected);
    tagwire::ucs::HostPort at;
    tw_status_t refused = check_where(__func__, where, 1, &at);
    if (refused == TW_OK)
        refused = check_private(__func__, chosen.private_data, chosen.private_length);
    if (refused == TW_OK)
        refused = check_flags(__func__, chosen.flags);
    if (refused != TW_OK)
        return refused;
    const Entry entry(core_of(worker));
    const LeavesWork work(core_of(worker));
    ConnectionManager* manager = nullptr;
    ucs_status_t status = manager_of(core_of(worker), &manager);
    if (status == UCS_OK)
        status = Connecting::begin(*manager, where, at, chosen);
    return status == UCS_OK ? TW_INPROGRESS : tw(status);
} catch (const std::bad_alloc&) {
    return refuse_no_memory(__func__);
}

}  // extern "C"
