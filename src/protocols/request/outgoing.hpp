// SPDX-License-Identifier: BSD-3-Clause
// Parameters of a call that sends a message, and what its tw_op_t asks for.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "protocols/api/tw_def.h"

namespace tagwire::proto {

struct AmPart;

/// Parameters of a send call.
struct Outgoing {
    const void* base;
    std::size_t length;
    const tw_iov_t* list;
    std::size_t count;
    std::uint64_t tag;
    bool is_tagged;
    const tw_op_t* op;
    tw_request_h* request_p;
    const AmPart* am = nullptr;  // an active message, whose tag is then AmPart::word()
};

/// The message passes a pause, and messages that wait.
inline bool is_urgent(const tw_op_t* op) {
    return op != nullptr && (op->flags & TW_OP_URGENT) != 0;
}

/// The library keeps the operation where the call would be refused.
inline bool asks_to_queue(const tw_op_t* op) {
    return op != nullptr && (op->flags & TW_OP_QUEUE) != 0;
}

/// Flags of sends that are over when the transport has taken them.
inline constexpr std::uint32_t kPlainSendFlags = TW_OP_MORE | TW_OP_INJECT | TW_OP_QUEUE;
/// Flags of active messages that are over likewise; a short one is as urgent messages are.
inline constexpr std::uint32_t kPlainAmFlags = kPlainSendFlags | TW_OP_URGENT;

/// One test for all of them, which is shorter than one for each.
[[gnu::always_inline]] inline bool are_null(auto*... pointers) {
    return (std::bit_cast<std::uintptr_t>(pointers) | ...) == 0;
}

inline bool is_plain_send(const tw_op_t* op, std::uint32_t flags = kPlainSendFlags) {
    return op == nullptr || (op->struct_bytes == sizeof(tw_op_t) && (op->flags & ~flags) == 0 &&
                             are_null(op->mem, op->request, op->cq, op->counter));
}

/// Plain but for an immediate, which it has.
inline bool is_plain_send_with_imm(const tw_op_t* op) {
    return op != nullptr && (op->flags & TW_OP_IMM) != 0 &&
           is_plain_send(op, kPlainSendFlags | TW_OP_IMM);
}

}  // namespace tagwire::proto
