// SPDX-License-Identifier: BSD-3-Clause
// Checks of arguments that several calls of the C API share. Each logs what is wrong, as `call`;
// `context` is that of the worker.
#pragma once

#include <cstddef>
#include <cstdint>

#include "protocols/api/tw_def.h"

namespace tagwire::proto {

class Context;
struct Outgoing;

// Flags that calls accept.
inline constexpr std::uint32_t kAnyFlags = TW_OP_COMPLETION | TW_OP_MORE | TW_OP_QUEUE;
inline constexpr std::uint32_t kFlushFlags = kAnyFlags | TW_OP_FENCE;
inline constexpr std::uint32_t kSendFlags =
    kAnyFlags | TW_OP_INJECT | TW_OP_IMM | TW_OP_TRANSMIT_COMPLETE | TW_OP_DELIVERY_COMPLETE |
    TW_OP_MATCH_COMPLETE | TW_OP_SENT_COMPLETE | TW_OP_FENCE;
inline constexpr std::uint32_t kAmSendFlags =
    (kSendFlags & ~std::uint32_t{TW_OP_IMM}) | TW_OP_URGENT;
inline constexpr std::uint32_t kRecvFlags = kAnyFlags | TW_OP_TRANSMIT_COMPLETE;
inline constexpr std::uint32_t kPutFlags = kSendFlags;
inline constexpr std::uint32_t kAtomicFlags = kPutFlags & ~std::uint32_t{TW_OP_IMM};
inline constexpr std::uint32_t kGetFlags = kAnyFlags | TW_OP_FENCE;
inline constexpr std::uint32_t kPutListFlags = kPutFlags & ~std::uint32_t{TW_OP_INJECT};
inline constexpr std::uint32_t kGetListFlags = kGetFlags;

/// The operation of a call as this library knows it: the program may have been built with a header
/// whose tw_op_t has fewer fields.
class WholeOp {
  public:
    explicit WholeOp(const tw_op_t* given) : op_(given) {
        if (given != nullptr && given->struct_bytes != sizeof(tw_op_t)) [[unlikely]]
            fill(*given);
    }
    WholeOp(const WholeOp&) = delete;
    WholeOp& operator=(const WholeOp&) = delete;

    /// nullptr: the call has none, or one whose size is wrong.
    const tw_op_t* get() const { return op_; }
    /// TW_ERR_INVALID_PARAM and a message, if the size is wrong.
    tw_status_t check(const char* call) const {
        return wrong_bytes_ == kNone ? TW_OK : refuse(call);
    }

  private:
    static constexpr std::size_t kNone = SIZE_MAX;
    [[gnu::noinline, gnu::cold]] void fill(const tw_op_t& given);
    [[gnu::noinline, gnu::cold]] tw_status_t refuse(const char* call) const;

    const tw_op_t* op_;
    std::size_t wrong_bytes_ = kNone;
    union {
        tw_op_t full_;  // an older one, with zeroes for what it lacks
    };
};

[[gnu::noinline, gnu::cold]] tw_status_t refuse_null(const char* call, const char* argument);

tw_status_t check_list(const char* call, const tw_iov_t* iov, size_t iovcnt, size_t* length_p);
tw_status_t check_op(const char* call, const Context& context, const tw_op_t& op,
                     std::uint32_t allowed);
tw_status_t check_memory(const char* call, const Context& context, const tw_op_t& op,
                         const void* base, size_t length, const tw_iov_t* list, size_t count,
                         const char* name = "op->mem");
/// Behind check_memory(): what is received may be written to op.mem.
tw_status_t check_target(const char* call, const tw_op_t& op, const char* name = "op->mem");
/// `message.op` is not null.
[[gnu::noinline]] tw_status_t check_send(const char* call, const Context& context,
                                         const Outgoing& message);

}  // namespace tagwire::proto
