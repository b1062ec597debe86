// SPDX-License-Identifier: BSD-3-Clause
// The UDP fabric by itself, on loopback addresses of this process: what it takes, what it drops.
#include "vhca/fabric/udp_fabric.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "vhca/core/packet.hpp"
#include "vhca/test/fabric/host.hpp"

namespace tagwire::test {
namespace {

using vhca::FabricCounters;
using vhca::Route;
using vhca::UdpFabric;

struct NoEvents final : vhca::EventSink {
    void cq_event(vhca::Cq&) override {}
    void qp_event(ibv_event_type, vhca::Qp&) override {}
    void srq_event(ibv_event_type, vhca::Srq&) override {}
    void cq_error(vhca::Cq&) override {}
};

/** A fabric with a device that counts what it gets. */
struct UdpNode {
    std::unique_ptr<UdpFabric> fabric;
    NoEvents events;
    std::unique_ptr<vhca::Device> device;

    explicit UdpNode(unsigned number) {
        EXPECT_EQ(UdpFabric::open(loopback_address(number).c_str(), &fabric), 0);
        device = std::make_unique<vhca::Device>(vhca::DeviceConfig{}, *fabric, events, 1);
    }
    [[nodiscard]] Route route() const { return Route{fabric->address()}; }
    [[nodiscard]] const FabricCounters& counters() const { return fabric->counters(); }
    [[nodiscard]] std::uint64_t delivered() const { return device->counters().packets_received; }

    /// To a queue pair that does not exist: the device counts it.
    bool send(Route to, std::size_t payload_bytes = 0) {
        vhca::Packet packet;
        packet.opcode = vhca::Opcode::kRcSendOnly;
        const std::size_t bytes = vhca::packet_bytes(packet.opcode, payload_bytes);
        std::byte* place = fabric->claim(to, bytes);
        if (place == nullptr)
            return false;
        std::byte* payload = put_headers(place, packet, payload_bytes);
        std::memset(payload, 7, payload_bytes);
        vhca::put_padding(payload + payload_bytes, payload_bytes);
        fabric->commit(to, bytes);
        return true;
    }
    /// Takes what has come until `count` datagrams were looked at in all.
    void receive(std::uint64_t count) {
        const auto seen = [this] {
            return counters().packets_received + counters().foreign + counters().malformed +
                   counters().bad_crc;
        };
        for (int i = 0; i < 1'000'000 && seen() < count; ++i)
            fabric->deliver(*device, 1);
        EXPECT_EQ(seen(), count);
    }
};

/** A socket that sends whatever a test likes. */
struct Stranger {
    ucs::UniqueFd fd;

    Stranger(unsigned number, std::uint16_t port)
        : fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
        const sockaddr_in own = name(loopback_address(number), port);
        EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&own), sizeof own), 0);
    }
    static sockaddr_in name(const std::string& address, std::uint16_t port) {
        sockaddr_in name{};
        name.sin_family = AF_INET;
        name.sin_port = htons(port);
        EXPECT_EQ(::inet_pton(AF_INET, address.c_str(), &name.sin_addr), 1);
        return name;
    }
    void send(const std::string& to, const std::vector<std::byte>& bytes) const {
        const sockaddr_in target = name(to, vhca::kRocePort);
        EXPECT_EQ(::sendto(fd.get(), bytes.data(), bytes.size(), 0,
                           reinterpret_cast<const sockaddr*>(&target), sizeof target),
                  static_cast<ssize_t>(bytes.size()));
    }
};

TEST(VhcaUdpFabric, packets_of_all_sizes_arrive_once) {
    UdpNode a(1), b(2);
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, vhca::kMtuMax})
        ASSERT_TRUE(a.send(b.route(), bytes));
    ASSERT_TRUE(a.send(a.route()));  // to oneself
    EXPECT_TRUE(a.fabric->flush());
    b.receive(3);
    a.receive(1);
    EXPECT_EQ(b.delivered(), 3U);
    EXPECT_EQ(a.delivered(), 1U);
    EXPECT_EQ(b.counters().packets_received, 3U);
    EXPECT_EQ(a.counters().packets_sent, 4U);
}

TEST(VhcaUdpFabric, a_full_batch_is_sent_by_the_next_claim) {
    UdpNode a(1), b(2);
    for (unsigned i = 0; i < 3 * UdpFabric::kBatch; ++i)
        ASSERT_TRUE(a.send(b.route(), 8));
    EXPECT_TRUE(a.fabric->flush());
    b.receive(std::uint64_t{3} * UdpFabric::kBatch);
    EXPECT_EQ(b.delivered(), 3U * UdpFabric::kBatch);
}

