// SPDX-License-Identifier: BSD-3-Clause
// The envelope of a send, and the result of packing it.
#pragma once

#include <sys/types.h>
#include <ucs/type/status.h>

#include <cstdint>

#include "protocols/request/outgoing.hpp"
#include "protocols/request/request.hpp"
#include "protocols/wire/am_header.hpp"
#include "protocols/wire/eager_header.hpp"

namespace tagwire::proto {

inline Envelope envelope_of(const Request& request, std::uint32_t sender) {
    const std::uint64_t id = request.done.tag;
    Envelope envelope = Envelope::of(
        sender, request.is_tagged,
        request.is_am ? AmWord::encode(static_cast<std::uint32_t>(id), request.am_header_bytes)
                      : id);
    if ((request.flags & TW_OP_IMM) != 0)
        envelope.add_imm(request.done.imm);
    return envelope;
}

/// The envelope of a plain send, or of one that is_plain_send_with_imm().
inline Envelope plain_envelope(const Outgoing& message, std::uint32_t sender) {
    Envelope envelope = Envelope::of(sender, message.is_tagged, message.tag);
    if (message.op != nullptr && (message.op->flags & TW_OP_IMM) != 0)
        envelope.add_imm(message.op->imm);
    return envelope;
}

/// The status of a call that returns the bytes that it packed, or a failure.
inline ucs_status_t status_of(ssize_t packed) {
    return packed < 0 ? static_cast<ucs_status_t>(packed) : UCS_OK;
}

}  // namespace tagwire::proto
