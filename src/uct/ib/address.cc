// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/address.hpp"

#include <endian.h>

#include <algorithm>
#include <cstring>

namespace tagwire::ib {

namespace {

constexpr std::uint16_t kPkeyMask = 0x7fff;
constexpr std::uint16_t kLidMulticast = 0xc000;
constexpr std::uint8_t kHopLimit = 64;

bool is_ipv4(const std::uint8_t (&gid)[16]) {
    constexpr std::uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return std::memcmp(gid, kMapped, sizeof kMapped) == 0;
}

bool is_zero(const std::uint8_t (&gid)[16]) {
    return std::ranges::all_of(gid, [](std::uint8_t byte) { return byte == 0; });
}

std::string problem_of(const PortAddress& address) {
    const std::uint16_t lid = be16toh(address.lid);
    const bool is_ethernet = (address.flags & kPortIsEthernet) != 0;
    const std::uint8_t known = is_ethernet ? kPortIsEthernet | kPortIsRoceV1 : 0;
    if ((address.flags & ~known) != 0)
        return "unknown flags";
    if (is_ethernet ? lid != 0 : lid == 0 || lid >= kLidMulticast)
        return "LID " + std::to_string(lid) + " is not a unicast LID";
    if (is_zero(address.gid))
        return "an all-zero GID";
    if (address.mtu < IBV_MTU_256 || address.mtu > IBV_MTU_4096)
        return "MTU code " + std::to_string(address.mtu);
    if ((be16toh(address.pkey) & ~kPkeyMask) != 0)
        return "a partition key whose membership bit is set";
    return {};
}

const char* name_of_link(bool is_ethernet) {
    return is_ethernet ? "Ethernet (RoCE)" : "InfiniBand";
}

const char* name_of_roce(bool is_v1) {
    return is_v1 ? "RoCE v1" : "RoCE v2";
}

}  // namespace

std::uint8_t checksum(std::span<const std::byte> bytes) {
    unsigned sum = 0;
    for (const std::byte byte : bytes)
        sum += std::to_integer<unsigned>(byte);
    return static_cast<std::uint8_t>(-sum);
}

PortAddress pack_port(const Port& port) {
    PortAddress address{};
    address.version = kAddressVersion;
    address.flags = port.is_ethernet ? kPortIsEthernet : 0;
    if (port.is_roce_v1)
        address.flags |= kPortIsRoceV1;
    address.lid = port.is_ethernet ? 0 : htobe16(port.attr.lid);
    std::memcpy(address.gid, port.gid.raw, sizeof address.gid);
    address.pkey = htobe16(port.pkey & kPkeyMask);
    address.mtu = static_cast<std::uint8_t>(port.attr.active_mtu);
    address.check = checksum(std::as_bytes(std::span(&address, 1)));
    return address;
}

std::optional<PortAddress> parse_port(std::span<const std::byte> bytes, std::string* reason_p) {
    const auto refuse = [reason_p](const std::string& reason) {
        *reason_p = "not a verbs device address: " + reason;
        return std::nullopt;
    };
    PortAddress address;
    if (bytes.size() < sizeof address)
        return refuse(std::to_string(bytes.size()) + " bytes, expected at least " +
                      std::to_string(sizeof address));
    std::memcpy(&address, bytes.data(), sizeof address);
    if (checksum(std::as_bytes(std::span(&address, 1))) != 0)
        return refuse("the checksum is wrong");
    if (address.version != kAddressVersion)
        return refuse("version " + std::to_string(address.version) +
                      ", this library reads version " + std::to_string(kAddressVersion));
    if (const std::string problem = problem_of(address); !problem.empty())
        return refuse(problem);
    return address;
}

bool is_reachable(const Port& own, const PortAddress& peer, std::string* reason_p) {
    const auto refuse = [reason_p](std::string reason) {
        *reason_p = std::move(reason);
        return false;
    };
    const bool is_peer_ethernet = (peer.flags & kPortIsEthernet) != 0;
    if (own.is_ethernet != is_peer_ethernet) {
        return refuse(std::string("the peer's port is on ") + name_of_link(is_peer_ethernet) +
                      ", ours on " + name_of_link(own.is_ethernet));
    }
    if (!own.is_ethernet &&
        std::memcmp(peer.gid, &own.gid.global.subnet_prefix, sizeof(std::uint64_t)) != 0) {
        return refuse("the peer's port is in another InfiniBand subnet");
    }
    if (own.is_ethernet && is_ipv4(own.gid.raw) != is_ipv4(peer.gid)) {
        return refuse(is_ipv4(peer.gid) ? "the peer's GID is an IPv4 address, ours is not"
                                        : "our GID is an IPv4 address, the peer's is not");
    }
    const bool is_peer_v1 = (peer.flags & kPortIsRoceV1) != 0;
    if (own.is_roce_v1 != is_peer_v1) {
        return refuse(std::string("the peer's port has ") + name_of_roce(is_peer_v1) +
                      ", ours has " + name_of_roce(own.is_roce_v1) +
                      ": set TAGWIRE_IB_GID_INDEX to entries of one version on both sides");
    }
    if ((own.pkey & kPkeyMask) != be16toh(peer.pkey))
        return refuse("the peer's port is in another partition");
    return true;
}

ibv_ah_attr path_from(const Port& own, std::uint8_t traffic_class, std::uint8_t service_level) {
    ibv_ah_attr path{};
    path.port_num = own.number;
    path.sl = service_level;
    path.is_global = own.is_ethernet || (own.attr.flags & IBV_QPF_GRH_REQUIRED) != 0;
    path.grh.sgid_index = static_cast<std::uint8_t>(own.gid_index);
    path.grh.hop_limit = kHopLimit;
    path.grh.traffic_class = traffic_class;
    return path;
}

ibv_ah_attr path_to(const Port& own, const PortAddress& peer, std::uint8_t traffic_class,
                    std::uint8_t service_level) {
    ibv_ah_attr path = path_from(own, traffic_class, service_level);
    path.dlid = be16toh(peer.lid);
    std::memcpy(path.grh.dgid.raw, peer.gid, sizeof peer.gid);
    return path;
}

ibv_mtu path_mtu(const Port& own, const PortAddress& peer) {
    return std::min(own.attr.active_mtu, static_cast<ibv_mtu>(peer.mtu));
}

bool has_same_mtu(const Port& own, const PortAddress& peer, std::string* reason_p) {
    if (peer.mtu == own.attr.active_mtu)
        return true;
    const std::string less = std::to_string(128U << path_mtu(own, peer));
    *reason_p = "the peer's packets have up to " + std::to_string(128U << peer.mtu) +
                " bytes, ours " + std::to_string(own.mtu_bytes()) + ": set TAGWIRE_IB_MTU=" + less +
                " on both sides";
    return false;
}

}  // namespace tagwire::ib
