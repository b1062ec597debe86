// SPDX-License-Identifier: BSD-3-Clause
// Device addresses: what is packed is understood, and nothing else is.
#include "uct/ib/address.hpp"

#include <endian.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>

namespace tagwire::ib {
namespace {

using Gid = std::array<std::uint8_t, 16>;

constexpr Gid kInfiniband{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 0xc9, 3, 4, 5, 6, 7, 8};
constexpr Gid kIpv4{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1};
constexpr Gid kIpv6{0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};

Port port_with(const Gid& gid, bool is_ethernet) {
    Port port;
    port.is_ethernet = is_ethernet;
    port.attr.lid = is_ethernet ? 0 : 0x1234;
    port.attr.active_mtu = IBV_MTU_2048;
    port.gid_index = 3;
    std::memcpy(port.gid.raw, gid.data(), gid.size());
    return port;
}

std::span<const std::byte> bytes_of(const PortAddress& address) {
    return std::as_bytes(std::span(&address, 1));
}

/// A copy with another field, and with the checksum right again.
template <class Change>
PortAddress with(PortAddress address, Change&& change) {
    change(address);
    address.check = 0;
    address.check = checksum(bytes_of(address));
    return address;
}

TEST(PortAddress, that_was_packed_is_understood) {
    const PortAddress packed = pack_port(port_with(kInfiniband, false));
    std::string reason;
    const auto parsed = parse_port(bytes_of(packed), &reason);
    ASSERT_TRUE(parsed) << reason;
    EXPECT_EQ(be16toh(parsed->lid), 0x1234);
    EXPECT_EQ(be16toh(parsed->pkey), 0x7fff) << "the membership bit is not part of it";
    EXPECT_EQ(parsed->mtu, IBV_MTU_2048);
    EXPECT_EQ(std::memcmp(parsed->gid, kInfiniband.data(), 16), 0);
    EXPECT_EQ(checksum(bytes_of(*parsed)), 0);
}

TEST(PortAddress, on_ethernet_has_no_lid) {
    Port port = port_with(kIpv4, true);
    port.attr.lid = 77;
    const PortAddress packed = pack_port(port);
    EXPECT_EQ(packed.lid, 0);
    std::string reason;
    EXPECT_TRUE(parse_port(bytes_of(packed), &reason)) << reason;
}

TEST(PortAddress, with_any_single_bit_flipped_is_refused) {
    const PortAddress packed = pack_port(port_with(kIpv4, true));
    for (std::size_t bit = 0; bit < 8 * sizeof packed; ++bit) {
        PortAddress flipped = packed;
        reinterpret_cast<std::uint8_t*>(&flipped)[bit / 8] ^=
            static_cast<std::uint8_t>(1U << bit % 8);
        std::string reason;
        EXPECT_FALSE(parse_port(bytes_of(flipped), &reason)) << "bit " << bit;
        EXPECT_NE(reason, "") << "bit " << bit;
    }
}

TEST(PortAddress, that_is_short_is_refused) {
    const PortAddress packed = pack_port(port_with(kIpv4, true));
    std::string reason;
    for (std::size_t bytes = 0; bytes < sizeof packed; ++bytes)
        EXPECT_FALSE(parse_port(bytes_of(packed).first(bytes), &reason)) << bytes;
    EXPECT_NE(reason.find("23 bytes, expected at least 24"), std::string::npos) << reason;
}

TEST(PortAddress, is_refused_for_each_wrong_field_by_name) {
    const PortAddress good = pack_port(port_with(kInfiniband, false));
    const auto reason_of = [](const PortAddress& address) {
        std::string reason;
        return parse_port(bytes_of(address), &reason) ? "" : reason;
    };
    const auto has = [](const std::string& text, const char* part) {
        return text.find(part) != std::string::npos;
    };
    ASSERT_EQ(reason_of(good), "");
    EXPECT_TRUE(has(reason_of(with(good, [](auto& a) { a.version = 2; })), "version 2"));
    EXPECT_TRUE(has(reason_of(with(good, [](auto& a) { a.flags = 2; })), "flags"));
    EXPECT_TRUE(has(reason_of(with(good, [](auto& a) { a.flags = 4; })), "flags"));
    EXPECT_TRUE(has(reason_of(with(good, [](auto& a) { a.lid = 0; })), "LID 0"));
    EXPECT_TRUE(has(reason_of(with(good, [](auto& a) { a.lid = 0xffff; })), "LID 65535"));
    EXPECT_TRUE(has(reason_of(with(good, [](auto& a) { a.flags = kPortIsEthernet; })), "LID"));
    EXPECT_TRUE(
        has(reason_of(with(good, [](auto& a) { std::memset(a.gid, 0, 16); })), "all-zero GID"));
    EXPECT_TRUE(has(reason_of(with(good, [](auto& a) { a.mtu = 0; })), "MTU"));
    EXPECT_TRUE(has(reason_of(with(good, [](auto& a) { a.mtu = 6; })), "MTU"));
    EXPECT_TRUE(has(reason_of(with(good, [](auto& a) { a.pkey = 0xffff; })), "partition"));
    EXPECT_TRUE(has(reason_of([&] {
                        PortAddress other = good;
                        ++other.check;
                        return other;
                    }()),
                    "checksum"));
}

TEST(Reachability, is_refused_with_the_reason) {
    const Port infiniband = port_with(kInfiniband, false);
    const Port ipv4 = port_with(kIpv4, true);
    const Port ipv6 = port_with(kIpv6, true);
    std::string reason;
    EXPECT_TRUE(is_reachable(infiniband, pack_port(infiniband), &reason));
    EXPECT_TRUE(is_reachable(ipv4, pack_port(ipv4), &reason));

    EXPECT_FALSE(is_reachable(infiniband, pack_port(ipv4), &reason));
    EXPECT_EQ(reason, "the peer's port is on Ethernet (RoCE), ours on InfiniBand");
    EXPECT_FALSE(is_reachable(ipv4, pack_port(ipv6), &reason));
    EXPECT_EQ(reason, "our GID is an IPv4 address, the peer's is not");
    EXPECT_FALSE(is_reachable(ipv6, pack_port(ipv4), &reason));
    EXPECT_EQ(reason, "the peer's GID is an IPv4 address, ours is not");

    Port v1 = ipv6;
    v1.is_roce_v1 = true;
    EXPECT_TRUE(is_reachable(v1, pack_port(v1), &reason));
    EXPECT_FALSE(is_reachable(ipv6, pack_port(v1), &reason));
    EXPECT_EQ(reason,
              "the peer's port has RoCE v1, ours has RoCE v2: set TAGWIRE_IB_GID_INDEX to entries "
              "of one version on both sides");
    EXPECT_FALSE(is_reachable(v1, pack_port(ipv6), &reason));

    Port elsewhere = infiniband;
    elsewhere.gid.raw[7] = 1;
    EXPECT_FALSE(is_reachable(infiniband, pack_port(elsewhere), &reason));
    EXPECT_EQ(reason, "the peer's port is in another InfiniBand subnet");
    elsewhere = infiniband;
    elsewhere.pkey = 0x8001;
    EXPECT_FALSE(is_reachable(infiniband, pack_port(elsewhere), &reason));
    EXPECT_EQ(reason, "the peer's port is in another partition");
}

TEST(Path, on_infiniband_goes_by_lid) {
    const Port own = port_with(kInfiniband, false);
    const ibv_ah_attr path = path_to(own, pack_port(own), 5, 2);
    EXPECT_EQ(path.dlid, 0x1234);
    EXPECT_EQ(path.sl, 2);
    EXPECT_EQ(path.is_global, 0);
    EXPECT_EQ(path.port_num, 1);
}

// A port behind a virtual function is of this kind.
TEST(Path, from_a_port_has_a_grh_where_the_port_wants_it) {
    Port port = port_with(kInfiniband, false);
    EXPECT_EQ(path_from(port, 5, 2).is_global, 0);
    EXPECT_EQ(path_from(port, 5, 2).sl, 2);
    port.attr.flags = IBV_QPF_GRH_REQUIRED;
    for (const Port& own : {port, port_with(kIpv4, true)}) {
        const ibv_ah_attr path = path_from(own, 106, 3);
        EXPECT_EQ(path.is_global, 1);
        EXPECT_EQ(path.grh.sgid_index, 3);
        EXPECT_EQ(path.grh.hop_limit, 64);
        EXPECT_EQ(path.grh.traffic_class, 106);
        EXPECT_EQ(path.sl, 3);
        EXPECT_EQ(path.port_num, 1);
    }
}

TEST(Path, goes_by_gid_where_the_port_wants_it) {
    Port routed = port_with(kInfiniband, false);
    routed.attr.flags = IBV_QPF_GRH_REQUIRED;
    EXPECT_EQ(path_to(routed, pack_port(routed), 0, 0).is_global, 1);

    const Port own = port_with(kIpv4, true);
    const ibv_ah_attr path = path_to(own, pack_port(own), 106, 3);
    EXPECT_EQ(path.is_global, 1);
    EXPECT_EQ(path.dlid, 0);
    EXPECT_EQ(path.grh.sgid_index, 3);
    EXPECT_EQ(path.grh.hop_limit, 64);
    EXPECT_EQ(path.grh.traffic_class, 106);
    EXPECT_EQ(std::memcmp(path.grh.dgid.raw, kIpv4.data(), 16), 0);
}

TEST(Path, has_the_smaller_mtu_of_both_ports) {
    Port own = port_with(kIpv4, true);
    PortAddress peer = pack_port(own);
    EXPECT_EQ(path_mtu(own, peer), IBV_MTU_2048);
    peer.mtu = IBV_MTU_1024;
    EXPECT_EQ(path_mtu(own, peer), IBV_MTU_1024);
    own.attr.active_mtu = IBV_MTU_256;
    EXPECT_EQ(path_mtu(own, peer), IBV_MTU_256);
}

TEST(Path, with_different_mtus_is_refused_with_what_helps) {
    const Port own = port_with(kIpv4, true);
    PortAddress peer = pack_port(own);
    std::string reason;
    EXPECT_TRUE(has_same_mtu(own, peer, &reason));
    peer.mtu = IBV_MTU_1024;
    EXPECT_FALSE(has_same_mtu(own, peer, &reason));
    EXPECT_EQ(
        reason,
        "the peer's packets have up to 1024 bytes, ours 2048: set TAGWIRE_IB_MTU=1024 on both "
        "sides");
}

}  // namespace
}  // namespace tagwire::ib
