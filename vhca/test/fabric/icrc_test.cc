// SPDX-License-Identifier: BSD-3-Clause
// The invariant CRC against packets that others made.
#include "vhca/fabric/icrc.hpp"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

namespace tagwire::test {
namespace {

std::vector<std::byte> bytes_of(std::string_view hex) {
    const auto digit = [](char c) {
        return static_cast<unsigned>(c <= '9' ? c - '0' : c - 'a' + 10);
    };
    std::vector<std::byte> bytes;
    for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
        bytes.push_back(static_cast<std::byte>(digit(hex[i]) << 4 | digit(hex[i + 1])));
    return bytes;
}

/// An IPv4 packet from its header to its CRC.
bool is_right(const std::vector<std::byte>& packet) {
    constexpr std::size_t kHeaders = vhca::kIpv4Bytes + vhca::kUdpBytes;
    const std::span all(packet);
    const auto transport = all.subspan(kHeaders, all.size() - kHeaders - vhca::kIcrcBytes);
    return vhca::icrc_of(all.first<kHeaders>(), transport) ==
           vhca::take_icrc(&packet[packet.size() - vhca::kIcrcBytes]);
}

// A congestion notification that a ConnectX-4 Lx sent, as Scapy's test of its RoCE layer
// (test/contrib/roce.uts) records it. It carries a congestion mark, which the CRC leaves out.
constexpr std::string_view kFromACard =
    "45c2003c718c4000401191610a0011010a001201"
    "000012b700280000"
    "8100ffff4000011800000000"
    "00000000000000000000000000000000"
    "82fd002a";

// A UC SEND_ONLY from the same place; the identification of its IP header is not 0.
constexpr std::string_view kUcSend =
    "45010040047840004011b4d5c0a80007c0a80007"
    "c00012b7002caca2"
    "2460ffff000000d300cf1710"
    "4630818be28935d90e9a95505401be885e500000"
    "78f353f3";

TEST(VhcaIcrc, packets_of_others_are_right) {
    EXPECT_TRUE(is_right(bytes_of(kFromACard)));
    EXPECT_TRUE(is_right(bytes_of(kUcSend)));
}

TEST(VhcaIcrc, what_changes_on_the_way_is_left_out) {
    for (const std::size_t at : {1U, 8U, 10U, 11U, 26U, 27U, 32U}) {
        std::vector<std::byte> packet = bytes_of(kUcSend);
        packet[at] ^= std::byte{0xff};
        EXPECT_TRUE(is_right(packet)) << "byte " << at;
    }
}

TEST(VhcaIcrc, every_other_byte_counts) {
    const std::vector<std::byte> good = bytes_of(kUcSend);
    for (std::size_t at = 0; at < good.size(); ++at) {
        if (at == 1 || at == 8 || at == 10 || at == 11 || at == 26 || at == 27 || at == 32)
            continue;
        std::vector<std::byte> packet = good;
        packet[at] ^= std::byte{1};
        EXPECT_FALSE(is_right(packet)) << "byte " << at;
    }
}

TEST(VhcaIcrc, headers_of_a_path_are_those_of_a_socket_that_never_fragments) {
    const vhca::UdpPath path{0x7f000002, 0x7f000003, 4791, 4791};
    std::array<std::byte, vhca::kIpv4Bytes> header{};
    vhca::put_ipv4(header.data(), path, 24);
    const auto wanted = bytes_of("4500002c0000400040113cbc7f0000027f000003");
    EXPECT_TRUE(std::equal(header.begin(), header.end(), wanted.begin()));
    std::vector<std::byte> packet = wanted;
    const auto udp = bytes_of("12b712b70018000004000000000001230000000100000000");
    packet.insert(packet.end(), udp.begin(), udp.end());
    const std::span transport = std::span(packet).subspan(vhca::kIpv4Bytes + vhca::kUdpBytes, 12);
    vhca::put_icrc(&packet[packet.size() - vhca::kIcrcBytes], vhca::icrc_of(path, transport));
    EXPECT_TRUE(is_right(packet));
}

}  // namespace
}  // namespace tagwire::test
