// SPDX-License-Identifier: BSD-3-Clause
//
// Everything a peer sends outside of the rings: good bytes are understood, and each field that is
// wrong is refused by itself.

#include "uct/sm/wire.hpp"
#include "uct/sm/writers.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace tagwire::sm {
namespace {

template <class T, class Change>
T with(T value, Change&& change) {
    change(value);
    return value;
}

// ---- Addresses ---------------------------------------------------------------------------------

constexpr IfaceAddress kAddress{kFormatVersion, Place::kAbstract, 1, 1000, 42, 43};

TEST(Address, of_an_interface_is_understood) {
    const auto parsed = parse_iface_address(bytes_of(kAddress), nullptr);
    ASSERT_TRUE(parsed);
    EXPECT_EQ(std::memcmp(&*parsed, &kAddress, sizeof kAddress), 0);
    EXPECT_TRUE(parse_iface_address(
        bytes_of(with(kAddress, [](auto& a) { a.place = Place::kDirectory; })), nullptr));
}

TEST(Address, of_an_interface_is_refused_by_each_wrong_field) {
    std::string reason;
    const auto refused = [&](const IfaceAddress& address) {
        reason.clear();
        return !parse_iface_address(bytes_of(address), &reason) && !reason.empty();
    };
    EXPECT_TRUE(refused(with(kAddress, [](auto& a) { a.version = kFormatVersion + 1; })));
    EXPECT_NE(reason.find("version"), std::string::npos) << reason;
    EXPECT_TRUE(refused(with(kAddress, [](auto& a) { a.version = 0; })));
    EXPECT_TRUE(refused(with(kAddress, [](auto& a) { a.place = Place{0}; })));
    EXPECT_TRUE(refused(with(kAddress, [](auto& a) { a.place = Place{3}; })));
    for (std::size_t bytes = 0; bytes < sizeof kAddress; ++bytes)
        EXPECT_FALSE(parse_iface_address(bytes_of(kAddress).first(bytes), &reason)) << bytes;
}

TEST(Address, of_a_device_is_refused_when_short) {
    constexpr DeviceAddress kDevice{7, 8};
    const auto parsed = parse_device_address(bytes_of(kDevice));
    ASSERT_TRUE(parsed);
    EXPECT_EQ(parsed->boot_id, 7U);
    EXPECT_EQ(parsed->network_namespace, 8U);
    EXPECT_FALSE(parse_device_address(bytes_of(kDevice).first(sizeof kDevice - 1)));
}

TEST(Address, leads_to_a_name_of_a_socket_that_fits_its_path) {
    EXPECT_EQ(socket_name(0xabc), "tagwire-sm-0000000000000abc");
    EXPECT_EQ(socket_name(UINT64_MAX), "tagwire-sm-ffffffffffffffff");
}

// ---- Packets -----------------------------------------------------------------------------------

constexpr Notice kWakePacket{kPacketMagic, kFormatVersion, PacketType::kWake, 0};
constexpr Hello kHello{.magic = kPacketMagic,
                       .version = kFormatVersion,
                       .type = PacketType::kHello,
                       .has_membarrier = 1,
                       .cookie = 1,
                       .name = 2,
                       .arena_id = 3,
                       .arena_bytes = kTablesBytes + 4096,
                       .bell_bytes = 4096,
                       .probe_address = 5,
                       .probe_value = 6,
                       .bell_bit = 7,
                       .writer = 8};

RingOffer good_offer() {
    const RingGeometry geometry{16, 512, 8, 4096};
    return {kPacketMagic,    kFormatVersion, PacketType::kRing, 16, 512, 8, 4096, 0, 0,
            geometry.bytes()};
}

TEST(Packet, is_known_by_its_type_and_length) {
    EXPECT_EQ(check_packet(bytes_of(kHello), nullptr), PacketType::kHello);
    EXPECT_EQ(check_packet(bytes_of(good_offer()), nullptr), PacketType::kRing);
    EXPECT_EQ(check_packet(bytes_of(kWakePacket), nullptr), PacketType::kWake);
    EXPECT_EQ(
        check_packet(bytes_of(with(kWakePacket, [](auto& n) { n.type = PacketType::kLeave; })),
                     nullptr),
        PacketType::kLeave);
}

TEST(Packet, is_refused_by_each_wrong_field) {
    std::string reason;
    const auto refused = [&](const Notice& notice) {
        reason.clear();
        return !check_packet(bytes_of(notice), &reason) && !reason.empty();
    };
    EXPECT_TRUE(refused(with(kWakePacket, [](auto& n) { n.magic ^= 1; })));
    EXPECT_TRUE(refused(with(kWakePacket, [](auto& n) { n.version += 1; })));
    EXPECT_NE(reason.find("version"), std::string::npos) << reason;
    for (const std::uint32_t type : {0U, 5U, 0xffffffffU, 1U, 2U})
        EXPECT_TRUE(refused(with(kWakePacket, [&](auto& n) { n.type = PacketType{type}; })));
}

TEST(Packet, is_refused_at_every_other_length) {
    std::vector<std::byte> bytes(kPacketBytesMax);
    for (const auto& packet :
         {bytes_of(kHello), bytes_of(kWakePacket), std::span<const std::byte>()}) {
        std::copy(packet.begin(), packet.end(), bytes.begin());
        for (std::size_t length = 0; length <= bytes.size(); ++length) {
            if (length == packet.size() && !packet.empty())
                continue;
            EXPECT_FALSE(check_packet(std::span(bytes).first(length), nullptr)) << length;
        }
        std::fill(bytes.begin(), bytes.end(), std::byte{0});
    }
}

TEST(HelloPacket, is_refused_by_each_impossible_size) {
    EXPECT_TRUE(check_hello(kHello, nullptr));
    std::string reason;
    const auto refused = [&](auto change) { return !check_hello(with(kHello, change), &reason); };
    EXPECT_TRUE(refused([](Hello& h) { h.arena_bytes = 0; }));
    EXPECT_TRUE(refused([](Hello& h) { h.arena_bytes = UINT64_MAX; }));
    EXPECT_TRUE(refused([](Hello& h) { h.arena_bytes = (std::uint64_t{1} << 44) + 4096; }));
    EXPECT_TRUE(refused([](Hello& h) { h.arena_bytes += 1; }));
    EXPECT_TRUE(refused([](Hello& h) { h.arena_bytes = kTablesBytes - 4096; }));
    EXPECT_TRUE(refused([](Hello& h) { h.arena_id = 0; }));
    EXPECT_TRUE(refused([](Hello& h) { h.writer = kWriters; }));
    EXPECT_TRUE(refused([](Hello& h) { h.bell_bytes = 0; }));
    EXPECT_TRUE(refused([](Hello& h) { h.bell_bytes = sizeof(Bell<>) - 1; }));
    EXPECT_TRUE(refused([](Hello& h) { h.bell_bytes = 65537; }));
    EXPECT_FALSE(reason.empty());
}

TEST(RingPacket, is_refused_by_each_number_that_does_not_fit) {
    EXPECT_TRUE(check_ring_offer(good_offer(), nullptr));
    std::string reason;
    const auto refused = [&](auto change) {
        reason.clear();
        return !check_ring_offer(with(good_offer(), change), &reason) && !reason.empty();
    };
    // Sizes that agree with each other, so that only the number itself is wrong.
    const auto refused_in_itself = [&](auto change) {
        return refused([&](RingOffer& o) {
            change(o);
            o.bytes =
                RingGeometry{o.slot_count, o.seg_bytes, o.pool_blocks, o.page_bytes | 1}.bytes();
        });
    };
    EXPECT_TRUE(refused([](RingOffer& o) { o.bytes += 4096; }));
    EXPECT_TRUE(refused([](RingOffer& o) { o.bytes = 0; }));
    for (const std::uint32_t count : {0U, 1U, 8U, 17U, 131072U, 0xffffffffU})
        EXPECT_TRUE(refused_in_itself([&](RingOffer& o) { o.slot_count = count; })) << count;
    for (const std::uint32_t count : {0U, 65537U, 0xffffffffU})
        EXPECT_TRUE(refused_in_itself([&](RingOffer& o) { o.pool_blocks = count; })) << count;
    for (const std::uint32_t bytes : {0U, 63U, 65U, kSegBytesMax + 64, 0xffffffffU})
        EXPECT_TRUE(refused_in_itself([&](RingOffer& o) { o.seg_bytes = bytes; })) << bytes;
    for (const std::uint32_t bytes : {0U, 64U, 4097U, 131072U})
        EXPECT_TRUE(refused([&](RingOffer& o) { o.page_bytes = bytes; })) << bytes;
}

TEST(RingPacket, of_the_largest_pool_fits_its_descriptor_region) {
    const RingGeometry largest{kSlotCountMax, kSegBytesMax, kPoolBytesMax / kBlockBytes, 65536};
    EXPECT_TRUE(largest.is_valid());
    EXPECT_LE(largest.pool_bytes() + 65536, std::size_t{64} << 20);
    EXPECT_LT(largest.returns_offset(), largest.rndv_offset());
    EXPECT_LT(largest.rndv_offset(), largest.front_offset());
    EXPECT_LT(largest.front_offset(), largest.back_offset());
    EXPECT_LT(largest.back_offset(), largest.reserve_offset());
}

TEST(RingPacket, of_a_small_ring_has_no_back_ring) {
    const RingGeometry small{kFrontCount, 1024, 64, 4096};
    EXPECT_EQ(small.front_count(), kFrontCount);
    EXPECT_EQ(small.back_count(), 0U);
    const RingGeometry larger{2 * kFrontCount, 1024, 64, 4096};
    EXPECT_EQ(larger.front_count(), kFrontCount);
    EXPECT_EQ(larger.back_count(), 2 * kFrontCount);
}

// ---- Remote keys -------------------------------------------------------------------------------

TEST(Rkey, is_refused_by_each_wrong_field) {
    constexpr PackedRkey kKey{kRkeyMagic, 1, 2, 4096, 0x10000, 100, 1};
    EXPECT_TRUE(parse_rkey(bytes_of(kKey), nullptr));
    EXPECT_TRUE(
        parse_rkey(bytes_of(with(kKey, [](auto& k) { k.arena_offset = kNoOffset; })), nullptr));
    std::string reason;
    const auto refused = [&](auto change) {
        reason.clear();
        return !parse_rkey(bytes_of(with(kKey, change)), &reason) && !reason.empty();
    };
    EXPECT_TRUE(refused([](PackedRkey& k) { k.magic += 1; }));
    EXPECT_TRUE(refused([](PackedRkey& k) { k.address = UINT64_MAX - 50; }));
    EXPECT_TRUE(refused([](PackedRkey& k) { k.length = UINT64_MAX; }));
    EXPECT_TRUE(refused([](PackedRkey& k) { k.arena_offset = kNoOffset - 1; }));
    EXPECT_FALSE(parse_rkey(bytes_of(kKey).first(sizeof kKey - 1), &reason));
}

// ---- Control words -----------------------------------------------------------------------------

TEST(ControlWord, carries_its_parts) {
    const Control control{Control::make(Kind::kRndv, 0xab, 0xcdef).word | 0x12345678U};
    EXPECT_EQ(control.kind(), static_cast<std::uint8_t>(Kind::kRndv));
    EXPECT_EQ(control.id(), 0xab);
    EXPECT_EQ(control.length(), 0xcdef);
    EXPECT_EQ(control.sequence(), 0x12345678U);
    EXPECT_EQ(Control::make(Kind::kAm, 0, 0).sequence(), 0U);
}

}  // namespace
}  // namespace tagwire::sm
