// SPDX-License-Identifier: BSD-3-Clause
//
// Remote calls of the messaging layer's C++ wrapper. Worker::on_call() registers a method,
// Endpoint::call() calls one. Included by tagwire_msg.hpp.
#ifndef TAGWIRE_PROTOCOLS_API_CXX_MSG_CALL_HPP
#define TAGWIRE_PROTOCOLS_API_CXX_MSG_CALL_HPP

#include <protocols/api/tw_call.h>
#include <protocols/api/cxx_msg_am.hpp>
#include <protocols/api/cxx_msg_op.hpp>

namespace tagwire {
inline namespace v1 {
namespace msg {

/// Parameters of Endpoint::call(), beginning with the defaults; each call sets one thing.
class CallParams : public tw_call_params_t {
  public:
    CallParams() : tw_call_params_t{} {}

    /// `callable(const tw_call_done_t&)` runs when the call ends. Replaces the context.
    template <class Done>
    CallParams& on_done(Done& callable) {
        context = detail::arg_of(callable);
        done = [](const tw_call_done_t* end) { (*static_cast<Done*>(end->context))(*end); };
        return *this;
    }
    /// The data of the reply goes there.
    CallParams& reply_into(std::span<std::byte> buffer) {
        reply = buffer.data();
        reply_bytes = buffer.size();
        return *this;
    }
    /// 0: as long as the peer lives.
    CallParams& timeout(std::uint64_t nanoseconds) {
        timeout_ns = nanoseconds;
        return *this;
    }
    /// Handles that cover the request and the buffer for the reply, or nullptr.
    CallParams& memory(tw_mem_h of_request, tw_mem_h of_reply) {
        mem = of_request;
        reply_mem = of_reply;
        return *this;
    }
};

/// A request that waits for its reply: what the program remembers of one that it replies to later.
class PendingReply {
  public:
    PendingReply() = default;
    PendingReply(tw_worker_h worker, std::uint64_t id) : worker_(worker), id_(id) {}

    [[nodiscard]] std::uint64_t id() const { return id_; }
    /// As tw_reply().
    Status reply(std::int32_t status, std::span<const std::byte> data = {},
                 OpArgs args = {}) const {
        return {tw_reply(worker_, id_, status, data.data(), data.size(), args.op(), args.request()),
                "tw_reply"};
    }

  private:
    tw_worker_h worker_ = nullptr;
    std::uint64_t id_ = 0;
};

/// A request while its handler runs.
class CallRequest {
  public:
    explicit CallRequest(tw_call_request_t& request) : request_(request) {}
    CallRequest(const CallRequest&) = delete;
    CallRequest& operator=(const CallRequest&) = delete;

    [[nodiscard]] const tw_call_request_t& get() const { return request_; }
    [[nodiscard]] std::span<const std::byte> data() const {
        return detail::bytes_at(request_.data, request_.length);
    }
    /// The object that the data is a copy of (bytes_of()); nothing if its length is another one.
    template <class T>
    [[nodiscard]] std::optional<T> data_as() const {
        return detail::object_in<T>(data());
    }
    [[nodiscard]] std::uint32_t method() const { return request_.method; }
    [[nodiscard]] std::uint64_t source() const { return request_.source; }
    [[nodiscard]] std::uint64_t timeout_ns() const { return request_.timeout_ns; }
    /// As tw_reply(), now.
    Status reply(std::int32_t status, std::span<const std::byte> data = {},
                 OpArgs args = {}) const {
        return later().reply(status, data, args);
    }
    /// For a reply behind the handler.
    [[nodiscard]] PendingReply later() const { return {request_.worker, request_.id}; }
    /// As tw_call_keep(): data() stays until the reply.
    Status keep() const { return {tw_call_keep(&request_), "tw_call_keep"}; }

  private:
    tw_call_request_t& request_;
};

}  // namespace msg
}  // namespace v1
}  // namespace tagwire

#endif
