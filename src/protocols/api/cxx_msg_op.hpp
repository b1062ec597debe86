// SPDX-License-Identifier: BSD-3-Clause
//
// Parameters of an operation, and the handle that a program keeps while it is in flight. Included
// by tagwire_msg.hpp.
#ifndef TAGWIRE_PROTOCOLS_API_CXX_MSG_OP_HPP
#define TAGWIRE_PROTOCOLS_API_CXX_MSG_OP_HPP

#include <protocols/api/cxx_msg_base.hpp>

#include <new>

namespace tagwire {
inline namespace v1 {
namespace msg {

/// A tw_op_t that begins with the defaults; each call sets one thing. Use Op; with a callback it is
/// a CallbackOp, because the end of such an operation is told once, and its handle is void then.
template <bool kHasCallback>
class BasicOp : public tw_op_t {
  public:
    explicit BasicOp(std::uint32_t op_flags = 0) : tw_op_t{} { flags = op_flags; }
    explicit BasicOp(const tw_op_t& op) : tw_op_t(op) {}

    /// Further TW_OP_x.
    BasicOp& with(std::uint32_t more) {
        flags |= more;
        return *this;
    }
    /// `callable(const tw_completion_t&)` runs when the operation ends, unless the call itself
    /// answers that. Takes the place of the context. The result is a copy; this one has it, too.
    template <class Done>
    BasicOp<true> on_complete(Done& callable) {
        context = detail::arg_of(callable);
        complete = [](const tw_completion_t* end) { (*static_cast<Done*>(end->context))(*end); };
        return BasicOp<true>(*this);
    }
    /// Sets the context that the completion carries.
    BasicOp& carry(void* pointer) {
        context = pointer;
        return *this;
    }
    /// Travels with the message.
    BasicOp& immediate(std::uint64_t value) {
        flags |= TW_OP_IMM;
        imm = value;
        return *this;
    }
    /// Covers the whole buffer.
    BasicOp& memory(tw_mem_h handle) {
        mem = handle;
        return *this;
    }
    /// Receives: only from the peer of this endpoint.
    BasicOp& from(tw_ep_h ep) {
        source = ep;
        return *this;
    }
    /// Gets the completion when the call itself answers the end.
    BasicOp& ended(tw_completion_t& end) {
        done = &end;
        return *this;
    }
    /// Memory of the program for the request; see RequestMemory.
    BasicOp& place(void* request_memory) {
        request = request_memory;
        return *this;
    }
};
using Op = BasicOp<false>;
using CallbackOp = BasicOp<true>;

/// An operation that is asked for its end: neither callback nor TW_OP_COMPLETION. Destroyed before
/// that, the operation goes on and nobody is told of its end.
class Request {
  public:
    Request() = default;
    Request(Request&& other) noexcept : request_(std::exchange(other.request_, nullptr)) {}
    Request& operator=(Request&& other) noexcept {
        std::swap(request_, other.request_);
        return *this;
    }
    ~Request() { reset(); }

    /// Whether there is an operation: the call that got this answered TW_INPROGRESS.
    [[nodiscard]] explicit operator bool() const { return request_ != nullptr; }
    [[nodiscard]] tw_request_h get() const { return request_; }
    /// TW_INPROGRESS, or the status of its end. Only while there is an operation.
    tw_status_t test(tw_completion_t* done = nullptr) const {
        return tw_request_test(request_, done);
    }
    /// Progresses until its end: the status of that, or TW_INPROGRESS when the time has passed.
    /// Only while there is an operation.
    tw_status_t wait(tw_wait_mode_t mode = TW_WAIT_YIELD, std::uint64_t timeout_ns = UINT64_MAX,
                     tw_completion_t* done = nullptr) const {
        return tw_request_wait(request_, mode, timeout_ns, done);
    }
    tw_status_t cancel() const { return tw_request_cancel(request_); }
    void reset() {
        if (request_ != nullptr)
            tw_request_free(std::exchange(request_, nullptr));
    }
    /// Where a call puts the next operation; this one is given up.
    tw_request_h* out() {
        reset();
        return &request_;
    }

  private:
    tw_request_h request_ = nullptr;
};

namespace detail {

inline const tw_request_h* handles_of(std::span<const Request> requests) {
    static_assert(sizeof(Request) == sizeof(tw_request_h) && std::is_standard_layout_v<Request>);
    return reinterpret_cast<const tw_request_h*>(requests.data());
}

}  // namespace detail

/// Progresses until one of the operations, all of one worker, has ended: TW_OK, and `index` is the
/// first that has. TW_INPROGRESS: the time has passed. Requests without an operation are passed
/// over.
inline tw_status_t wait_any(std::span<const Request> requests, std::size_t& index,
                            tw_wait_mode_t mode = TW_WAIT_YIELD,
                            std::uint64_t timeout_ns = UINT64_MAX) {
    return tw_wait_any(detail::handles_of(requests), requests.size(), mode, timeout_ns, &index);
}
/// The same until all of them have ended.
inline tw_status_t wait_all(std::span<const Request> requests, tw_wait_mode_t mode = TW_WAIT_YIELD,
                            std::uint64_t timeout_ns = UINT64_MAX) {
    return tw_wait_all(detail::handles_of(requests), requests.size(), mode, timeout_ns);
}

/// Arguments of a call beside buffer, tag and peer, and where its operation goes: nothing, an Op, a
/// Request, or {op, request}. With a callback or TW_OP_COMPLETION the operation returns to the
/// library by itself: so a plain handle takes the place of the Request. A callback beside a Request
/// does not compile; a Request beside TW_OP_COMPLETION, or a callback in disguise, stays empty.
class How {
  public:
    How() = default;
    How(const tw_op_t& op) : op_(&op) {}
    How(Request& request) : request_(request.out()) {}
    How(const tw_op_t& op, Request& request) : op_(&op) {
        tw_request_h* const handle = request.out();
        if (op.complete == nullptr && (op.flags & TW_OP_COMPLETION) == 0)
            request_ = handle;
    }
    How(const CallbackOp& op, Request& request) = delete;
    How(const tw_op_t& op, tw_request_h& handle) : op_(&op), request_(&handle) {}

    [[nodiscard]] const tw_op_t* op() const { return op_; }
    [[nodiscard]] tw_request_h* request() const { return request_; }

  private:
    const tw_op_t* op_ = nullptr;
    tw_request_h* request_ = nullptr;
};

/// Memory of the program for `count` operations, for Op::place().
class RequestMemory {
  public:
    explicit RequestMemory(std::size_t count)
        : stride_((tw_request_bytes() + kAlign - 1) / kAlign * kAlign),
          bytes_(
              static_cast<std::byte*>(::operator new (stride_* count, std::align_val_t{kAlign}))) {}

    [[nodiscard]] void* at(std::size_t index) const { return bytes_.get() + index * stride_; }

  private:
    static constexpr std::size_t kAlign = 64;
    struct Free {
        void operator()(std::byte* bytes) const {
            ::operator delete (bytes, std::align_val_t{kAlign});
        }
    };
    std::size_t stride_;
    std::unique_ptr<std::byte, Free> bytes_;
};

}  // namespace msg
}  // namespace v1
}  // namespace tagwire

#endif
