// SPDX-License-Identifier: BSD-3-Clause
// The port of an engine: its addresses on the fabric, and the routes of address attributes.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "vhca/core/device.hpp"
#include "vhca/fabric/interface.hpp"

namespace tagwire::vhca {

class UdpFabric;

/// Names of ports on the fabric of shared memory are LIDs, the low bits of their GUIDs; over UDP
/// they are IPv4 addresses.
inline constexpr std::uint64_t kLidBits = 0xffff;
inline constexpr std::uint64_t kAddressBits = 0xffffffff;

class EnginePort {
  public:
    EnginePort() = default;
    /// `udp` null: the fabric is shared memory.
    EnginePort(std::uint16_t lid, std::uint64_t guid, bool is_ethernet, const UdpFabric* udp)
        : lid_(lid), guid_(guid), is_ethernet_(is_ethernet), udp_(udp) {}

    /// The port is one of Ethernet: it has no LID, and address attributes need a GID.
    [[nodiscard]] bool is_ethernet() const { return is_ethernet_; }
    /// The network interface below; nullptr: there is none.
    [[nodiscard]] const Interface* interface() const;
    [[nodiscard]] std::uint16_t lid() const { return lid_; }
    [[nodiscard]] std::uint64_t guid() const { return guid_; }
    [[nodiscard]] ibv_gid gid() const;
    /// Its own node on the fabric.
    [[nodiscard]] std::uint64_t node() const;
    /// By GID when there is a global one, else by LID. A node that cannot exist is a route on which
    /// packets vanish.
    [[nodiscard]] Route route_of(const ibv_ah_attr& attr) const;

  private:
    [[nodiscard]] std::uint64_t node_of(const ibv_ah_attr& attr) const;

    std::uint16_t lid_ = 0;
    std::uint64_t guid_ = 0;
    bool is_ethernet_ = false;
    const UdpFabric* udp_ = nullptr;
};

}  // namespace tagwire::vhca
