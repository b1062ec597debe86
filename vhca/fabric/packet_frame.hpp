// SPDX-License-Identifier: BSD-3-Clause
// Packets as they look on a cable, for traces: the headers before and the checksums behind what the
// fabrics carry.
//
//   InfiniBand (link type 197):  ERF 16 | LRH 8 | BTH ... padding | ICRC 4 | VCRC 2
//   RoCEv2 (link type 1):        Ethernet 14 | IPv4 20, IPv6 40 | UDP 8 | BTH ... padding | ICRC 4
//
// Link type 247 is InfiniBand without the header of ERF (Endace's Extensible Record Format), but
// Wireshark does not read it.
//
// A node's LID or address is the fabric's own; its MAC address is made of that: 02:74:a.b.c.d of an
// IPv4 address, 02:74:00:00 and the LID elsewhere. Between shared-memory nodes RoCE is IPv6, since
// their GIDs are link-local.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "vhca/core/wire.hpp"
#include "vhca/fabric/icrc.hpp"

namespace tagwire::vhca {

inline constexpr std::size_t kErfBytes = 16, kLrhBytes = 8, kVcrcBytes = 2;
inline constexpr std::size_t kEthernetBytes = 14, kIpv6Bytes = 40;

enum class FrameKind { kInfiniband, kRoceIpv4, kRoceIpv6 };

/// From node to node, and when, in nanoseconds since 1970. The class of a packet that came in is 0
/// where the fabric does not tell.
struct FramePath {
    std::uint64_t source = 0, target = 0;
    ServiceClass service{};
    std::uint64_t time_ns = 0;
};

class PacketFramer {
  public:
    static constexpr std::size_t kFrameBytesMax =
        kEthernetBytes + kIpv6Bytes + kUdpBytes + kPacketBytesMax + kIcrcBytes;

    /// `guid_base`: of kRoceIpv6, as ShmFabric::add_grhs() has it.
    explicit PacketFramer(FrameKind kind, std::uint64_t guid_base = 0)
        : kind_(kind), guid_base_(guid_base) {}

    /// As libpcap numbers link types.
    [[nodiscard]] std::uint32_t link_type() const;

    /// Writes at most kFrameBytesMax bytes and returns how many. Nothing in `packet` is believed;
    /// of one that is longer than kPacketBytesMax the rest is left out.
    std::size_t put(std::byte* to, const FramePath& path, std::span<const std::byte> packet) const;

  private:
    std::byte* put_erf(std::byte* to, const FramePath& path, std::size_t frame_bytes) const;
    std::byte* put_lrh(std::byte* to, const FramePath& path, std::size_t packet_bytes) const;
    std::byte* put_ethernet(std::byte* to, const FramePath& path) const;
    std::byte* put_ipv6(std::byte* to, const FramePath& path, std::size_t udp_bytes) const;

    FrameKind kind_;
    std::uint64_t guid_base_;
};

/// The variant CRC of InfiniBand (IBTA volume 1, 7.8.2) over a frame from its LRH to its ICRC.
std::uint16_t vcrc_of(std::span<const std::byte> frame);

}  // namespace tagwire::vhca
