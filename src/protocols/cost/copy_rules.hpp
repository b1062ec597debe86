// SPDX-License-Identifier: BSD-3-Clause
// Kinds of the two copies of a long message over a rail of shared memory: copy-in by the sender,
// copy-out by the receiver. Decided when a rail is opened (Rail::select), read by each message that
// does not fit a slot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "ucs/memory/copy.hpp"

namespace tagwire::proto {

/// A kind from a length on; shorter messages are copied by memcpy(3).
struct CopyRule {
    /// From where a setting applies that names a kind.
    static constexpr std::uint32_t kNamedFrom = 1024;

    std::uint32_t from = std::numeric_limits<std::uint32_t>::max();  // bytes of the message
    ucs::CopyKind kind = ucs::CopyKind::kLibc;

    /// The plain copies of this processor, used where nothing was measured.
    static CopyRule of_processor() {
        CopyRule rule;
        rule.kind = ucs::plain_copy_kind();
        if (rule.kind != ucs::CopyKind::kLibc)
            rule.from = ucs::kPlainCopyFrom;
        return rule;
    }

    ucs::CopyKind kind_for(std::size_t message_bytes) const {
        return message_bytes >= from ? kind : ucs::CopyKind::kLibc;
    }
};

struct CopyRules {
    CopyRule in;   // copy-in: from the program into a buffer of the transport
    CopyRule out;  // copy-out: from there to the receiver's program
};

}  // namespace tagwire::proto
