// SPDX-License-Identifier: BSD-3-Clause
//
// Endpoints of the messaging layer's C++ wrapper: sends, flush and close. Included by
// tagwire_msg.hpp.
#ifndef TAGWIRE_PROTOCOLS_API_CXX_MSG_EP_HPP
#define TAGWIRE_PROTOCOLS_API_CXX_MSG_EP_HPP

#include <protocols/api/cxx_msg_worker.hpp>

namespace tagwire {
inline namespace v1 {
namespace msg {

/// The destructor closes the endpoint without waiting: messages sent before are still delivered, as
/// long as the worker lives and progresses. close() reports when they are; close_by_force() cancels
/// them.
class Endpoint {
  public:
    /// `flags`: TW_EP_ORDERED or 0.
    Endpoint(const Worker& worker, std::span<const std::byte> address, void* user_data = nullptr,
             std::uint32_t flags = 0) {
        const tw_ep_params_t params{.address = address.data(),
                                    .address_length = address.size(),
                                    .user_data = user_data,
                                    .flags = flags};
        tw_ep_h ep = nullptr;
        check(tw_ep_create(worker.get(), &params, &ep), "tw_ep_create");
        ep_.reset(ep);
    }

    /// To a worker that is connected already: the sender of a message (tw_completion_t::source).
    /// Throws TW_ERR_NO_ELEM when it has gone, TW_ERR_ALREADY_EXISTS when there is an endpoint.
    static Endpoint to(const Worker& worker, std::uint64_t worker_id, void* user_data = nullptr) {
        tw_ep_h ep = nullptr;
        check(tw_ep_create_to(worker.get(), worker_id, user_data, &ep), "tw_ep_create_to");
        return Endpoint(ep);
    }

    /// Takes over an endpoint that the C API has made.
    static Endpoint adopt(tw_ep_h ep) { return Endpoint(ep); }

    [[nodiscard]] tw_ep_h get() const { return ep_.get(); }
    [[nodiscard]] void* user_data() const { return tw_ep_user_data(get()); }

    Status tag_send(std::span<const std::byte> data, std::uint64_t tag, OpArgs args = {}) const {
        return {tw_tag_send(get(), data.data(), data.size(), tag, args.op(), args.request()),
                "tw_tag_send"};
    }
    Status tag_sendv(std::span<const tw_iov_t> list, std::uint64_t tag, OpArgs args = {}) const {
        return {tw_tag_sendv(get(), list.data(), list.size(), tag, args.op(), args.request()),
                "tw_tag_sendv"};
    }
    Status send(std::span<const std::byte> data, OpArgs args = {}) const {
        return {tw_msg_send(get(), data.data(), data.size(), args.op(), args.request()),
                "tw_msg_send"};
    }
    Status sendv(std::span<const tw_iov_t> list, OpArgs args = {}) const {
        return {tw_msg_sendv(get(), list.data(), list.size(), args.op(), args.request()),
                "tw_msg_sendv"};
    }
    /// An active message to the handler of that id.
    Status am_send(unsigned id, std::span<const std::byte> header, std::span<const std::byte> data,
                   OpArgs args = {}) const {
        return {tw_am_send(get(), id, header.data(), header.size(), data.data(), data.size(),
                           args.op(), args.request()),
                "tw_am_send"};
    }
    Status am_sendv(unsigned id, std::span<const std::byte> header, std::span<const tw_iov_t> list,
                    OpArgs args = {}) const {
        return {tw_am_sendv(get(), id, header.data(), header.size(), list.data(), list.size(),
                            args.op(), args.request()),
                "tw_am_sendv"};
    }
    /// As tw_call(); `params` name at least on_done().
    Status call(std::uint32_t method, std::span<const std::byte> data, const CallParams& params,
                std::uint64_t* id = nullptr) const {
        return {tw_call(get(), method, data.data(), data.size(), &params, id), "tw_call"};
    }
    Status flush(tw_flush_level_t level, OpArgs args = {}) const {
        return {tw_ep_flush(get(), level, args.op(), args.request()), "tw_ep_flush"};
    }
    /// At TW_FLUSH_DELIVERED.
    Status flush(OpArgs args = {}) const { return flush(TW_FLUSH_DELIVERED, args); }

    /// As tw_ep_close(): flushes and closes; the status, or that of the completion, is that of the
    /// flush. This object has no endpoint afterwards, unless the call returns TW_ERR_NO_RESOURCE,
    /// TW_ERR_NO_MEMORY or TW_ERR_INVALID_PARAM.
    Status close(tw_flush_level_t level, OpArgs args = {}) { return end(level, args); }
    /// At TW_FLUSH_DELIVERED.
    Status close(OpArgs args = {}) { return end(TW_FLUSH_DELIVERED, args); }
    /// Ends everything at once with TW_ERR_CANCELED.
    Status close_by_force() { return end(TW_CLOSE_FORCE, {}); }

    /// Explains which protocol a message of `length` bytes to this peer uses, and why.
    [[nodiscard]] tw_explanation_t explain(std::size_t length,
                                           tw_buffer_kind_t buffer = TW_BUFFER_PLAIN) const {
        tw_explanation_t explanation{};
        check(tw_ep_explain(get(), length, buffer, &explanation), "tw_ep_explain");
        return explanation;
    }

  private:
    explicit Endpoint(tw_ep_h ep) : ep_(ep) {}
    /// While no request is free the worker's end closes it.
    static void leave(tw_ep_h ep) { (void)tw_ep_close(ep, TW_FLUSH_DELIVERED, nullptr, nullptr); }
    Status end(tw_flush_level_t level, OpArgs args) {
        const Status status{tw_ep_close(get(), level, args.op(), args.request()), "tw_ep_close"};
        if (status != TW_ERR_NO_RESOURCE && status != TW_ERR_NO_MEMORY &&
            status != TW_ERR_INVALID_PARAM)
            (void)ep_.release();
        return status;
    }

    detail::Owner<tw_ep_h, &Endpoint::leave> ep_;
};

}  // namespace msg
}  // namespace v1
}  // namespace tagwire

#endif
