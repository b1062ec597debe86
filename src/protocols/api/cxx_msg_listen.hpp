// SPDX-License-Identifier: BSD-3-Clause
//
// Connections by host and port of the messaging layer's C++ wrapper. Included by tagwire_msg.hpp.
#ifndef TAGWIRE_PROTOCOLS_API_CXX_MSG_LISTEN_HPP
#define TAGWIRE_PROTOCOLS_API_CXX_MSG_LISTEN_HPP

#include <protocols/api/cxx_msg_ep.hpp>

#include <optional>

namespace tagwire {
inline namespace v1 {
namespace msg {

/// A socket address of AF_INET or AF_INET6, in place of a text. Read during the call.
struct SocketAddress {
    const sockaddr* address = nullptr;
    std::size_t bytes = 0;
};

/// A peer that asks for a connection. The destructor rejects one that was not answered.
class ConnRequest {
  public:
    explicit ConnRequest(tw_conn_request_h request) : request_(request) {}

    [[nodiscard]] tw_conn_request_h get() const { return request_.get(); }
    [[nodiscard]] tw_conn_request_attr_t attr() const {
        tw_conn_request_attr_t attr{};
        check(tw_conn_request_query(get(), &attr), "tw_conn_request_query");
        return attr;
    }
    /// "10.0.0.2:40712", as the system sees it.
    [[nodiscard]] std::string peer() const { return attr().peer; }
    /// Valid until the answer.
    [[nodiscard]] std::span<const std::byte> private_data() const {
        const tw_conn_request_attr_t all = attr();
        return {static_cast<const std::byte*>(all.private_data), all.private_length};
    }

    /// TW_OK: `ep` has the endpoint. This object has no request afterwards, unless the call returns
    /// TW_ERR_INVALID_PARAM. `flags`: TW_EP_ORDERED or 0. `worker`: as tw_accept_params_t.worker.
    Status accept(std::optional<Endpoint>& ep, std::span<const std::byte> private_data = {},
                  void* user_data = nullptr, std::uint32_t flags = 0,
                  tw_worker_h worker = nullptr) {
        const tw_accept_params_t params{.private_data = private_data.data(),
                                        .private_length = private_data.size(),
                                        .user_data = user_data,
                                        .flags = flags,
                                        .worker = worker};
        tw_ep_h made = nullptr;
        const Status status{tw_accept(get(), &params, &made), "tw_accept"};
        if (status != TW_ERR_INVALID_PARAM)
            (void)request_.release();
        if (status == TW_OK)
            ep = Endpoint::adopt(made);
        return status;
    }
    Status reject(std::span<const std::byte> private_data = {}) {
        const Status status{tw_reject(get(), private_data.data(), private_data.size()),
                            "tw_reject"};
        if (status == TW_OK)
            (void)request_.release();
        return status;
    }

  private:
    static void drop(tw_conn_request_h request) { (void)tw_reject(request, nullptr, 0); }

    detail::Owner<tw_conn_request_h, &ConnRequest::drop> request_;
};

/// Listens until it is destroyed.
class Listener {
  public:
    /// `asked(ConnRequest)` runs for each peer that asks for a connection. `timeout_ns` and
    /// `requests_max` as in tw_listen_params_t.
    template <class Asked>
    Listener(const Worker& worker, const std::string& where, Asked& asked,
             std::uint64_t timeout_ns = 0, unsigned requests_max = 0)
        : Listener(worker, where.c_str(), SocketAddress{}, asked, timeout_ns, requests_max) {}
    /// As the one above, at a socket address.
    template <class Asked>
    Listener(const Worker& worker, const SocketAddress& where, Asked& asked,
             std::uint64_t timeout_ns = 0, unsigned requests_max = 0)
        : Listener(worker, nullptr, where, asked, timeout_ns, requests_max) {}

    [[nodiscard]] tw_listener_h get() const { return listener_.get(); }
    [[nodiscard]] tw_listener_attr_t attr() const {
        tw_listener_attr_t attr{};
        check(tw_listener_query(get(), &attr), "tw_listener_query");
        return attr;
    }
    /// "10.0.0.1:7077", with the port that the system has chosen.
    [[nodiscard]] std::string address() const { return attr().address; }

  private:
    template <class Asked>
    Listener(const Worker& worker, const char* text, const SocketAddress& where, Asked& asked,
             std::uint64_t timeout_ns, unsigned requests_max) {
        const tw_listen_params_t params{.request =
                                            [](void* arg, tw_conn_request_h request) {
                                                (*static_cast<Asked*>(arg))(ConnRequest(request));
                                            },
                                        .arg = detail::arg_of(asked),
                                        .timeout_ns = timeout_ns,
                                        .requests_max = requests_max,
                                        .sockaddr = where.address,
                                        .sockaddr_bytes = where.bytes};
        tw_listener_h listener = nullptr;
        check(tw_listen(worker.get(), text, &params, &listener), "tw_listen");
        listener_.reset(listener);
    }

    detail::Owner<tw_listener_h, tw_listener_destroy> listener_;
};

/// The rest that tw_ep_connect() is told.
struct ConnectParams {
    std::span<const std::byte> private_data = {};
    void* user_data = nullptr;
    std::uint64_t timeout_ns = 0;  ///< 0: 10 s.
    std::uint32_t flags = 0;       ///< TW_EP_ORDERED or 0.
    SocketAddress local = {};      ///< tw_connect_params_t.local_sockaddr.
};

namespace detail {
template <class Connected>
void connect(const Worker& worker, const char* text, const SocketAddress& where,
             Connected& connected, const ConnectParams& how) {
    const auto call = [](void* arg, tw_ep_h ep, tw_status_t status, const void* data,
                         std::size_t length) {
        std::optional<Endpoint> made;
        if (ep != nullptr)
            made = Endpoint::adopt(ep);
        (*static_cast<Connected*>(arg))(
            std::move(made), status,
            std::span<const std::byte>(static_cast<const std::byte*>(data), length));
    };
    const tw_connect_params_t params{.connected = call,
                                     .arg = detail::arg_of(connected),
                                     .private_data = how.private_data.data(),
                                     .private_length = how.private_data.size(),
                                     .user_data = how.user_data,
                                     .timeout_ns = how.timeout_ns,
                                     .flags = how.flags,
                                     .sockaddr = where.address,
                                     .sockaddr_bytes = where.bytes,
                                     .local_sockaddr = how.local.address,
                                     .local_sockaddr_bytes = how.local.bytes};
    check(tw_ep_connect(worker.get(), text, &params), "tw_ep_connect");
}
}  // namespace detail

/// Connects to the worker that listens there. `connected(std::optional<Endpoint>, tw_status_t,
/// std::span<const std::byte> private_data)` runs once.
template <class Connected>
void connect(const Worker& worker, const std::string& where, Connected& connected,
             const ConnectParams& how = {}) {
    detail::connect(worker, where.c_str(), {}, connected, how);
}
/// As the one above, to a socket address.
template <class Connected>
void connect(const Worker& worker, const SocketAddress& where, Connected& connected,
             const ConnectParams& how = {}) {
    detail::connect(worker, nullptr, where, connected, how);
}

}  // namespace msg
}  // namespace v1
}  // namespace tagwire

#endif
