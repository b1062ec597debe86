// SPDX-License-Identifier: BSD-3-Clause
// The invariant CRC of RoCEv2 (IBTA volume 1, annex A17): the CRC-32 of Ethernet over what no
// switch or router changes on the way.
//
//   8 bytes of ones | IPv4 header | UDP header | BTH | extended headers, payload, padding
//
// with ones in place of: type of service, time to live and checksum of IP, the checksum of UDP, and
// the byte of the BTH that carries congestion marks. It is sent least significant byte first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tagwire::vhca {

inline constexpr std::size_t kIcrcBytes = 4;
inline constexpr std::size_t kIpv4Bytes = 20, kUdpBytes = 8;

/// A datagram's way; host order.
struct UdpPath {
    std::uint32_t source = 0, target = 0;  // IPv4 addresses
    std::uint16_t source_port = 0, target_port = 0;
    std::uint8_t traffic_class = 0;  // IPv4's type of service
};

/// The IPv4 header of a datagram of `udp_bytes` (UDP header included) that was not fragmented and
/// must not be: what Linux sends from a socket without a peer and with IP_PMTUDISC_DO. Its
/// identification is 0 then (RFC 6864, 4.1). Ends with a checksum.
void put_ipv4(std::byte* to, const UdpPath& path, std::size_t udp_bytes);

/// The UDP header of such a datagram, with a checksum of 0.
void put_udp(std::byte* to, const UdpPath& path, std::size_t udp_bytes);

/// The CRC of `packet`, BTH first and CRC not included, with that IPv4 header before it.
std::uint32_t icrc_of(const UdpPath& path, std::span<const std::byte> packet);

/// The same with the IPv4 and UDP headers as they are; of any IPv4 header without options.
std::uint32_t icrc_of(std::span<const std::byte, kIpv4Bytes + kUdpBytes> headers,
                      std::span<const std::byte> packet);

/// The same behind any headers, in which ones are already in place of what changes on the way.
std::uint32_t icrc_behind(std::span<const std::byte> masked_headers,
                          std::span<const std::byte> packet);

void put_icrc(std::byte* to, std::uint32_t crc);
[[nodiscard]] std::uint32_t take_icrc(const std::byte* from);

}  // namespace tagwire::vhca
