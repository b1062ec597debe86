// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/fabric/packet_frame.hpp"

#include <algorithm>
#include <cstring>

namespace tagwire::vhca {

namespace {

constexpr std::uint16_t kRoceUdpPort = 4791;
constexpr std::uint8_t kUdpProtocol = 17, kHopLimit = 64;
constexpr std::uint64_t kLinkLocal = 0xfe80000000000000;
constexpr std::byte kOnes{0xff};

template <typename T>
std::byte* put_big(std::byte* to, T value) {
    for (unsigned i = sizeof value; i-- > 0;)
        *to++ = static_cast<std::byte>(value >> (8 * i) & 0xff);
    return to;
}

/// The checksum of Internet protocols, as far as it got; an odd byte may only come last.
std::uint32_t sum_of(std::span<const std::byte> bytes, std::uint32_t sum) {
    for (std::size_t i = 0; i < bytes.size(); i += 2) {
        sum += std::to_integer<std::uint32_t>(bytes[i]) << 8;
        sum += i + 1 < bytes.size() ? std::to_integer<std::uint32_t>(bytes[i + 1]) : 0;
    }
    return sum;  // below 2^32: a frame has less than 2^16 bytes
}

/// Checksum of a datagram from the UDP header to `end`, with a checksum of 0 in it.
std::uint16_t ipv6_udp_checksum(const std::byte* ip, const std::byte* end) {
    const std::byte* const udp = ip + kIpv6Bytes;
    const auto udp_bytes = static_cast<std::size_t>(end - udp);
    std::uint32_t sum = kUdpProtocol + static_cast<std::uint32_t>(udp_bytes);
    sum = sum_of({ip + 8, 32}, sum);  // both addresses
    sum = sum_of({udp, udp_bytes}, sum);
    while (sum > 0xffff)
        sum = (sum & 0xffff) + (sum >> 16);
    const auto checksum = static_cast<std::uint16_t>(~sum);
    return checksum == 0 ? std::uint16_t{0xffff} : checksum;  // 0 would say that there is none
}

std::uint32_t ipv6_icrc(const std::byte* ip, std::span<const std::byte> packet) {
    std::array<std::byte, 8 + kIpv6Bytes + kUdpBytes> masked;
    std::fill(masked.begin(), masked.begin() + 8, kOnes);
    std::byte* const own = masked.data() + 8;
    std::memcpy(own, ip, kIpv6Bytes + kUdpBytes);
    own[0] |= std::byte{0x0f};  // traffic class and flow label
    std::fill(own + 1, own + 4, kOnes);
    own[7] = kOnes;                                                        // hop limit
    std::fill(own + kIpv6Bytes + 6, own + kIpv6Bytes + kUdpBytes, kOnes);  // checksum
    return icrc_behind(masked, packet);
}

std::uint32_t lrh_icrc(const std::byte* lrh, std::span<const std::byte> packet) {
    std::array<std::byte, kLrhBytes> masked;
    std::memcpy(masked.data(), lrh, kLrhBytes);
    masked[0] |= std::byte{0xf0};  // virtual lane
    return icrc_behind(masked, packet);
}

}  // namespace

std::uint16_t vcrc_of(std::span<const std::byte> frame) {
    constexpr std::uint32_t kPolynomial = 0xd008;  // x^16 + x^12 + x^3 + x + 1, bits reversed
    static constexpr auto kTable = [] {
        std::array<std::uint16_t, 256> table{};
        for (std::uint32_t i = 0; i < table.size(); ++i) {
            std::uint32_t crc = i;
            for (unsigned bit = 0; bit < 8; ++bit)
                crc = (crc & 1) != 0 ? crc >> 1 ^ kPolynomial : crc >> 1;
            table[i] = static_cast<std::uint16_t>(crc);
        }
        return table;
    }();
    std::uint32_t crc = 0xffff;
    for (const std::byte byte : frame)
        crc = crc >> 8 ^ kTable[(crc ^ std::to_integer<std::uint32_t>(byte)) & 0xff];
    return static_cast<std::uint16_t>(~crc);
}

std::uint32_t PacketFramer::link_type() const {
    constexpr std::uint32_t kLinkEthernet = 1, kLinkErf = 197;
    return kind_ == FrameKind::kInfiniband ? kLinkErf : kLinkEthernet;
}

// The time is a fixed-point number with 32 binary places, least significant byte first; rounded up,
// so that a reader who rounds down has the nanosecond again.
std::byte* PacketFramer::put_erf(std::byte* to, const FramePath& path,
                                 std::size_t frame_bytes) const {
    constexpr std::uint64_t kSecond = 1'000'000'000;
    constexpr std::uint8_t kTypeInfiniband = 21, kVaryingLength = 4;
    const std::uint64_t places = ((path.time_ns % kSecond << 32) + kSecond - 1) / kSecond;
    const std::uint64_t time = (path.time_ns / kSecond << 32) + places;
    for (unsigned i = 0; i < sizeof time; ++i)
        *to++ = static_cast<std::byte>(time >> (8 * i) & 0xff);
    to = put_big(to, kTypeInfiniband);
    to = put_big(to, kVaryingLength);
    to = put_big(to, static_cast<std::uint16_t>(kErfBytes + frame_bytes));
    to = put_big(to, std::uint16_t{0});  // records lost
    return put_big(to, static_cast<std::uint16_t>(frame_bytes));
}

// The length is counted in words of four bytes, from the LRH to the ICRC.
std::byte* PacketFramer::put_lrh(std::byte* to, const FramePath& path,
                                 std::size_t packet_bytes) const {
    constexpr unsigned kNextIsBth = 2;
    to = put_big(to, std::uint8_t{0});  // virtual lane and version
    const unsigned level = path.service.level & 0xfU;
    to = put_big(to, static_cast<std::uint8_t>(level << 4 | kNextIsBth));
    to = put_big(to, static_cast<std::uint16_t>(path.target));
    to = put_big(to, static_cast<std::uint16_t>((kLrhBytes + packet_bytes + kIcrcBytes) / 4));
    return put_big(to, static_cast<std::uint16_t>(path.source));
}

std::byte* PacketFramer::put_ethernet(std::byte* to, const FramePath& path) const {
    constexpr std::uint16_t kOurs = 0x0274;  // locally administered
    constexpr std::uint16_t kIpv4 = 0x0800, kIpv6 = 0x86dd;
    for (const std::uint64_t node : {path.target, path.source}) {
        to = put_big(to, kOurs);
        to = put_big(to, static_cast<std::uint32_t>(node));
    }
    return put_big(to, kind_ == FrameKind::kRoceIpv4 ? kIpv4 : kIpv6);
}

std::byte* PacketFramer::put_ipv6(std::byte* to, const FramePath& path,
                                  std::size_t udp_bytes) const {
    constexpr std::uint32_t kVersion = 6U << 28;
    to = put_big(to, kVersion | std::uint32_t{path.service.traffic} << 20);
    to = put_big(to, static_cast<std::uint16_t>(udp_bytes));
    to = put_big(to, kUdpProtocol);
    to = put_big(to, kHopLimit);
    for (const std::uint64_t node : {path.source, path.target}) {
        to = put_big(to, kLinkLocal);
        to = put_big(to, guid_base_ | node);
    }
    return to;
}

std::size_t PacketFramer::put(std::byte* to, const FramePath& path,
                              std::span<const std::byte> packet) const {
    packet = packet.first(std::min(packet.size(), kPacketBytesMax));
    const std::size_t udp_bytes = kUdpBytes + packet.size() + kIcrcBytes;
    const bool is_ipv4 = kind_ == FrameKind::kRoceIpv4, is_ipv6 = kind_ == FrameKind::kRoceIpv6;
    const UdpPath udp{static_cast<std::uint32_t>(path.source),
                      static_cast<std::uint32_t>(path.target), kRoceUdpPort, kRoceUdpPort,
                      path.service.traffic};
    std::byte* at = to;
    std::byte* const lrh = to + kErfBytes;
    std::byte* const ip = to + kEthernetBytes;
    if (is_ipv4) {
        at = put_ethernet(at, path);
        put_ipv4(at, udp, udp_bytes);
        at += kIpv4Bytes;
    } else if (is_ipv6) {
        at = put_ipv6(put_ethernet(at, path), path, udp_bytes);
    } else {
        at = put_erf(at, path, kLrhBytes + packet.size() + kIcrcBytes + kVcrcBytes);
        at = put_lrh(at, path, packet.size());
    }
    std::byte* const udp_at = at;
    if (kind_ != FrameKind::kInfiniband) {
        put_udp(at, udp, udp_bytes);
        at += kUdpBytes;
    }
    std::memcpy(at, packet.data(), packet.size());
    // From here on of the copy: a peer may write to what it came from.
    const std::span<const std::byte> copy(at, packet.size());
    at += packet.size();
    put_icrc(at, is_ipv4   ? icrc_of(udp, copy)
                 : is_ipv6 ? ipv6_icrc(ip, copy)
                           : lrh_icrc(lrh, copy));
    at += kIcrcBytes;
    if (is_ipv6) {
        put_big(udp_at + 6, ipv6_udp_checksum(ip, at));
    } else if (!is_ipv4) {
        const std::uint16_t crc = vcrc_of({lrh, at});
        *at++ = static_cast<std::byte>(crc & 0xff);
        *at++ = static_cast<std::byte>(crc >> 8);
    }
    return static_cast<std::size_t>(at - to);
}

}  // namespace tagwire::vhca
