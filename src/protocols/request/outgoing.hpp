// SPDX-License-Identifier: BSD-3-Clause
// Parameters of a call that sends a message, and what its tw_op_t asks for.
#pragma once

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

}  // namespace tagwire::proto
