// SPDX-License-Identifier: BSD-3-Clause
// Handshakes that come late or cross, strangers by the thousand, and ports that were used before.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "acceptor.hpp"
#include "stranger.hpp"

namespace tagwire::test {
namespace {

EntityOptions with(const char* name, const char* value) {
    EntityOptions options;
    options.iface_config = {{name, value}};
    return options;
}

// The clock is looked at in the 64th call, behind the first 32 events.
TEST(TcpHandshake, connections_that_stand_are_not_timed_out_by_late_progress) {
    constexpr std::size_t kPeers = 40;
    constexpr unsigned kCallsPerClock = 64;
    Entity one(loopback_of_tcp(), with("TCP_CONNECT_TIMEOUT", "1ms"));
    std::vector<std::unique_ptr<Entity>> peers;
    for (std::size_t i = 0; i < kPeers; ++i)
        peers.push_back(std::make_unique<Entity>(loopback_of_tcp()));
    for (unsigned i = 1; i < kCallsPerClock; ++i)
        one.progress();
    std::vector<Endpoint> eps;
    for (const auto& peer : peers)
        eps.push_back(connect_to_address(one, peer->device_address(), peer->iface_address()));
    ::poll(nullptr, 0, 5);  // a computation
    for (unsigned i = 0; i < 2 * kCallsPerClock; ++i)
        one.progress();
    EXPECT_TRUE(one.errors.empty());
    expect_exchange(one, eps.back(), *peers.back());
}

TEST(TcpHandshake, a_peer_that_took_its_lost_connection_for_ours_is_asked_again) {
    Entity opener(loopback_of_tcp(), with("TCP_CONNECT_TIMEOUT", "400ms"));
    Acceptor peer(opener);
    const Endpoint ep = peer.endpoint();
    peer.take_hello();
    tcp::Reply reply = peer.reply(tcp::Verdict::kCrossed);
    peer.send(&reply, sizeof reply);
    peer.take_hello();
    reply = peer.reply(tcp::Verdict::kWelcome);
    peer.send(&reply, sizeof reply);
    EXPECT_TRUE(steps_until({&opener}, [&] { return fact_of(opener, "peers_ready") == 1; }));
    EXPECT_TRUE(opener.errors.empty());
}

TEST(TcpHandshake, silent_strangers_take_no_place) {
    Entity victim(loopback_of_tcp(), with("TCP_HALF_OPEN", "1"));
    std::vector<std::unique_ptr<Stranger>> silent;
    for (int i = 0; i < 20; ++i)
        silent.push_back(std::make_unique<Stranger>(victim));
    for (int i = 0; i < 1000; ++i)
        victim.progress();
    EXPECT_EQ(0, fact_of(victim, "half_open"));
    EXPECT_EQ(0U, counter_of(victim, "refused"));
}

TEST(TcpHandshake, strangers_of_one_host_do_not_keep_out_a_slow_peer_of_another) {
    Entity victim(loopback_of_tcp(), with("TCP_HALF_OPEN", "8"));
    Stranger slow(victim);
    const tcp::Hello hello = slow.hello();
    slow.send(&hello, 8);
    ASSERT_TRUE(steps_until({&victim}, [&] { return fact_of(victim, "half_open") == 1; }));
    std::vector<std::unique_ptr<Stranger>> strangers;
    for (int i = 0; i < 200; ++i) {
        strangers.push_back(std::make_unique<Stranger>(victim, "127.0.0.2"));
        strangers.back()->send("w");
    }
    ASSERT_TRUE(steps_until({&victim}, [&] { return counter_of(victim, "refused") >= 193; }));
    slow.send(reinterpret_cast<const std::byte*>(&hello) + 8, sizeof hello - 8);
    EXPECT_TRUE(steps_until({&victim}, [&] { return fact_of(victim, "peers_ready") == 1; }));
}

TEST(TcpHandshake, strangers_write_few_lines_into_the_log) {
    constexpr int kStrangers = 200;
    Entity victim(loopback_of_tcp());
    ::testing::internal::CaptureStderr();
    for (int i = 0; i < kStrangers; ++i) {
        Stranger stranger(victim);
        stranger.send("G");
        EXPECT_TRUE(stranger.is_ended());
    }
    const std::string told = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(std::uint64_t{kStrangers}, counter_of(victim, "refused"));
    EXPECT_NE(std::string::npos, told.find("(128 times so far)")) << told;
    EXPECT_LE(std::ranges::count(told, '\n'), 8) << told;
}

TEST(TcpHandshake, a_port_whose_connections_were_closed_is_free_again) {
    const EntityOptions fixed = with("TCP_PORTS", "42312");
    Entity one(loopback_of_tcp());
    auto server = std::make_unique<Entity>(loopback_of_tcp(), fixed);
    {
        const Endpoint ep =
            connect_to_address(one, server->device_address(), server->iface_address());
        expect_exchange(one, ep, *server);
        server->close_iface();  // first, so that its side waits for late packets
        EXPECT_TRUE(steps_until({&one}, [&] { return !one.errors.empty(); }));
    }
    const Entity again(loopback_of_tcp(), fixed);
    EXPECT_EQ(42312, fact_of(again, "port"));
}

}  // namespace
}  // namespace tagwire::test
