// SPDX-License-Identifier: BSD-3-Clause
// Fuzz target of input from other processes outside of the rings: addresses, packets of the
// connection socket, remote keys. Accepted input must be safe to use: the target does the same
// arithmetic with it as the library.
#include <string>

#include "input.hpp"
#include "target.hpp"
#include "uct/sm/wire.hpp"

namespace tagwire::fuzz::sm_wire_fuzz {
namespace {

void addresses(std::span<const std::byte> bytes) {
    std::string reason;
    if (const auto address = sm::parse_iface_address(bytes, &reason))
        require(sm::socket_name(address->name).size() < 100);  // fits sockaddr_un
    else
        require(!reason.empty());
    static_cast<void>(sm::parse_device_address(bytes));
}

void packet(std::span<const std::byte> bytes) {
    std::string reason;
    const auto type = sm::check_packet(bytes, &reason);
    if (!type) {
        require(!reason.empty());
        return;
    }
    if (*type == sm::PacketType::kHello) {
        sm::Hello hello;
        require(bytes.size() == sizeof hello);
        std::memcpy(&hello, bytes.data(), sizeof hello);
        if (sm::check_hello(hello, &reason))
            require(hello.bell_bytes >= sizeof(sm::Bell<>) && hello.arena_bytes > 0);
    } else if (*type == sm::PacketType::kRing) {
        sm::RingOffer offer;
        require(bytes.size() == sizeof offer);
        std::memcpy(&offer, bytes.data(), sizeof offer);
        if (const auto ring = sm::check_ring_offer(offer, &reason)) {
            require(ring->bytes() == offer.bytes);
            require(ring->rndv_offset() + sm::kRndvCount * sizeof(sm::RndvWord) <=
                    ring->front_offset());
            require(ring->front_offset() + ring->front_count() * sm::kSlotBytes <=
                    ring->back_offset());
            require(ring->back_offset() + ring->back_count() * sm::kSlotBytes <=
                    ring->reserve_offset());
            require(ring->reserve_offset() + std::size_t{sm::kReserveCount} * ring->seg_bytes <=
                    offer.bytes);
        }
    }
}

void remote_key(std::span<const std::byte> bytes) {
    std::string reason;
    if (const auto key = sm::parse_rkey(bytes, &reason))
        require(key->address + key->length >= key->address);
    else
        require(!reason.empty());
}

void run_input(const std::uint8_t* data, std::size_t size) {
    Input input(data, size);
    const auto kind = input.take<std::uint8_t>() % 3;
    if (kind == 0)
        addresses(input.rest());
    else if (kind == 1)
        packet(input.rest());
    else
        remote_key(input.rest());
}

}  // namespace

extern const Target kTarget{"sm_wire", nullptr, run_input};

}  // namespace tagwire::fuzz::sm_wire_fuzz
