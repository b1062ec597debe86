// SPDX-License-Identifier: BSD-3-Clause
// Addresses that programs carry to their peers: compact, versioned, and checked before use, since
// they come from anywhere. docs/internals/formats/verbs.md has the tables.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "uct/ib/device.hpp"

namespace tagwire::ib {

inline constexpr std::uint8_t kAddressVersion = 1;

/// The device address: where a port is. Integers are big endian.
struct [[gnu::packed]] PortAddress {
    std::uint8_t version;  // kAddressVersion
    std::uint8_t flags;    // kPortIsEthernet, kPortIsRoceV1
    std::uint16_t lid;     // 0 on Ethernet
    std::uint8_t gid[16];  // of the chosen entry
    std::uint16_t pkey;    // without the membership bit
    std::uint8_t mtu;      // ibv_mtu, of the port or as TAGWIRE_IB_MTU has it
    std::uint8_t check;    // so that the sum of all bytes is 0
};
static_assert(sizeof(PortAddress) == 24);

inline constexpr std::uint8_t kPortIsEthernet = 1;
inline constexpr std::uint8_t kPortIsRoceV1 = 2;  // with the other; else v2

PortAddress pack_port(const Port& port);

/// nullopt when the bytes are no address of this version; `*reason_p` says what is wrong.
std::optional<PortAddress> parse_port(std::span<const std::byte> bytes, std::string* reason_p);

/// Whether packets of `own` can get to `peer`: the same link layer and version of RoCE, the same
/// subnet (the prefix of the GID on InfiniBand), the same partition. When not, `*reason_p` gets one
/// sentence.
bool is_reachable(const Port& own, const PortAddress& peer, std::string* reason_p);

/// The path to `peer`: LID or GID, hop limit 64, traffic class and service level as given.
ibv_ah_attr path_to(const Port& own, const PortAddress& peer, std::uint8_t traffic_class,
                    std::uint8_t service_level);

/// The path of a queue pair that answers anybody, or names the peer in each request (DCT, DCI):
/// where packets leave, with a GRH where the port needs one, and nothing of a peer.
ibv_ah_attr path_from(const Port& own, std::uint8_t traffic_class, std::uint8_t service_level);

/// The MTU that both ends can take.
ibv_mtu path_mtu(const Port& own, const PortAddress& peer);
/// Whether both ends cut messages alike, as they must where nobody can agree on a path's MTU. When
/// not, `*reason_p` gets one sentence.
bool has_same_mtu(const Port& own, const PortAddress& peer, std::string* reason_p);

/// For the blobs of transports: their last byte makes the sum of all zero.
std::uint8_t checksum(std::span<const std::byte> bytes);

}  // namespace tagwire::ib
