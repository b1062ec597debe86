// SPDX-License-Identifier: BSD-3-Clause
// The C API: connections by host and port. Arguments are checked here.
#include <netinet/in.h>

#include <algorithm>
#include <cstddef>
#include <string>

#include "protocols/api/tw_endpoint.h"
#include "protocols/cm/connecting.hpp"
#include "protocols/cm/listener.hpp"
#include "protocols/request/refuse.hpp"
#include "protocols/worker/entry.hpp"
#include "protocols/worker/peer_table.hpp"

using namespace tagwire::proto;
using tagwire::ucs::read_sized;
using tagwire::ucs::write_sized;

namespace {

/// The manager is made when the worker needs it first.
ucs_status_t manager_of(WorkerCore& worker, ConnectionManager** manager_p) {
    if (worker.lookout(LookoutOf::kConnections) == nullptr) {
        std::unique_ptr<Lookout> made;
        const ucs_status_t status = ConnectionManager::create(
            {.worker = &worker, .peers = worker.peers(), .callbacks = worker.callbacks()}, &made);
        if (status != UCS_OK)
            return status;
        set_lookout(worker, LookoutOf::kConnections, std::move(made));
    }
    *manager_p = static_cast<ConnectionManager*>(worker.lookout(LookoutOf::kConnections));
    return UCS_OK;
}

tw_status_t check_socket_address(const char* call, const char* name, const sockaddr* address,
                                 size_t bytes, unsigned port_min, tagwire::ucs::HostPort* at) {
    if (bytes >= sizeof address->sa_family &&
        tagwire::ucs::read_socket_address(address, bytes, port_min, at))
        return TW_OK;
    TW_LOG_ERROR(
        "%s: %s of %zu bytes is not of AF_INET (%zu bytes) or AF_INET6 (%zu bytes) with a "
        "port from %u to 65535",
        call, name, bytes, sizeof(sockaddr_in), sizeof(sockaddr_in6), port_min);
    return TW_ERR_INVALID_PARAM;
}

tw_status_t check_where(const char* call, const char* where, unsigned port_min,
                        tagwire::ucs::HostPort* at) {
    if (tagwire::ucs::parse_host_port(where, port_min, at))
        return TW_OK;
    TW_LOG_ERROR("%s: '%s' is not HOST:PORT with a port from %u to 65535", call, where, port_min);
    return TW_ERR_INVALID_PARAM;
}

/// Where a call is to listen or to connect: by the text, or by the socket address.
tw_status_t check_place(const char* call, const char* where, const sockaddr* address,
                        size_t address_bytes, unsigned port_min, tagwire::ucs::HostPort* at) {
    if (where != nullptr && address == nullptr)
        return check_where(call, where, port_min, at);
    if (where != nullptr || address == nullptr) {
        TW_LOG_ERROR("%s: where and sockaddr are %s; expected one of the two", call,
                     where == nullptr ? "both NULL" : "both given");
        return TW_ERR_INVALID_PARAM;
    }
    return check_socket_address(call, "sockaddr", address, address_bytes, port_min, at);
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

/// The worker's lock is that of the listener, or of the one that gets the endpoint, never both.
ucs_status_t accept(WorkerCore& asked, WorkerCore& serving, ConnRequest& request,
                    const tw_accept_params_t& params, tw_ep_h* ep_p) {
    std::byte own[TW_ADDRESS_BYTES_MAX];
    std::size_t own_bytes = sizeof own;
    std::byte peer[TW_ADDRESS_BYTES_MAX];
    std::size_t peer_bytes = 0;
    auto status = static_cast<ucs_status_t>(tw_worker_address(&serving, own, &own_bytes));
    {
        const Entry entry(asked);
        if (status == UCS_OK && request.has_given_up())
            status = UCS_ERR_CONNECTION_RESET;
        if (status != UCS_OK)
            return request.answer(status, {}, {});
        peer_bytes = request.peer_worker().size();  // CmReader takes no longer one
        std::ranges::copy(request.peer_worker(), peer);
    }
    tw_ep_h ep = nullptr;
    {
        const Entry entry(serving);
        const LeavesWork work(serving);
        status = connect_anew(serving.peers(), {peer, peer_bytes}, true, params.flags,
                              params.user_data, &ep);
    }
    const bool is_made = status == UCS_OK;
    {
        const Entry entry(asked);
        const auto* data = static_cast<const std::byte*>(params.private_data);
        status = request.answer(status, {own, own_bytes}, {data, params.private_length});
    }
    if (status == UCS_OK) {
        *ep_p = ep;
    } else if (is_made) {
        const Entry entry(serving);
        const LeavesWork work(serving);
        serving.peers().close(peer_endpoint_of(ep));
    }
    return status;
}

}  // namespace

extern "C" {

tw_status_t tw_listen(tw_worker_h worker, const char* where, const tw_listen_params_t* params,
                      tw_listener_h* listener_p) try {
    TW_REFUSE_NULL(worker);
    TW_REFUSE_NULL(params);
    TW_REFUSE_NULL(listener_p);
    TW_REFUSE_SIZE(params);
    const tw_listen_params_t chosen = read_sized(*params);
    TW_REFUSE_NULL(chosen.request);
    tagwire::ucs::HostPort at;
    const tw_status_t refused =
        check_place(__func__, where, chosen.sockaddr, chosen.sockaddr_bytes, 0, &at);
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
        status = Listener::create(*manager, text_of(at).c_str(), list, chosen, &listener);
    if (status == UCS_OK)
        *listener_p = listener;
    return tw(status);
} catch (const std::bad_alloc&) {
    return refuse_no_memory(__func__);
}

tw_status_t tw_listener_query(tw_listener_h listener, tw_listener_attr_t* attr) try {
    TW_REFUSE_NULL(listener);
    TW_REFUSE_NULL(attr);
    TW_REFUSE_SIZE(attr);
    const Entry entry(core_of(listener_of(listener).cm.worker()));
    tw_listener_attr_t full{};
    listener_of(listener).query(&full);
    write_sized(full, attr);
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
    WorkerCore& asked = core_of(request_of(request).cm.worker());
    WorkerCore& serving = chosen.worker == nullptr ? asked : core_of(chosen.worker);
    if (&serving.context() != &asked.context())
        TW_REFUSE(TW_ERR_INVALID_PARAM, "worker is of another context than the listener");
    return tw(accept(asked, serving, request_of(request), chosen, ep_p));
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
    TW_REFUSE_NULL(params);
    TW_REFUSE_SIZE(params);
    const tw_connect_params_t chosen = read_sized(*params);
    TW_REFUSE_NULL(chosen.connected);
    tagwire::ucs::HostPort at;
    tw_status_t refused =
        check_place(__func__, where, chosen.sockaddr, chosen.sockaddr_bytes, 1, &at);
    tagwire::ucs::HostPort own;
    if (refused == TW_OK && chosen.local_sockaddr != nullptr)
        refused = check_socket_address(__func__, "local_sockaddr", chosen.local_sockaddr,
                                       chosen.local_sockaddr_bytes, 0, &own);
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
        status = Connecting::begin(*manager, at, chosen);
    return status == UCS_OK ? TW_INPROGRESS : tw(status);
} catch (const std::bad_alloc&) {
    return refuse_no_memory(__func__);
}

}  // extern "C"
