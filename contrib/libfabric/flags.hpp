// SPDX-License-Identifier: BSD-3-Clause
// Helpers that all kinds of sends and receives share.
#pragma once

#include <rdma/fabric.h>
#include <tagwire.h>

#include <algorithm>
#include <cstddef>
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
    op.info = nullptr;
    op.cq = nullptr;
    op.counter = nullptr;
}

/// `flag` if `is_set`, else nothing.
constexpr std::uint32_t flag_if(bool is_set, std::uint32_t flag) {
    return is_set ? flag : 0;
}

/// The call has done nothing.
constexpr bool is_refusal(tw_status_t status) {
    return status == TW_ERR_NO_RESOURCE || status == TW_ERR_INVALID_PARAM ||
           status == TW_ERR_NO_MEMORY;
}

/// The completion of a receive that has ended in its call. `room`: bytes of its buffer. `info` had
/// no source before the call: without one no message was matched.
inline tw_completion_t completion_of(tw_status_t status, const tw_message_info_t& info,
                                     std::size_t room, bool is_tagged) {
    tw_completion_t done{};
    done.status = status;
    done.flags = TW_DONE_RECV | (is_tagged ? std::uint32_t{TW_DONE_TAGGED} : 0U);
    const bool is_here = status == TW_OK || status == TW_ERR_MESSAGE_TRUNCATED;
    if (!is_here && info.source == 0)
        return done;
    done.flags = info.flags;
    done.length = is_here ? std::min(info.length, room) : 0;
    done.message_length = info.length;
    done.tag = info.tag;
    done.imm = info.imm;
    done.source = info.source;
    done.ep = info.ep;
    return done;
}

/// Flags of an entry that the message decides.
inline std::uint64_t receive_flags_of(const tw_completion_t& done) {
    return FI_RECV | ((done.flags & TW_DONE_TAGGED) != 0 ? FI_TAGGED : FI_MSG) |
           ((done.flags & TW_DONE_IMM) != 0 ? FI_REMOTE_CQ_DATA : 0);
}

}  // namespace tagwire::fi
