// SPDX-License-Identifier: BSD-3-Clause
// The envelope: the header of a message of the program and the optional words behind it.
#pragma once

#include <sys/types.h>
#include <ucs/type/status.h>

#include <cstddef>
#include <cstdint>

#include "protocols/request.hpp"
#include "protocols/wire.hpp"

namespace tagwire::proto {

/// Its first `bytes` bytes are what is sent.
struct Envelope {
    Header header;
    std::uint64_t words[3];
    std::size_t bytes;
};

inline Envelope envelope_of(const Request& request, std::uint32_t sender) {
    Envelope envelope{
        {sender, request.is_tagged ? kTagged : 0U, request.done.tag}, {}, sizeof(Header)};
    std::size_t words = 0;
    if ((request.flags & TW_OP_IMM) != 0) {
        envelope.header.flags |= kImm;
        envelope.words[words++] = request.done.imm;
    }
    if ((request.flags & (TW_OP_MATCH_COMPLETE | TW_OP_DELIVERY_COMPLETE)) != 0) {
        envelope.header.flags |=
            (request.flags & TW_OP_DELIVERY_COMPLETE) != 0 ? kAckDelivery : kAckMatch;
        envelope.words[words++] = request.id;
    }
    envelope.bytes += words * sizeof(std::uint64_t);
    return envelope;
}

/// The status of a call that returns the bytes that it packed, or a failure.
inline ucs_status_t status_of(ssize_t packed) {
    return packed < 0 ? static_cast<ucs_status_t>(packed) : UCS_OK;
}

}  // namespace tagwire::proto
