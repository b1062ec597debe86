// SPDX-License-Identifier: BSD-3-Clause
// Decoding of what peers send: each field is read once.
#include "protocols/wire.hpp"

#include <cstring>
#include <type_traits>

namespace tagwire::proto {

namespace {

/// Takes a T from the front. False: there are too few bytes.
template <class T>
bool take(WireBytes* bytes, T* value) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (bytes->size() < sizeof *value)
        return false;
    std::memcpy(value, bytes->data(), sizeof *value);
    *bytes = bytes->subspan(sizeof *value);
    return true;
}

template <class T>
bool take_all(WireBytes bytes, T* value) {
    return bytes.size() == sizeof *value && take(&bytes, value);
}

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

bool take_rail(WireBytes* bytes, PeerRail* rail) {
    RailHead head{};
    if (!take(bytes, &head))
        return false;
    const std::size_t addresses = std::size_t{head.device_bytes} + head.iface_bytes;
    if (bytes->size() < addresses)
        return false;
    rail->transport.assign(head.transport, strnlen(head.transport, sizeof head.transport));
    rail->domain = head.domain;
    rail->flags = head.flags;
    const WireBytes device = bytes->first(head.device_bytes);
    const WireBytes iface = bytes->subspan(head.device_bytes, head.iface_bytes);
    rail->device.assign(device.begin(), device.end());
    rail->iface.assign(iface.begin(), iface.end());
    *bytes = bytes->subspan(addresses);
    return true;
}

/// No receive would ever match an untagged message that has a tag.
bool has_fitting_tag(const Header& header) {
    return (header.flags & kTagged) != 0 || header.tag == 0;
}

}  // namespace

bool decode(const Header& header, WireBytes behind, EagerBody* body) {
    if ((header.flags & ~std::uint32_t{kHeaderFlags}) != 0 || !has_fitting_tag(header) ||
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
    if (!has_more)
        body->length = behind.size();
    body->data = behind;
    return !has_more || body->length > behind.size();
}

bool decode(const Header& header, WireBytes behind, RndvBody* body) {
    constexpr std::uint32_t kAllowed = kTagged | kImm | kAnnounced;
    return (header.flags & ~kAllowed) == 0 && has_fitting_tag(header) &&
           ((header.flags & kImm) == 0 || take(&behind, &body->imm)) &&
           take(&behind, &body->rndv) && body->rndv.send_id != 0 &&
           (body->rndv.flags & ~unsigned{kRndvFlags}) == 0 &&
           copy_keys(behind, body->rndv.key_count, &body->keys);
}

bool decode(WireBytes bytes, PartMessage* message) {
    if (!take(&bytes, &message->part))
        return false;
    message->data = bytes;
    return !bytes.empty();
}

bool decode(WireBytes bytes, DataMessage* message) {
    if (!take(&bytes, &message->head))
        return false;
    message->data = bytes;
    return message->head.receive_id != 0 && !bytes.empty();
}

bool decode(WireBytes bytes, PutMessage* message) {
    PutOffer& offer = message->offer;
    if (!take(&bytes, &offer) || offer.send_id == 0 || offer.receive_id == 0 || offer.length == 0 ||
        (offer.flags & ~unsigned{kPutFlags}) != 0)
        return false;
    const KeyHead first{offer.domain, offer.key_bytes};
    std::memcpy(message->keys.bytes, &first, sizeof first);
    message->keys.used = sizeof first;
    if (bytes.size() < first.bytes || bytes.size() > sizeof message->keys.bytes - sizeof first)
        return false;
    std::memcpy(message->keys.bytes + sizeof first, bytes.data(), first.bytes);
    message->keys.used += first.bytes;
    return copy_keys(bytes.subspan(first.bytes), offer.key_count, &message->keys);
}

bool decode(WireBytes bytes, Control* message) {
    return take_all(bytes, message) && message->op >= static_cast<std::uint32_t>(ControlOp::kAck) &&
           message->op <= static_cast<std::uint32_t>(ControlOp::kDown);
}

bool decode(WireBytes bytes, Placeholder* message) {
    return take_all(bytes, message);
}

bool decode(WireBytes bytes, Wireup* message, WireBytes* behind) {
    if (!take(&bytes, message))
        return false;
    *behind = bytes;
    return message->op >= static_cast<std::uint32_t>(WireupOp::kHello) &&
           message->op <= static_cast<std::uint32_t>(WireupOp::kStripeRefuse);
}

bool decode(WireBytes bytes, HelloMessage* message) {
    const Hello& hello = message->hello;
    if (!take(&bytes, &message->hello) || hello.id == 0 || hello.rails == 0 ||
        hello.rails > UINT8_MAX)
        return false;
    message->rails.resize(hello.rails);
    for (PeerRail& rail : message->rails)
        if (!take_rail(&bytes, &rail))
            return false;
    return bytes.empty();
}

bool decode(WireBytes bytes, OfferMessage* message) {
    if (!take(&bytes, &message->offer) || bytes.size() != message->offer.address_bytes)
        return false;
    message->address.assign(bytes.begin(), bytes.end());
    return true;
}

}  // namespace tagwire::proto
