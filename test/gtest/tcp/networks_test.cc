// SPDX-License-Identifier: BSD-3-Clause
// The kernel tables of addresses and routes, as they are read.
#include "uct/tcp/networks.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>

namespace tagwire::tcp {
namespace {

Lasting lasting(const Networks& networks, const char* address) {
    in6_addr bytes{};
    EXPECT_EQ(1, ::inet_pton(AF_INET6, address, &bytes));
    return networks.lasting(bytes);
}

TEST(TcpNetworks, addresses_that_go_are_told_from_those_that_stay) {
    Networks networks;
    networks.add_addresses(
        "20010db8000000000000000000000001 02 40 00 80     eth0\n"
        "20010db8000000000000000000000002 02 40 00 01     eth0\n"
        "20010db8000000000000000000000003 02 40 00 20     eth0\n"
        "20010db8000000000000000000000004 02 40 00 21     eth0\n"
        "20010db8000000000000000000000005 02 40 00 40     eth0\n"
        "20010db8000000000000000000000006 02 40 00 44     eth0\n"
        "20010db8000000000000000000000007 02 40 00 c8     eth0\n"
        "nonsense\n");
    EXPECT_EQ(Lasting::kStable, lasting(networks, "2001:db8::1"));
    EXPECT_EQ(Lasting::kTemporary, lasting(networks, "2001:db8::2"));
    EXPECT_EQ(Lasting::kDeprecated, lasting(networks, "2001:db8::3"));
    EXPECT_EQ(Lasting::kDeprecated, lasting(networks, "2001:db8::4"));
    EXPECT_EQ(Lasting::kUnusable, lasting(networks, "2001:db8::5")) << "tentative";
    EXPECT_EQ(Lasting::kStable, lasting(networks, "2001:db8::6")) << "optimistic";
    EXPECT_EQ(Lasting::kUnusable, lasting(networks, "2001:db8::7")) << "somebody else has it";
    EXPECT_EQ(Lasting::kStable, lasting(networks, "2001:db8::99")) << "unknown";
}

TEST(TcpNetworks, default_routes_are_told_from_others) {
    Networks networks;
    networks.add_routes(
        "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
        "eth0\t00000000\t0100A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
        "docker0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
        "vpn0\t00000000\t00000000\t0001\t0\t0\t0\t00000080\t0\t0\t0\n"
        "*\t00000000\t00000000\t0201\t0\t0\t0\t00000000\t0\t0\t0\n");
    const std::string zero(32, '0');
    const auto route6 = [&](const char* prefix, const char* flags, const char* device) {
        return zero + " " + prefix + " " + zero + " 00 " + zero + " 00000064 00000001 00000000 " +
               flags + " " + device + "\n";
    };
    networks.add_routes6(route6("00", "00000003", "eth1") + route6("40", "00000001", "eth2") +
                         route6("00", "00200200", "lo"));
    EXPECT_TRUE(networks.has_default_route("eth0"));
    EXPECT_TRUE(networks.has_default_route("eth1"));
    for (const char* other : {"docker0", "vpn0", "*", "eth2", "lo"})
        EXPECT_FALSE(networks.has_default_route(other)) << other;
}

}  // namespace
}  // namespace tagwire::tcp
