// SPDX-License-Identifier: BSD-3-Clause
// Formats exchanged between processes outside of the rings: addresses, packets on the connection
// socket, remote keys. Building and checking only; pure functions, so that they can be fuzzed.
#pragma once

#include <ucs/type/status.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "uct/sm/layout.hpp"

namespace tagwire::sm {

// ---- Addresses

enum class Place : std::uint8_t { kAbstract = 1, kDirectory = 2 };

/// Device address: which machine, and which network namespace (abstract sockets are seen only
/// inside one).
struct DeviceAddress {
    std::uint64_t boot_id;
    std::uint64_t network_namespace;
};

/// Interface address. `name` names the socket; `cookie` is what a sender must know to be let in.
struct IfaceAddress {
    std::uint16_t version;
    Place place;
    // Where the receiver runs; 0xff: unknown. A hint for the sender's rings.
    std::uint8_t numa_node;
    std::uint32_t uid;
    std::uint64_t name;
    std::uint64_t cookie;
};
static_assert(sizeof(DeviceAddress) == 16 && sizeof(IfaceAddress) == 24);

/// Nothing, with the reason in *reason, when the bytes are not an address of ours.
std::optional<IfaceAddress> parse_iface_address(std::span<const std::byte> bytes,
                                                std::string* reason);
std::optional<DeviceAddress> parse_device_address(std::span<const std::byte> bytes);

/// Name of the socket of an interface.
std::string socket_name(std::uint64_t name);
constexpr const char* kSocketPrefix = "tagwire-sm-";

// ---- Packets on the connection socket

constexpr std::uint32_t kPacketMagic = 0x74777031;  // "twp1"

enum class PacketType : std::uint32_t { kHello = 1, kRing = 2, kWake = 3, kLeave = 4 };

/// First packet in both directions. Descriptors with it: bell page, arena.
struct Hello {
    std::uint32_t magic;
    std::uint32_t version;
    PacketType type;
    std::uint32_t has_membarrier;  // the sender of this packet need not fence its sends
    // Cookie of the interface that is addressed; only in the packet of the side that connects.
    std::uint64_t cookie;
    std::uint64_t name;  // of the interface that speaks
    std::uint64_t arena_id;
    std::uint64_t arena_bytes;
    std::uint64_t bell_bytes;
    std::uint64_t probe_address;  // where probe_value lies in the speaker's memory: can we read it?
    std::uint64_t probe_value;
    std::uint32_t bell_bit;  // bit that the addressed side's ring rings at the speaker's bell
    std::uint32_t writer;    // the addressed side's word in the speaker's arena (writers.hpp)
};

/// Announces a ring for messages to the other side. Descriptors with it: its segment, and the pool
/// of the speaker's interface.
struct RingOffer {
    std::uint32_t magic;
    std::uint32_t version;
    PacketType type;
    std::uint32_t slot_count;
    std::uint32_t seg_bytes;
    std::uint32_t pool_blocks;
    std::uint32_t page_bytes;
    std::uint32_t reserved;
    std::uint64_t start;  // first position
    std::uint64_t bytes;  // of the segment
};

/// kWake: wakes a receiver that sleeps in poll(2). kLeave: the speaker has no endpoint on this
/// connection any more and will not use it again; who has none either closes it.
struct Notice {
    std::uint32_t magic;
    std::uint32_t version;
    PacketType type;
    std::uint32_t reserved;
};

constexpr std::size_t kPacketBytesMax = 128;
static_assert(sizeof(Hello) <= kPacketBytesMax && sizeof(RingOffer) <= kPacketBytesMax);

/// Type of a packet of the right magic, version and length; nothing and the reason otherwise.
std::optional<PacketType> check_packet(std::span<const std::byte> packet, std::string* reason);

/// After check_packet(): the geometry, when all numbers agree.
std::optional<RingGeometry> check_ring_offer(const RingOffer& offer, std::string* reason);
bool check_hello(const Hello& hello, std::string* reason);

template <class Packet>
std::span<const std::byte> bytes_of(const Packet& packet) {
    return std::as_bytes(std::span<const Packet, 1>(&packet, 1));
}

// ---- Remote keys

constexpr std::uint32_t kRkeyMagic = 0x7477726b;  // "twrk"
constexpr std::uint64_t kNoOffset = ~std::uint64_t{0};

/// A packed remote key: memory [address, address + length) of its owner. In the owner's arena it
/// starts at arena_offset, elsewhere (kNoOffset) it is the registration `key`.
struct PackedRkey {
    std::uint32_t magic;
    std::uint32_t key;
    std::uint64_t arena_id;
    std::uint64_t arena_offset;
    std::uint64_t address;
    std::uint64_t length;
    std::uint64_t generation;  // of the registration (key_guard.hpp)

    bool covers(std::uint64_t from, std::uint64_t bytes) const {
        return from >= address && from - address <= length && bytes <= length - (from - address);
    }
};
static_assert(sizeof(PackedRkey) == 48);

// A key is serial << kKeyIndexBits | index, so that one of a registration that is gone is noticed.
constexpr unsigned kKeyIndexBits = 20;
constexpr std::uint32_t kKeyIndexMax = 1U << kKeyIndexBits;
constexpr std::uint32_t key_index(std::uint32_t key) {
    return key & (kKeyIndexMax - 1);
}

std::optional<PackedRkey> parse_rkey(std::span<const std::byte> bytes, std::string* reason);

}  // namespace tagwire::sm
