// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/fabric/icrc.hpp"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "vhca/core/packet.hpp"

namespace tagwire::vhca {

namespace {

constexpr std::size_t kLeadBytes = 8;  // stands for InfiniBand's local route header

// Offsets of what may change on the way.
constexpr std::size_t kServiceAt = 1, kTimeToLiveAt = 8, kIpChecksumAt = 10;
constexpr std::size_t kUdpChecksumAt = kIpv4Bytes + 6;
constexpr std::size_t kCongestionAt = kIpv4Bytes + kUdpBytes + 4;

void put16(std::byte* to, std::uint16_t value) {
    to[0] = static_cast<std::byte>(value >> 8);
    to[1] = static_cast<std::byte>(value & 0xff);
}

void put32(std::byte* to, std::uint32_t value) {
    put16(to, static_cast<std::uint16_t>(value >> 16));
    put16(to + 2, static_cast<std::uint16_t>(value & 0xffff));
}

std::uint16_t ipv4_checksum(const std::byte* header) {
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < kIpv4Bytes; i += 2) {
        sum += (std::to_integer<std::uint32_t>(header[i]) << 8) |
               std::to_integer<std::uint32_t>(header[i + 1]);
    }
    sum = (sum & 0xffff) + (sum >> 16);
    return static_cast<std::uint16_t>(~((sum & 0xffff) + (sum >> 16)));
}

uLong add(uLong crc, std::span<const std::byte> bytes) {
    return crc32(crc, reinterpret_cast<const Bytef*>(bytes.data()),
                 static_cast<uInt>(bytes.size()));
}

}  // namespace

void put_ipv4(std::byte* to, const UdpPath& path, std::size_t udp_bytes) {
    constexpr std::byte kVersionAndLength{0x45}, kTimeToLive{64}, kUdpProtocol{17};
    constexpr std::uint16_t kDontFragment = 0x4000;
    std::memset(to, 0, kIpv4Bytes);
    to[0] = kVersionAndLength;
    to[kServiceAt] = std::byte{path.traffic_class};
    put16(to + 2, static_cast<std::uint16_t>(kIpv4Bytes + udp_bytes));
    put16(to + 6, kDontFragment);
    to[kTimeToLiveAt] = kTimeToLive;
    to[9] = kUdpProtocol;
    put32(to + 12, path.source);
    put32(to + 16, path.target);
    put16(to + kIpChecksumAt, ipv4_checksum(to));
}

void put_udp(std::byte* to, const UdpPath& path, std::size_t udp_bytes) {
    put16(to, path.source_port);
    put16(to + 2, path.target_port);
    put16(to + 4, static_cast<std::uint16_t>(udp_bytes));
    put16(to + 6, 0);
}

std::uint32_t icrc_of(std::span<const std::byte, kIpv4Bytes + kUdpBytes> headers,
                      std::span<const std::byte> packet) {
    constexpr std::byte kOnes{0xff};
    std::array<std::byte, kLeadBytes + kIpv4Bytes + kUdpBytes + kBthBytes> masked;
    std::byte* const ip = masked.data() + kLeadBytes;
    std::fill(masked.begin(), masked.end(), kOnes);
    std::memcpy(ip, headers.data(), headers.size());
    const std::size_t bth_bytes = std::min(packet.size(), kBthBytes);
    std::memcpy(ip + headers.size(), packet.data(), bth_bytes);
    for (const std::size_t at : {kServiceAt, kTimeToLiveAt, kIpChecksumAt, kIpChecksumAt + 1,
                                 kUdpChecksumAt, kUdpChecksumAt + 1, kCongestionAt}) {
        ip[at] = kOnes;
    }
    const uLong crc =
        add(crc32(0, nullptr, 0), {masked.data(), masked.size() - kBthBytes + bth_bytes});
    return static_cast<std::uint32_t>(add(crc, packet.subspan(bth_bytes)));
}

std::uint32_t icrc_of(const UdpPath& path, std::span<const std::byte> packet) {
    std::array<std::byte, kIpv4Bytes + kUdpBytes> headers;
    const std::size_t udp_bytes = kUdpBytes + packet.size() + kIcrcBytes;
    put_ipv4(headers.data(), path, udp_bytes);
    put_udp(headers.data() + kIpv4Bytes, path, udp_bytes);
    return icrc_of(std::span<const std::byte, kIpv4Bytes + kUdpBytes>(headers), packet);
}

std::uint32_t icrc_behind(std::span<const std::byte> masked_headers,
                          std::span<const std::byte> packet) {
    constexpr std::size_t kCongestionInBth = 4;
    std::array<std::byte, kBthBytes> bth{};
    const auto head = packet.first(std::min(packet.size(), bth.size()));
    std::copy(head.begin(), head.end(), bth.begin());
    bth[kCongestionInBth] = std::byte{0xff};
    uLong crc = add(crc32(0, nullptr, 0), masked_headers);
    crc = add(crc, std::span<const std::byte>(bth).first(head.size()));
    return static_cast<std::uint32_t>(add(crc, packet.subspan(head.size())));
}

void put_icrc(std::byte* to, std::uint32_t crc) {
    for (unsigned i = 0; i < kIcrcBytes; ++i)
        to[i] = static_cast<std::byte>(crc >> (8 * i) & 0xff);
}

std::uint32_t take_icrc(const std::byte* from) {
    std::uint32_t crc = 0;
    for (unsigned i = 0; i < kIcrcBytes; ++i)
        crc |= std::to_integer<std::uint32_t>(from[i]) << (8 * i);
    return crc;
}

}  // namespace tagwire::vhca
