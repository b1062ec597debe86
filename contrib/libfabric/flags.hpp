// SPDX-License-Identifier: BSD-3-Clause
// Helpers that all kinds of sends and receives share.
#pragma once

#include <rdma/fabric.h>
#include <tagwire.h>

#include <cstdint>

namespace tagwire::fi {

inline void fill(tw_op_t& op, std::uint32_t flags) {
    op.flags = flags;
    op.context = nullptr;
    op.complete = nullptr;
    op.request = nullptr;
    op.imm = 0;
    op.mem = nullptr;
    op.source = nullptr;
    op.message = nullptr;
    op.done = nullptr;
    op.cq = nullptr;
    op.counter = nullptr;
}

/// `flag` if `is_set`, else nothing.
constexpr std::uint32_t flag_if(bool is_set, std::uint32_t flag) {
    return is_set ? flag : 0;
}

/// Flags of an entry that the message decides.
inline std::uint64_t receive_flags_of(const tw_completion_t& done) {
    return FI_RECV | ((done.flags & TW_DONE_TAGGED) != 0 ? FI_TAGGED : FI_MSG) |
           ((done.flags & TW_DONE_IMM) != 0 ? FI_REMOTE_CQ_DATA : 0);
}

}  // namespace tagwire::fi
