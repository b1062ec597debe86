// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/wire/rndv_messages.hpp"

#include <cstring>

namespace tagwire::proto {

namespace {

/// Copies all of `bytes` behind what is in `keys`. False: they are not `count` keys.
bool copy_keys(WireBytes bytes, unsigned count, KeyList* keys) {
    if (bytes.size() > sizeof keys->bytes - keys->used)
        return false;
    std::byte* const start = keys->bytes + keys->used;
    if (!bytes.empty())
        std::memcpy(start, bytes.data(), bytes.size());
    keys->used += bytes.size();
    WireBytes copied{start, bytes.size()};
    for (unsigned i = 0; i < count; ++i) {
        KeyHead head{};
        if (!take(&copied, &head) || copied.size() < head.bytes)
            return false;
        copied = copied.subspan(head.bytes);
    }
    return copied.empty();
}

}  // namespace

bool decode(const Header& header, WireBytes behind, RtsBody* body) {
    return is_sound(header, kTagged | kImm | kAnnounced) &&
           ((header.flags & kImm) == 0 || take(&behind, &body->imm)) && take(&behind, &body->rts) &&
           body->rts.send_id != 0 && (body->rts.flags & ~unsigned{kRtsFlags}) == 0 &&
           copy_keys(behind, body->rts.key_count, &body->keys);
}

bool decode(WireBytes bytes, RtrMessage* message) {
    Rtr& rtr = message->rtr;
    if (!take(&bytes, &rtr) || rtr.send_id == 0 || rtr.receive_id == 0 || rtr.length == 0 ||
        (rtr.flags & ~unsigned{kRtrFlags}) != 0)
        return false;
    const KeyHead first{rtr.domain, rtr.key_bytes};
    std::memcpy(message->keys.bytes, &first, sizeof first);
    message->keys.used = sizeof first;
    if (bytes.size() < first.bytes || bytes.size() > sizeof message->keys.bytes - sizeof first)
        return false;
    std::memcpy(message->keys.bytes + sizeof first, bytes.data(), first.bytes);
    message->keys.used += first.bytes;
    return copy_keys(bytes.subspan(first.bytes), rtr.key_count, &message->keys);
}

bool decode(WireBytes bytes, DataMessage* message) {
    if (!take(&bytes, &message->head))
        return false;
    message->data = bytes;
    return message->head.receive_id != 0 && !bytes.empty();
}

}  // namespace tagwire::proto
