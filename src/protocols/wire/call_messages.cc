// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/wire/call_messages.hpp"

#include <cstring>

namespace tagwire::proto {

namespace {

template <class Message>
bool copied(WireBytes bytes, Message* header) {
    if (bytes.size() != sizeof *header)
        return false;
    std::memcpy(header, bytes.data(), sizeof *header);
    return header->version == Message::kVersion && header->reserved == 0;
}

/// The reasons for which a server's library refuses a request.
bool is_reason(std::int32_t status) {
    return status == TW_ERR_NO_ELEM || status == TW_ERR_NO_RESOURCE ||
           status == TW_ERR_EXCEEDS_LIMIT || status == TW_ERR_NO_MEMORY;
}

}  // namespace

bool decode(WireBytes bytes, CallHeader* header) {
    return copied(bytes, header);
}

bool decode(WireBytes bytes, ReplyHeader* header) {
    return copied(bytes, header) && (header->flags & ~unsigned{ReplyHeader::kRefused}) == 0 &&
           (!header->is_refusal() || is_reason(header->status));
}

}  // namespace tagwire::proto
