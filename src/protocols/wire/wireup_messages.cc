// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/wire/wireup_messages.hpp"

#include <cstring>

namespace tagwire::proto {

namespace {

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

}  // namespace

std::uint32_t check_of(WireBytes device, WireBytes iface) {
    std::uint32_t hash = 2166136261U;
    for (const WireBytes bytes : {device, iface})
        for (const std::byte byte : bytes)
            hash = (hash ^ std::to_integer<std::uint32_t>(byte)) * 16777619U;
    return hash;
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
        hello.rails > UINT8_MAX || hello.from_rail > hello.rails ||
        (hello.tx_context == 0) != (hello.worker == 0))
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
