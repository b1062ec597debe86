// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/core/packet.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "vhca/fabric/sim_fabric.hpp"

namespace tagwire::vhca {

namespace {

std::vector<std::byte> packed(const Packet& packet, std::size_t payload_bytes) {
    std::vector<std::byte> bytes(packet_bytes(packet.opcode, payload_bytes));
    std::byte* payload = put_headers(bytes.data(), packet, payload_bytes);
    std::memset(payload, 'p', payload_bytes);
    EXPECT_EQ(put_padding(payload + payload_bytes, payload_bytes), bytes.data() + bytes.size());
    return bytes;
}

Packet sample(Opcode opcode) {
    Packet packet;
    packet.opcode = opcode;
    packet.solicited = true;
    packet.wants_ack = true;
    packet.qpn = 0x123456;
    packet.psn = 0xfedcba;
    packet.rkey = 0x11223344;
    packet.address = 0x0102030405060708;
    packet.length = 0x99;
    packet.swap_add = 0x1111111122222222;
    packet.compare = 0x3333333344444444;
    packet.qkey = 0x55667788;
    packet.source_qpn = 0x654321;
    packet.stream = 0x42;
    packet.syndrome = 0x61;
    packet.msn = 0x0abcde;
    packet.original = 0x7777777788888888;
    packet.imm = 0xaabbccdd;
    return packet;
}

TEST(VhcaPacket, every_opcode_comes_back_as_it_was_packed) {
    for (unsigned code = 0; code < 256; ++code) {
        const OpcodeInfo& info = kOpcodes[code];
        if (info.traits == 0)
            continue;
        const Packet in = sample(static_cast<Opcode>(code));
        const std::size_t payload = (info.traits & kHasPayload) != 0 ? 5 : 0;
        const auto bytes = packed(in, payload);
        EXPECT_EQ(bytes.size(), info.header_bytes + (payload == 0 ? 0U : 8U));
        Packet out;
        ASSERT_TRUE(parse(bytes, &out)) << code;
        EXPECT_EQ(out.opcode, in.opcode);
        EXPECT_TRUE(out.solicited && out.wants_ack);
        EXPECT_EQ(out.pkey, kDefaultPkey);
        EXPECT_EQ(out.qpn, in.qpn);
        EXPECT_EQ(out.psn, in.psn);
        EXPECT_EQ(out.payload.size(), payload);
        EXPECT_EQ(out.address, out.has(kHasReth | kHasAtomicEth | kHasDcKey) ? in.address : 0);
        EXPECT_EQ(out.rkey, out.has(kHasReth | kHasAtomicEth) ? in.rkey : 0);
        EXPECT_EQ(out.length, out.has(kHasReth | kHasDcKey) ? in.length : 0);
        EXPECT_EQ(out.stream, out.has(kHasDeth) ? in.stream : 0);
        EXPECT_EQ(out.swap_add, out.has(kHasAtomicEth) ? in.swap_add : 0);
        EXPECT_EQ(out.compare, out.has(kHasAtomicEth) ? in.compare : 0);
        EXPECT_EQ(out.qkey, out.has(kHasDeth) ? in.qkey : 0);
        EXPECT_EQ(out.source_qpn, out.has(kHasDeth) ? in.source_qpn : 0);
        EXPECT_EQ(out.syndrome, out.has(kHasAeth) ? in.syndrome : 0);
        EXPECT_EQ(out.msn, out.has(kHasAeth) ? in.msn : 0);
        EXPECT_EQ(out.original, out.has(kHasAtomicAck) ? in.original : 0);
        EXPECT_EQ(out.imm, out.has(kHasImm | kHasIeth) ? in.imm : 0);
    }
}

TEST(VhcaPacket, bytes_are_those_of_the_specification) {
    Packet packet;
    packet.opcode = Opcode::kRcWriteOnlyImm;
    packet.qpn = 0x010203;
    packet.psn = 0x040506;
    packet.wants_ack = true;
    packet.address = 0x1112131415161718;
    packet.rkey = 0x21222324;
    packet.length = 1;
    const unsigned char imm[] = {0x31, 0x32, 0x33, 0x34};
    std::memcpy(&packet.imm, imm, sizeof imm);
    const auto bytes = packed(packet, 1);
    const unsigned char expected[] = {
        0x0b, 0x70, 0xff, 0xff, 0x00, 0x01, 0x02, 0x03, 0x80, 0x04, 0x05, 0x06,  // BTH, 3 pad
        0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x21, 0x22, 0x23, 0x24,
        0x00, 0x00, 0x00, 0x01,                          // RETH
        0x31, 0x32, 0x33, 0x34, 'p',  0x00, 0x00, 0x00,  // ImmDt, payload
    };
    ASSERT_EQ(bytes.size(), sizeof expected);
    EXPECT_EQ(std::memcmp(bytes.data(), expected, sizeof expected), 0);
}

TEST(VhcaPacket, opcodes_have_the_numbers_of_the_specification) {
    EXPECT_EQ(static_cast<int>(Opcode::kRcReadRequest), 0x0c);
    EXPECT_EQ(static_cast<int>(Opcode::kRcAck), 0x11);
    EXPECT_EQ(static_cast<int>(Opcode::kRcAtomicAck), 0x12);
    EXPECT_EQ(static_cast<int>(Opcode::kRcFetchAdd), 0x14);
    EXPECT_EQ(static_cast<int>(Opcode::kUdSendOnlyImm), 0x65);
}

TEST(VhcaPacket, whatever_is_cut_off_is_refused) {
    for (unsigned code = 0; code < 256; ++code) {
        if (kOpcodes[code].traits == 0)
            continue;
        const auto bytes = packed(sample(static_cast<Opcode>(code)), 0);
        for (std::size_t length = 0; length < bytes.size(); ++length) {
            const std::vector<std::byte> cut(bytes.begin(),
                                             bytes.begin() + static_cast<std::ptrdiff_t>(length));
            Packet out;
            EXPECT_FALSE(parse(cut, &out));
        }
    }
}

TEST(VhcaPacket, unknown_opcodes_versions_and_paddings_are_refused) {
    Packet out;
    auto bytes = packed(sample(Opcode::kRcSendOnly), 4);
    ASSERT_TRUE(parse(bytes, &out));
    bytes[0] = std::byte{0x3f};
    EXPECT_FALSE(parse(bytes, &out));
    bytes[0] = std::byte{0x04};
    bytes[1] |= std::byte{0x01};
    EXPECT_FALSE(parse(bytes, &out)) << "version";
    bytes[1] &= std::byte{0xf0};
    bytes.pop_back();
    EXPECT_FALSE(parse(bytes, &out)) << "not a multiple of four";
    auto empty = packed(sample(Opcode::kRcSendOnly), 0);
    empty[1] |= std::byte{0x30};
    EXPECT_FALSE(parse(empty, &out)) << "more padding than there is";
    auto ack = packed(sample(Opcode::kRcAck), 0);
    ack.resize(ack.size() + 4);
    EXPECT_FALSE(parse(ack, &out)) << "payload where none may be";
    auto big = packed(sample(Opcode::kRcSendOnly), kMtuMax);
    EXPECT_TRUE(parse(big, &out));
    big.resize(big.size() + 4);
    EXPECT_FALSE(parse(big, &out)) << "longer than any MTU";
}

TEST(VhcaPacket, garbage_never_makes_the_parser_read_outside) {
    SimRandom random(1);
    std::size_t accepted = 0;
    for (int round = 0; round < 20'000; ++round) {
        std::vector<std::byte> bytes(random.below(80));
        for (std::byte& byte : bytes)
            byte = static_cast<std::byte>(random.next());
        if (bytes.size() > 1) {
            bytes[0] &= std::byte{0x1f};
            bytes[1] &= std::byte{0xf0};
        }
        Packet out;
        if (parse(bytes, &out)) {
            ++accepted;
            EXPECT_LE(out.payload.size(), bytes.size() - kBthBytes);
        }
    }
    EXPECT_GT(accepted, 100U);
}

}  // namespace

}  // namespace tagwire::vhca
