// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/wire.hpp"

#include <cstdio>
#include <cstring>

#include "uct/sm/writers.hpp"

namespace tagwire::sm {

namespace {

constexpr std::uint64_t kArenaBytesMax = std::uint64_t{1} << 44;

struct PacketHead {
    std::uint32_t magic;
    std::uint32_t version;
    PacketType type;
};

std::nullopt_t refuse(std::string* reason, std::string text) {
    if (reason != nullptr)
        *reason = std::move(text);
    return std::nullopt;
}

std::optional<std::size_t> packet_bytes(PacketType type) {
    switch (type) {
        case PacketType::kHello:
            return sizeof(Hello);
        case PacketType::kRing:
            return sizeof(RingOffer);
        case PacketType::kWake:
        case PacketType::kLeave:
            return sizeof(Notice);
    }
    return std::nullopt;
}

}  // namespace

std::optional<IfaceAddress> parse_iface_address(std::span<const std::byte> bytes,
                                                std::string* reason) {
    if (bytes.size() < sizeof(IfaceAddress))
        return refuse(reason, "the interface address is too short");
    IfaceAddress address;
    std::memcpy(&address, bytes.data(), sizeof address);
    if (address.version != kFormatVersion) {
        return refuse(reason, "the peer speaks version " + std::to_string(address.version) +
                                  " of the shared-memory format, this library version " +
                                  std::to_string(kFormatVersion));
    }
    if (address.place != Place::kAbstract && address.place != Place::kDirectory)
        return refuse(reason, "not an address of the sm transport");
    return address;
}

std::optional<DeviceAddress> parse_device_address(std::span<const std::byte> bytes) {
    if (bytes.size() < sizeof(DeviceAddress))
        return std::nullopt;
    DeviceAddress address;
    std::memcpy(&address, bytes.data(), sizeof address);
    return address;
}

std::string socket_name(std::uint64_t name) {
    char text[40];
    std::snprintf(text, sizeof text, "%s%016llx", kSocketPrefix,
                  static_cast<unsigned long long>(name));
    return text;
}

std::optional<PacketType> check_packet(std::span<const std::byte> packet, std::string* reason) {
    PacketHead head;
    if (packet.size() < sizeof head)
        return refuse(reason, "packet of " + std::to_string(packet.size()) + " bytes");
    std::memcpy(&head, packet.data(), sizeof head);
    if (head.magic != kPacketMagic)
        return refuse(reason, "packet with a wrong magic number");
    if (head.version != kFormatVersion) {
        return refuse(reason, "packet of format version " + std::to_string(head.version) +
                                  ", expected version " + std::to_string(kFormatVersion));
    }
    const auto bytes = packet_bytes(head.type);
    if (!bytes || *bytes != packet.size()) {
        return refuse(reason, "packet of type " +
                                  std::to_string(static_cast<std::uint32_t>(head.type)) + " with " +
                                  std::to_string(packet.size()) + " bytes");
    }
    return head.type;
}

std::optional<RingGeometry> check_ring_offer(const RingOffer& offer, std::string* reason) {
    const RingGeometry geometry{offer.slot_count, offer.seg_bytes, offer.pool_blocks,
                                offer.page_bytes};
    if (!geometry.is_valid() || geometry.bytes() != offer.bytes || geometry.pool_blocks == 0) {
        return refuse(reason, "ring of " + std::to_string(offer.slot_count) + " slots and " +
                                  std::to_string(offer.bytes) + " bytes with buffers of up to " +
                                  std::to_string(offer.seg_bytes) + " bytes in a pool of " +
                                  std::to_string(offer.pool_blocks) + " blocks");
    }
    return geometry;
}

bool check_hello(const Hello& hello, std::string* reason) {
    const bool good = hello.arena_bytes != 0 && hello.arena_bytes <= kArenaBytesMax &&
                      hello.arena_bytes % 4096 == 0 && hello.arena_bytes >= kTablesBytes &&
                      hello.writer < kWriters && hello.bell_bytes >= sizeof(Bell<>) &&
                      hello.bell_bytes <= 65536 && hello.arena_id != 0;
    if (!good && reason != nullptr)
        *reason = "hello with impossible sizes";
    return good;
}

std::optional<PackedRkey> parse_rkey(std::span<const std::byte> bytes, std::string* reason) {
    PackedRkey rkey;
    if (bytes.size() < sizeof rkey)
        return refuse(reason, "the packed remote key is too short");
    std::memcpy(&rkey, bytes.data(), sizeof rkey);
    if (rkey.magic != kRkeyMagic)
        return refuse(reason, "not a packed remote key of the sm component");
    if (rkey.address + rkey.length < rkey.address)
        return refuse(reason, "remote key whose range wraps around");
    if (rkey.arena_offset != kNoOffset && rkey.arena_offset + rkey.length < rkey.arena_offset)
        return refuse(reason, "remote key whose range lies outside of its arena");
    return rkey;
}

}  // namespace tagwire::sm
