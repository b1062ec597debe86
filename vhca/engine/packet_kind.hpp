// SPDX-License-Identifier: BSD-3-Clause
// The kind of packets, which completions of receives tell.
#pragma once

#include <cstdint>

namespace tagwire::vhca {

class Engine;

/// ConnectX cards report the packet's kind in place of a service level on Ethernet: RoCE version 2
/// over IPv6 or IPv4. UCX's datagrams go by it: it says where the GID is in the header.
enum class PacketKind : std::uint8_t { kInfiniband = 0, kRoceIpv6 = 1, kRoceIpv4 = 2 };

PacketKind packet_kind_of(const Engine& engine);

}  // namespace tagwire::vhca
