// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/wire/am_header.hpp"

namespace tagwire::proto {

bool decode(const Header& header, WireBytes behind, AmBody* body) {
    body->word = AmWord::of(header);
    const Header untagged{header.sender, header.flags, 0};
    if ((header.flags & ~(kAcks | kMoreParts)) != 0 || !decode(untagged, behind, &body->eager) ||
        body->word.space > kOwnAmSpace || !body->word.is_sound(body->eager.data.size()))
        return false;
    body->header = body->eager.data.first(body->word.header_bytes);
    return true;
}

bool decode(const Header& header, WireBytes behind, AmRtsBody* body) {
    body->word = AmWord::of(header);
    if (header.flags != 0 || body->word.space > kOwnAmSpace || !body->word.is_sound(behind.size()))
        return false;
    body->header = behind.first(body->word.header_bytes);
    return decode(Header{header.sender, 0, 0}, behind.subspan(body->word.header_bytes),
                  &body->rndv);
}

}  // namespace tagwire::proto
