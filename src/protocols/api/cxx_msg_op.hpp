// SPDX-License-Identifier: BSD-3-Clause
//
// What an operation is told, and what a program keeps while it is under way. Included by
// tagwire_msg.hpp.
#ifndef TAGWIRE_PROTOCOLS_API_CXX_MSG_OP_HPP
#define TAGWIRE_PROTOCOLS_API_CXX_MSG_OP_HPP

#include <protocols/api/cxx_msg_base.hpp>

#include <new>

namespace tagwire {
inline namespace v1 {
namespace msg {

/// A tw_op_t that begins with the defaults; each call sets one thing.
class Op : public tw_op_t {
  public:
    explicit Op(std::uint32_t op_flags = 0) : tw_op_t{} { flags = op_flags; }

    /// Further TW_OP_x.
    Op& with(std::uint32_t more) {
        flags |= more;
        return *this;
    }
    /// `callable(const tw_completion_t&)` runs when the operation ends, unless the call itself
    /// answers that. Takes the place of the context.
    template <class Done>
    Op& on_complete(Done& callable) {
        context = detail::arg_of(callable);
        complete = [](const tw_completion_t* end) { (*static_cast<Done*>(end->context))(*end); };
        return *this;
    }
    /// What the completion has as its context.
    Op& carry(void* pointer) {
        context = pointer;
        return *this;
    }
    /// Travels with the message.
    Op& immediate(std::uint64_t value) {
        flags |= TW_OP_IMM;
        imm = value;
        return *this;
    }
    /// Covers the whole buffer.
    Op& memory(tw_mem_h handle) {
        mem = handle;
        return *this;
    }
    /// Receives: only from the peer of this endpoint.
    Op& from(tw_ep_h ep) {
        source = ep;
        return *this;
    }
    /// Gets the completion when the call itself answers the end.
    Op& ended(tw_completion_t& end) {
        done = &end;
        return *this;
    }
    /// Memory of the program for the request; see RequestMemory.
    Op& place(void* request_memory) {
        request = request_memory;
        return *this;
    }
};

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

/// What a call is told beside buffer, tag and peer, and where its operation goes: nothing, an Op, a
/// Request, or {op, request}. With a callback or TW_OP_COMPLETION the operation is the library's
/// again by itself, so that a plain handle takes the place of the Request.
class How {
  public:
    How() = default;
    How(const tw_op_t& op) : op_(&op) {}
    How(Request& request) : request_(request.out()) {}
    How(const tw_op_t& op, Request& request) : op_(&op), request_(request.out()) {}
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
