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
    /// TW_ERR_INVALID_PARAM. `flags`: TW_EP_ORDERED or 0.
    tw_status_t accept(std::optional<Endpoint>& ep, std::span<const std::byte> private_data = {},
                       void* user_data = nullptr, std::uint32_t flags = 0) {
        const tw_accept_params_t params{.private_data = private_data.data(),
                                        .private_length = private_data.size(),
                                        .user_data = user_data,
                                        .flags = flags};
        tw_ep_h made = nullptr;
        const tw_status_t status = tw_accept(get(), &params, &made);
        if (status != TW_ERR_INVALID_PARAM)
            (void)request_.release();
        if (status == TW_OK)
            ep = Endpoint::adopt(made);
        return status;
    }
    tw_status_t reject(std::span<const std::byte> private_data = {}) {
        const tw_status_t status = tw_reject(get(), private_data.data(), private_data.size());
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
             std::uint64_t timeout_ns = 0, unsigned requests_max = 0) {
        const tw_listen_params_t params{.request =
                                            [](void* arg, tw_conn_request_h request) {
                                                (*static_cast<Asked*>(arg))(ConnRequest(request));
                                            },
                                        .arg = detail::arg_of(asked),
                                        .timeout_ns = timeout_ns,
                                        .requests_max = requests_max};
        tw_listener_h listener = nullptr;
        check(tw_listen(worker.get(), where.c_str(), &params, &listener), "tw_listen");
        listener_.reset(listener);
    }

    [[nodiscard]] tw_listener_h get() const { return listener_.get(); }
    /// "10.0.0.1:7077", with the port that the system has chosen.
    [[nodiscard]] std::string address() const {
        std::size_t length = 0;
        const tw_status_t status = tw_listener_address(get(), nullptr, &length);
        if (status != TW_ERR_BUFFER_TOO_SMALL)
            check(status, "tw_listener_address");
        std::string text(length, '\0');
        check(tw_listener_address(get(), text.data(), &length), "tw_listener_address");
        text.resize(length - 1);
        return text;
    }

  private:
    detail::Owner<tw_listener_h, tw_listener_destroy> listener_;
};

/// The rest that tw_ep_connect() is told.
struct ConnectParams {
    std::span<const std::byte> private_data = {};
    void* user_data = nullptr;
    std::uint64_t timeout_ns = 0;  ///< 0: 10 s.
    std::uint32_t flags = 0;       ///< TW_EP_ORDERED or 0.
};

/// Connects to the worker that listens there. `connected(std::optional<Endpoint>, tw_status_t,
/// std::span<const std::byte> private_data)` runs once.
template <class Connected>
void connect(const Worker& worker, const std::string& where, Connected& connected,
             const ConnectParams& how = {}) {
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
                                     .flags = how.flags};
    check(tw_ep_connect(worker.get(), where.c_str(), &params), "tw_ep_connect");
}

}  // namespace msg
}  // namespace v1
}  // namespace tagwire

#endif
