// SPDX-License-Identifier: BSD-3-Clause
// One connection for two interfaces, cheap silent peers, ports of choice.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <uct/api/tagwire_uct.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "acceptor.hpp"
#include "stranger.hpp"
#include "uct/tcp/congestion.hpp"
#include "uct/tcp/connection.hpp"

namespace tagwire::test {
namespace {

// Whichever side has the smaller instance, which is random.
TEST(TcpConnection, two_that_cross_share_one) {
    for (int round = 0; round < 20; ++round) {
        Entity one(loopback_of_tcp());
        Entity other(loopback_of_tcp());
        const Connection there = connect(one, other);
        const Connection back = connect(other, one);
        for (int i = 0; i < 50; ++i) {
            expect_exchange(one, there.forward, other);
            expect_exchange(other, back.forward, one);
        }
        EXPECT_EQ(1U, counter_of(one, "connections"));
        EXPECT_EQ(1U, counter_of(other, "connections"));
        EXPECT_EQ(1, fact_of(one, "peers"));
        EXPECT_EQ(1, fact_of(other, "peers"));
        EXPECT_EQ(0, fact_of(one, "half_open"));
    }
}

TEST(TcpConnection, an_endpoint_back_uses_the_connection_that_there_is) {
    Entity one(loopback_of_tcp());
    Entity other(loopback_of_tcp());
    const Connection there = connect(one, other);
    expect_exchange(one, there.forward, other);
    const Connection back = connect(other, one);
    expect_exchange(other, back.forward, one);
    EXPECT_EQ(1U, counter_of(one, "connections"));
    EXPECT_EQ(1U, counter_of(other, "connections"));
}

TEST(TcpConnection, messages_sent_before_it_stands_keep_their_order) {
    Entity one(loopback_of_tcp());
    Entity other(loopback_of_tcp());
    const Connection there = connect(one, other);
    for (std::uint64_t i = 0; i < 100; ++i)
        ASSERT_EQ(UCS_OK, uct_ep_am_short(there.forward, Entity::kAmId, i, nullptr, 0));
    ASSERT_TRUE(steps_until({&one, &other}, [&] { return other.am.size() == 100; }));
    for (std::uint64_t i = 0; i < 100; ++i) {
        std::uint64_t number = 0;
        std::memcpy(&number, other.am[i].bytes.data(), sizeof number);
        EXPECT_EQ(i, number);
    }
}

// A program that believes a message sent may look elsewhere.
TEST(TcpConnection, all_parts_of_a_message_leave_without_progress_of_its_sender) {
    Entity one(loopback_of_tcp());
    Entity other(loopback_of_tcp());
    const Connection there = connect(one, other);
    expect_exchange(one, there.forward, other);
    const Bytes full(one.attr().cap.am.max_bcopy), rest(9);
    for (std::size_t parts = 2; parts <= 4; ++parts) {
        for (std::size_t messages = 1; messages <= 3; ++messages) {
            other.am.clear();
            for (std::size_t i = 0; i < messages; ++i) {
                for (std::size_t part = 1; part < parts; ++part)
                    ASSERT_EQ(UCS_OK, send_am_bytes(there.forward, Entity::kAmId, full));
                ASSERT_EQ(UCS_OK, send_am_bytes(there.forward, Entity::kAmId, rest));
            }
            EXPECT_TRUE(steps_until({&other}, [&] { return other.am.size() == parts * messages; }));
            one.progress();
        }
    }
}

EntityOptions options_of(const char* name, const char* value) {
    EntityOptions options;
    options.iface_config = {{name, value}};
    return options;
}

TEST(TcpConnection, a_peer_that_takes_its_time_to_reply_is_waited_for) {
    using Clock = std::chrono::steady_clock;
    Entity one(loopback_of_tcp(), options_of("TCP_CONNECT_TIMEOUT", "20ms"));
    Entity other(loopback_of_tcp());
    const Connection there = connect(one, other);
    for (const auto end = Clock::now() + std::chrono::milliseconds(100); Clock::now() < end;)
        one.progress();
    EXPECT_TRUE(one.errors.empty());
    expect_exchange(one, there.forward, other);
}

// It hangs up when a Hello is late, or when too many connections are half open.
TEST(TcpConnection, a_peer_that_hangs_up_before_it_replies_is_greeted_again) {
    Entity opener(loopback_of_tcp());
    Acceptor peer(opener);
    const Endpoint ep = peer.endpoint();
    for (int i = 0; i < 3; ++i)
        peer.take_hello();  // and hangs up
    const tcp::Reply reply = peer.reply(tcp::Verdict::kWelcome);
    peer.send(&reply, sizeof reply);
    EXPECT_TRUE(steps_until({&opener}, [&] { return fact_of(opener, "peers_ready") == 1; }));
    EXPECT_TRUE(opener.errors.empty());
}

TEST(TcpConnection, many_meet_one_that_has_a_single_place) {
    constexpr std::size_t kPeers = 8;
    Entity popular(loopback_of_tcp(), options_of("TCP_HALF_OPEN", "1"));
    std::vector<std::unique_ptr<Entity>> peers;
    std::vector<Connection> connections;
    for (std::size_t i = 0; i < kPeers; ++i) {
        peers.push_back(std::make_unique<Entity>(loopback_of_tcp()));
        connections.push_back(connect(*peers.back(), popular));
    }
    for (std::size_t i = 0; i < kPeers; ++i) {
        expect_exchange(*peers[i], connections[i].forward, popular);
        EXPECT_TRUE(peers[i]->errors.empty());
    }
    connections.clear();
}

TEST(TcpConnection, a_silent_peer_costs_less_than_300_bytes) {
    EXPECT_LT(sizeof(tcp::Connection), 300U);
    Entity victim(loopback_of_tcp());
    std::vector<std::unique_ptr<Stranger>> peers;
    for (int i = 0; i < 32; ++i) {
        peers.push_back(std::make_unique<Stranger>(victim));
        ASSERT_EQ(tcp::Verdict::kWelcome, peers.back()->greet());
    }
    EXPECT_EQ(32, fact_of(victim, "peers_ready"));
    EXPECT_LT(fact_of(victim, "bytes_per_silent_peer"), 300);
    peers.clear();
    EXPECT_TRUE(steps_until({&victim}, [&] { return fact_of(victim, "peers") == 0; }));
}

std::string congestion_control_of(uct_ep_h ep) {
    std::string found;
    const auto take = [](void* arg, const char* name, const char* value) {
        if (std::string_view(name) == "congestion_control")
            *static_cast<std::string*>(arg) = value;
    };
    EXPECT_EQ(UCS_OK, tagwire_uct_ep_describe(ep, take, &found));
    return found;
}

// The connection that was accepted has it, too: one that was set behind the handshake would leave
// the pacing of the system's.
TEST(TcpConnection, nothing_is_paced_on_one_host) {
    Entity one(loopback_of_tcp());
    Entity other(loopback_of_tcp());
    const Connection there = connect(one, other);
    expect_exchange(one, there.forward, other);
    const Connection back = connect(other, one);
    EXPECT_EQ("reno", congestion_control_of(there.forward));
    EXPECT_EQ("reno", congestion_control_of(back.forward));
}

std::string congestion_control_of_the_system() {
    const ucs::UniqueFd fresh(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    return tcp::congestion_control_of(fresh.get());
}

TEST(TcpConnection, peers_of_other_hosts_get_the_congestion_control_of_the_system) {
    Entity victim(loopback_of_tcp());
    Stranger near(victim);
    ASSERT_EQ(tcp::Verdict::kWelcome, near.greet());
    const Endpoint to_near = near.endpoint();
    EXPECT_EQ("reno", congestion_control_of(to_near));
    Stranger far(victim);
    tcp::Hello hello = far.hello();
    hello.host ^= 1;
    ASSERT_EQ(tcp::Verdict::kWelcome, far.greet(hello));
    const Endpoint to_far = far.endpoint();
    EXPECT_EQ(congestion_control_of_the_system(), congestion_control_of(to_far));
}

TEST(TcpConnection, named_congestion_control_stays_between_hosts) {
    const ucs::UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(UCS_OK, tcp::set_congestion_control(socket.get(), "reno"));
    tcp::leave_host(socket.get(), "reno");
    EXPECT_EQ("reno", tcp::congestion_control_of(socket.get()));
    ASSERT_EQ(UCS_OK, tcp::set_congestion_control(socket.get(), "auto"));
    EXPECT_EQ("reno", tcp::congestion_control_of(socket.get()));
    tcp::leave_host(socket.get(), "auto");
    EXPECT_EQ(congestion_control_of_the_system(), tcp::congestion_control_of(socket.get()));
}

TEST(TcpConnection, congestion_control_that_the_kernel_refuses_is_an_error) {
    EntityOptions options;
    options.iface_config = {{"TCP_CONGESTION", "reno"}};
    Entity one(loopback_of_tcp(), options);
    options.iface_config = {{"TCP_CONGESTION", "none_of_this_name"}};
    EXPECT_THROW(Entity(loopback_of_tcp(), options), std::runtime_error);
}

TEST(TcpConnection, ports_are_taken_from_the_range) {
    EntityOptions options;
    options.iface_config = {{"TCP_PORTS", "42310-42311"}};
    const auto port_of = [](const Entity& entity) { return fact_of(entity, "port"); };
    Entity first(loopback_of_tcp(), options);
    Entity second(loopback_of_tcp(), options);
    EXPECT_NE(port_of(first), port_of(second));
    for (const Entity* each : {&first, &second}) {
        EXPECT_GE(port_of(*each), 42310);
        EXPECT_LE(port_of(*each), 42311);
    }
    EXPECT_THROW(Entity(loopback_of_tcp(), options), std::runtime_error);
    options.iface_config = {{"TCP_PORTS", "one"}};
    EXPECT_THROW(Entity(loopback_of_tcp(), options), std::runtime_error);
}

}  // namespace
}  // namespace tagwire::test