TEST(VhcaUdpFabric, only_the_port_of_a_node_is_heard) {
    UdpNode node(1);
    Stranger(2, 0).send(loopback_address(1), std::vector<std::byte>(20));
    node.receive(1);
    EXPECT_EQ(node.counters().foreign, 1U);
    EXPECT_EQ(node.delivered(), 0U);
}

TEST(VhcaUdpFabric, wrong_crcs_and_wrong_lengths_are_dropped_and_counted) {
    UdpNode node(1);
    const Stranger stranger(2, vhca::kRocePort);
    const std::string to = loopback_address(1);
    stranger.send(to, std::vector<std::byte>(20));
    stranger.send(to, {});
    stranger.send(to, std::vector<std::byte>(12));
    stranger.send(to, std::vector<std::byte>(21));
    stranger.send(to, std::vector<std::byte>(UdpFabric::kDatagramBytesMax + 4));
    node.receive(5);
    EXPECT_EQ(node.counters().bad_crc, 1U);
    EXPECT_EQ(node.counters().malformed, 4U);
    EXPECT_EQ(node.delivered(), 0U);
}

TEST(VhcaUdpFabric, a_datagram_with_the_right_crc_is_that_nodes_packet) {
    UdpNode node(1);
    std::vector<std::byte> datagram(20);
    std::uint32_t source = 0;
    ASSERT_TRUE(vhca::parse_ipv4(loopback_address(2).c_str(), &source));
    const vhca::UdpPath path{source, node.fabric->address(), vhca::kRocePort, vhca::kRocePort};
    vhca::put_icrc(&datagram[16], vhca::icrc_of(path, std::span(datagram).first(16)));
    Stranger(2, vhca::kRocePort).send(loopback_address(1), datagram);
    node.receive(1);
    EXPECT_EQ(node.delivered(), 1U);
}

TEST(VhcaUdpFabric, a_route_to_nowhere_loses_the_packet) {
    UdpNode a(1);
    for (const std::uint64_t node : {std::uint64_t{0}, std::uint64_t{0xe0000001},
                                     std::uint64_t{0xffffffff}, std::uint64_t{1} << 32}) {
        ASSERT_TRUE(a.send(Route{node}));
    }
    EXPECT_TRUE(a.fabric->flush());
    EXPECT_EQ(a.counters().vanished, 4U);
}

TEST(VhcaUdpFabric, an_address_serves_one_process) {
    const UdpNode first(1);
    std::unique_ptr<UdpFabric> second;
    EXPECT_EQ(UdpFabric::open(loopback_address(1).c_str(), &second), EADDRINUSE);
    EXPECT_EQ(UdpFabric::open("192.0.2.1", &second), EADDRNOTAVAIL);
    for (const char* address : {"localhost", "0.0.0.0", "224.0.0.1", "255.255.255.255", "::1"})
        EXPECT_EQ(UdpFabric::open(address, &second), EINVAL) << address;
    EXPECT_EQ(second, nullptr);
}

TEST(VhcaUdpFabric, packets_wake_only_who_armed) {
    UdpNode a(1), b(2);
    const auto is_ringing = [&b] {
        pollfd fd{.fd = b.fabric->epoll_fd(), .events = POLLIN, .revents = 0};
        return ::poll(&fd, 1, 0) > 0;
    };
    const auto send = [&] { return a.send(b.route()) && a.fabric->flush(); };
    ASSERT_TRUE(send());
    EXPECT_FALSE(is_ringing());
    EXPECT_TRUE(b.fabric->is_neglected());
    EXPECT_FALSE(b.fabric->arm()) << "a packet is there already";
    b.receive(1);
    EXPECT_FALSE(b.fabric->is_neglected());
    EXPECT_TRUE(b.fabric->arm());
    EXPECT_FALSE(is_ringing());
    ASSERT_TRUE(send());
    EXPECT_TRUE(is_ringing());
    b.fabric->service();
    EXPECT_FALSE(is_ringing()) << "once";
}

TEST(VhcaUdpFabric, mtu_follows_the_interface) {
    EXPECT_EQ(vhca::roce_mtu(1500), IBV_MTU_1024);
    EXPECT_EQ(vhca::roce_mtu(9000), IBV_MTU_4096);
    EXPECT_EQ(vhca::roce_mtu(65536), IBV_MTU_4096);
    EXPECT_EQ(vhca::roce_mtu(4200), IBV_MTU_2048);
    EXPECT_EQ(vhca::roce_mtu(576), IBV_MTU_256);
    EXPECT_EQ(vhca::roce_mtu(68), IBV_MTU_256);
    const UdpNode node(1);
    EXPECT_EQ(node.fabric->interface().name, "lo");
    EXPECT_EQ(node.fabric->mtu(), vhca::roce_mtu(node.fabric->interface().mtu_bytes));
}

}  // namespace
}  // namespace tagwire::test
