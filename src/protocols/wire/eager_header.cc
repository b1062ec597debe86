// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/wire/eager_header.hpp"

namespace tagwire::proto {

bool decode(const Header& header, WireBytes behind, EagerBody* body) {
    if (!is_sound(header, kHeaderFlags) ||
        ((header.flags & kImm) != 0 && !take(&behind, &body->imm)))
        return false;
    if ((header.flags & kAcks) != 0) {
        std::uint64_t word = 0;
        if (!take(&behind, &word) || word == 0 || word > UINT32_MAX)
            return false;
        body->send_id = static_cast<std::uint32_t>(word);
    }
    const bool has_more = (header.flags & kMoreParts) != 0;
    if (has_more && !take(&behind, &body->length))
        return false;
    if ((header.flags & kTimed) != 0 && !take(&behind, &body->begun))
        return false;
    if (!has_more)
        body->length = behind.size();
    body->data = behind;
    return !has_more || body->length > behind.size();
}

bool decode(WireBytes bytes, Placeholder* message) {
    return take_all(bytes, message);
}

}  // namespace tagwire::proto
