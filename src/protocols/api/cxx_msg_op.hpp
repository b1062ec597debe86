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

/// A tw_op_t that begins with the defaults; each call sets one thing. Start from Op; on_complete()
/// makes it a CallbackOp, whose completion is reported once and whose handle is void afterwards.
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
    /// `callable(const tw_completion_t&)` runs when the operation completes, unless it completes
    /// within the call. Replaces the context. Sets the callback in this object and returns a copy.
    template <class Done>
    BasicOp<true> on_complete(Done& callable) {
        context = detail::arg_of(callable);
        complete = [](const tw_completion_t* end) { (*static_cast<Done*>(end->context))(*end); };
        return BasicOp<true>(*this);
    }
    /// Sets the context that the completion carries.
    BasicOp& user_data(void* pointer) {
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
    /// Receives: `message` is filled if the operation completes within the call, with TW_OK or
    /// TW_ERR_MESSAGE_TRUNCATED.
    BasicOp& tell(tw_message_info_t& message) {
        info = &message;
        return *this;
    }
    /// The completion goes to this queue.
    BasicOp& completion_queue(tw_cq_h queue) {
        static_assert(!kHasCallback, "the completion goes to the callback");
        flags |= TW_OP_COMPLETION;
        cq = queue;
        return *this;
    }
    /// Counts the operation when it has ended.
    BasicOp& count(tw_counter_h counting) {
        counter = counting;
        return *this;
    }
    /// The library keeps the operation where the call would return TW_ERR_NO_RESOURCE.
    BasicOp& queue() {
        flags |= TW_OP_QUEUE;
        return *this;
    }
    /// Memory of the program for the request; see RequestMemory.
    BasicOp& request_memory(void* memory_of_program) {
        request = memory_of_program;
        return *this;
    }
};
using Op = BasicOp<false>;
using CallbackOp = BasicOp<true>;

/// The completion of a receive that has ended within its call with `status`, as Op::tell() has told
/// of it: for programs that treat it as those that follow. `room`: bytes of the buffer. `info` had
/// no source before the call.
inline tw_completion_t completion_of(tw_status_t status, const tw_message_info_t& info,
                                     std::size_t room, void* context = nullptr) {
    tw_completion_t done{};
    done.context = context;
    done.status = status;
    done.flags = TW_DONE_RECV;
    const bool is_here = status == TW_OK || status == TW_ERR_MESSAGE_TRUNCATED;
    if (!is_here && info.source == 0)
        return done;  // no message was matched
    done.flags = info.flags;
    if (is_here)
        done.length = info.length < room ? info.length : room;
    done.message_length = info.length;
    done.tag = info.tag;
    done.imm = info.imm;
    done.source = info.source;
    done.ep = info.ep;
    return done;
}

/// Handle of an operation that has neither callback, queue nor TW_OP_COMPLETION, to test or wait
/// for it. If the handle is destroyed first, the operation goes on and its completion is not
/// reported.
class Request {
  public:
    Request() = default;
    Request(Request&& other) noexcept : request_(std::exchange(other.request_, nullptr)) {}
    Request& operator=(Request&& other) noexcept {
        std::swap(request_, other.request_);
        return *this;
    }
    ~Request() { reset(); }

    /// Whether there is an operation: the call that was given this object returned TW_INPROGRESS.
    [[nodiscard]] explicit operator bool() const { return request_ != nullptr; }
    [[nodiscard]] tw_request_h get() const { return request_; }
    /// TW_INPROGRESS, or the status of the completion. Only while there is an operation.
    Status test(tw_completion_t* done = nullptr) const {
        return {tw_request_test(request_, done), "tw_request_test"};
    }
    /// Progresses until the operation completes and returns its status, or TW_INPROGRESS after
    /// `timeout_ns`. Only while there is an operation.
    Status wait(tw_wait_mode_t mode = TW_WAIT_YIELD, std::uint64_t timeout_ns = UINT64_MAX,
                tw_completion_t* done = nullptr) const {
        return {tw_request_wait(request_, mode, timeout_ns, done), "tw_request_wait"};
    }
    Status cancel() const { return {tw_request_cancel(request_), "tw_request_cancel"}; }
    void reset() {
        if (request_ != nullptr)
            tw_request_free(std::exchange(request_, nullptr));
    }
    /// Where a call puts the next operation. Releases the present one, which goes on.
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

/// Progresses until one of the operations has completed. All belong to one worker; requests without
/// an operation are skipped. TW_OK: `index` is the first that has completed. TW_INPROGRESS:
/// `timeout_ns` have passed.
inline Status wait_any(std::span<const Request> requests, std::size_t& index,
                       tw_wait_mode_t mode = TW_WAIT_YIELD, std::uint64_t timeout_ns = UINT64_MAX) {
    return {tw_wait_any(detail::handles_of(requests), requests.size(), mode, timeout_ns, &index),
            "tw_wait_any"};
}
/// Progresses until all operations have completed; otherwise as wait_any().
inline Status wait_all(std::span<const Request> requests, tw_wait_mode_t mode = TW_WAIT_YIELD,
                       std::uint64_t timeout_ns = UINT64_MAX) {
    return {tw_wait_all(detail::handles_of(requests), requests.size(), mode, timeout_ns),
            "tw_wait_all"};
}

/// Arguments of a call beside buffer, tag and peer, and where its operation goes: nothing, an Op, a
/// Request, or {op, request}. An operation with a callback, a queue or TW_OP_COMPLETION is released
/// by the library: give a plain tw_request_h instead of a Request. A CallbackOp with a Request does
/// not compile; with TW_OP_COMPLETION, a queue, or a callback set in a plain tw_op_t, the Request
/// stays empty.
class OpArgs {
  public:
    OpArgs() = default;
    OpArgs(const tw_op_t& op) : op_(&op) {}
    OpArgs(Request& request) : request_(request.out()) {}
    OpArgs(const tw_op_t& op, Request& request) : op_(&op) {
        tw_request_h* const handle = request.out();
        if (op.complete == nullptr && op.cq == nullptr && (op.flags & TW_OP_COMPLETION) == 0)
            request_ = handle;
    }
    OpArgs(const CallbackOp& op, Request& request) = delete;
    OpArgs(const tw_op_t& op, tw_request_h& handle) : op_(&op), request_(&handle) {}

    [[nodiscard]] const tw_op_t* op() const { return op_; }
    [[nodiscard]] tw_request_h* request() const { return request_; }

  private:
    const tw_op_t* op_ = nullptr;
    tw_request_h* request_ = nullptr;
};

/// Memory of the program for `count` operations, for Op::request_memory().
class RequestMemory {
  public:
    explicit RequestMemory(std::size_t count)
        : bytes_(
              static_cast<std::byte*>(::operator new (kStride* count, std::align_val_t{kAlign}))) {}

    [[nodiscard]] void* at(std::size_t index) const { return bytes_.get() + index * kStride; }

  private:
    static constexpr std::size_t kAlign = 64;  // a request of it begins with a cache line
    static constexpr std::size_t kStride = (TW_REQUEST_BYTES + kAlign - 1) / kAlign * kAlign;
    struct Free {
        void operator()(std::byte* bytes) const {
            ::operator delete (bytes, std::align_val_t{kAlign});
        }
    };
    std::unique_ptr<std::byte, Free> bytes_;
};

}  // namespace msg
}  // namespace v1
}  // namespace tagwire

#endif
