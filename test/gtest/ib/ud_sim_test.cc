// SPDX-License-Identifier: BSD-3-Clause
// The ud protocol over a seeded wire: nothing is lost or doubled, order is kept, every operation
// ends.
// TAGWIRE_TEST_SEED=n runs the schedule of that seed alone.
#include <cstdlib>

#include "ud_sim.hpp"

namespace tagwire::ud::sim {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

template <class Body>
void for_seeds(std::uint64_t count, Body&& body) {
    std::uint64_t first = 1;
    if (const char* given = std::getenv("TAGWIRE_TEST_SEED"); given != nullptr) {
        first = std::strtoull(given, nullptr, 10);
        count = 1;
    }
    for (std::uint64_t seed = first; seed < first + count; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed) +
                     ": replay with TAGWIRE_TEST_SEED=" + std::to_string(seed));
        body(seed);
        if (::testing::Test::HasFailure())
            return;
    }
}

NodeParams small_params(std::mt19937_64& random) {
    NodeParams params;
    params.sender.window = static_cast<std::uint32_t>(1 + random() % 64);
    params.sender.timeout_ns = 100'000;
    params.sender.timeout_max_ns = 5'000'000;
    params.sender.peer_timeout_ns = kSecond / 10;
    params.sender.remote_timeout_ns = kSecond;
    params.sender.keepalive_ns = random() % 2 == 0 ? 0 : 20'000'000;
    params.ahead_max = static_cast<std::uint32_t>(1 + random() % 64);
    params.held_max = static_cast<std::uint32_t>(random() % 100);
    return params;
}

WireParams bad_wire(std::mt19937_64& random) {
    WireParams wire;
    wire.loss = static_cast<double>(random() % 30) / 100;
    wire.duplication = static_cast<double>(random() % 20) / 100;
    wire.jitter_ns = random() % 2 == 0 ? 0 : random() % 200'000;
    wire.refusal = random() % 3 == 0 ? 0.3 : 0;
    wire.is_one_host = random() % 2 == 0;
    wire.as_it_is = random() % 3 == 0 ? 0.5 : 0;
    return wire;
}

TEST(UdSim, a_bad_wire_loses_nothing_and_doubles_nothing) {
    for_seeds(2000, [](std::uint64_t seed) {
        std::mt19937_64 random(seed);
        Wire wire(seed, bad_wire(random));
        const NodeParams params = small_params(random);
        Machine one(wire, 11, params);
        Machine two(wire, 12, params);
        struct Plan {
            Machine* from;
            Machine* to;
            Stream* stream;
            std::uint64_t messages;
        };
        std::vector<Plan> plans;
        for (std::uint64_t i = 0, count = 1 + random() % 4; i < count; ++i) {
            Machine& from = random() % 2 == 0 ? one : two;
            Machine& to = random() % 2 == 0 ? one : two;  // itself, too
            plans.push_back({&from, &to, &from.open(to), random() % 200});
        }
        const auto is_done = [&] {
            bool all = true;
            for (Plan& plan : plans) {
                while (plan.stream->pushed < plan.messages && plan.from->push(*plan.stream)) {
                }
                all = all && plan.stream->pushed == plan.messages && plan.stream->sender.is_idle();
            }
            return all;
        };
        EXPECT_TRUE(wire.run(is_done, 100 * kSecond)) << "did not come to an end";
        for (const Plan& plan : plans) {
            EXPECT_EQ(0, plan.stream->failures);
            EXPECT_EQ(plan.messages, plan.to->received[plan.stream->name]);
        }
        for (const Plan& plan : plans)
            plan.from->close(*plan.stream);
    });
}

// One dies, with everything under way, and another may take its queue pair number.
TEST(UdSim, every_operation_to_a_dead_peer_ends_and_a_successor_is_not_taken_for_it) {
    for_seeds(1000, [](std::uint64_t seed) {
        std::mt19937_64 random(seed);
        Wire wire(seed, bad_wire(random));
        NodeParams params = small_params(random);
        Machine one(wire, 11, params);
        auto two = std::make_unique<Machine>(wire, 12, params);
        Stream& to_two = one.open(*two);
        Stream& to_one = two->open(one);
        Stream& to_self = one.open(one);
        const auto feed = [&] {
            while (one.push(to_two) || two->push(to_one) || one.push(to_self)) {
            }
            return false;
        };
        wire.run(feed, random() % 3'000'000);
        const std::uint64_t from_two = to_one.name;
        two.reset();
        const std::uint64_t before = one.received[from_two];
        std::unique_ptr<Machine> successor;
        if (random() % 2 == 0)
            successor = std::make_unique<Machine>(wire, 12, params);
        // The last acknowledgements may still be on their way.
        EXPECT_TRUE(wire.run(
            [&] {
                return (to_two.failures > 0 || to_two.sender.is_idle()) && to_self.sender.is_idle();
            },
            100 * kSecond));
        EXPECT_LE(to_two.failures, 1);
        EXPECT_EQ(0, to_self.failures) << "another peer suffered";
        EXPECT_EQ(to_self.pushed, one.received[to_self.name]);
        EXPECT_GE(one.received[from_two], before);
        if (successor != nullptr) {
            EXPECT_EQ(0U, successor->received.count(to_two.name)) << "took what was for another";
            Stream& again = one.open(*successor);
            while (again.pushed < 20 && one.push(again)) {
            }
            EXPECT_TRUE(wire.run([&] { return again.sender.is_idle() || again.failures > 0; },
                                 100 * kSecond));
            EXPECT_EQ(0, again.failures);
            EXPECT_EQ(again.pushed, successor->received[again.name]);
        }
        one.close(to_two);
        one.close(to_self);
    });
}

TEST(UdSim, one_percent_of_loss_costs_less_than_half_of_the_throughput) {
    const auto time_of = [](double loss) {
        Wire wire(7, {.loss = loss});
        NodeParams params;
        params.sender.timeout_ns = 10'000'000;
        Machine one(wire, 11, params);
        Machine two(wire, 12, params);
        Stream& stream = one.open(two);
        constexpr std::uint64_t kMessages = 100'000;
        const std::uint64_t start = wire.now;
        std::uint64_t last_turn = 0;
        EXPECT_TRUE(wire.run(
            [&] {
                // The sender's own pace: 200 ns a packet.
                while (stream.pushed < kMessages && (wire.now - start) / 200 > last_turn &&
                       one.push(stream))
                    ++last_turn;
                return stream.pushed == kMessages && stream.sender.is_idle();
            },
            1000 * kSecond));
        EXPECT_EQ(kMessages, two.received[stream.name]);
        one.close(stream);
        return wire.now - start;
    };
    const std::uint64_t clean = time_of(0);
    const std::uint64_t lossy = time_of(0.01);
    EXPECT_LT(lossy, 2 * clean) << lossy << " ns against " << clean;
}

TEST(UdSim, a_peer_that_says_good_bye_is_known_to_be_gone_at_once) {
    Wire wire(3, {});
    Machine one(wire, 11, {});
    auto two = std::make_unique<Machine>(wire, 12, NodeParams{});
    Stream& stream = one.open(*two);
    one.push(stream);
    ASSERT_TRUE(wire.run([&] { return stream.sender.is_idle(); }, kSecond));
    two->node().farewell();
    two.reset();
    const std::uint64_t start = wire.now;
    EXPECT_TRUE(wire.run([&] { return stream.failures == 1; }, kSecond));
    EXPECT_EQ(Failure::kReset, stream.failure);
    EXPECT_LT(wire.now - start, 1'000'000U);
    one.close(stream);
}

TEST(UdSim, a_silent_idle_peer_is_asked_and_found_dead) {
    Wire wire(4, {});
    NodeParams params;
    params.sender.keepalive_ns = kSecond / 10;
    params.sender.remote_timeout_ns = 3 * kSecond;
    Machine one(wire, 11, params);
    auto two = std::make_unique<Machine>(wire, 12, params);
    Stream& stream = one.open(*two);
    one.push(stream);
    wire.run([] { return false; }, 10 * kSecond);
    EXPECT_EQ(0, stream.failures) << "a peer that answers is alive";
    two.reset();
    const std::uint64_t start = wire.now;
    EXPECT_TRUE(wire.run([&] { return stream.failures == 1; }, 100 * kSecond));
    EXPECT_EQ(Failure::kSilence, stream.failure);
    EXPECT_LT(wire.now - start, 5 * kSecond);
    one.close(stream);
}

TEST(UdSim, a_dead_peer_on_this_host_is_known_long_before_a_remote_one_would_be) {
    for (const bool is_connected : {true, false}) {
        Wire wire(6, {.is_one_host = true});
        Machine one(wire, 11, {});
        auto two = std::make_unique<Machine>(wire, 12, NodeParams{});
        Stream& stream = one.open(*two);
        if (is_connected) {
            ASSERT_TRUE(wire.run([&] { return stream.sender.is_open(); }, kSecond));
        }
        two.reset();
        one.push(stream);
        const std::uint64_t start = wire.now;
        EXPECT_TRUE(wire.run([&] { return stream.failures == 1; }, 100 * kSecond));
        EXPECT_EQ(Failure::kDeath, stream.failure);
        EXPECT_LE(wire.now - start, kSecond);
        one.close(stream);
    }
}

TEST(UdSim, a_live_peer_on_this_host_is_waited_for_however_long_it_is_silent) {
    Wire wire(8, {.is_one_host = true});
    Machine one(wire, 11, {});
    Machine two(wire, 12, {});
    Stream& stream = one.open(two);
    ASSERT_TRUE(wire.run([&] { return stream.sender.is_open(); }, kSecond));
    wire.become({.loss = 1, .is_one_host = true});
    one.push(stream);
    wire.run([] { return false; }, 1000 * kSecond);
    EXPECT_EQ(0, stream.failures);
    EXPECT_FALSE(stream.sender.is_idle());
    wire.become({.is_one_host = true});
    EXPECT_TRUE(wire.run([&] { return stream.sender.is_idle(); }, 10 * kSecond));
    EXPECT_EQ(1U, two.received[stream.name]);
    one.close(stream);
}

// An acknowledgement owed to a peer is sent even if the packet that was to carry it is sent again
// unchanged.
TEST(UdSim, an_acknowledgement_is_not_lost_with_a_packet_that_the_device_still_reads) {
    for_seeds(20, [](std::uint64_t seed) {  // some messages ask for an answer at once
        Wire wire(seed, {});
        NodeParams quick;
        quick.ack_delay_ns = kSecond / 5;
        NodeParams patient;
        patient.sender.timeout_ns = kSecond;
        Machine one(wire, 11, patient);
        Machine two(wire, 12, quick);
        Stream& to_two = one.open(two);
        Stream& to_one = two.open(one);
        ASSERT_TRUE(
            wire.run([&] { return to_two.sender.is_open() && to_one.sender.is_open(); }, kSecond));
        wire.become({.loss = 1});
        two.push(to_one);  // goes again after 10 ms
        wire.become({.as_it_is = 1});
        one.push(to_two);
        EXPECT_TRUE(wire.run([&] { return to_two.sender.is_idle() && to_one.sender.is_idle(); },
                             kSecond / 2));
        EXPECT_EQ(0U, to_two.sender.resent());
        one.close(to_two);
        two.close(to_one);
    });
}

// A program that invents senders gets answers to some of them, not to all.
TEST(UdSim, resets_to_strangers_have_a_rate) {
    Wire wire(11, {});
    Machine one(wire, 11, {});
    const auto ask = [&](std::uint32_t count) {
        for (std::uint32_t i = 1; i <= count; ++i) {
            std::vector<std::byte> datagram(kControlBytesMax);
            Header header{.kind = Kind::kConnect};
            header.to_cookie = one.node().params().cookie + 1;
            header.from_id = i;
            header = pack(header);
            std::memcpy(datagram.data(), &header, sizeof header);
            one.arrived(datagram);
        }
    };
    ask(100'000);
    const std::uint64_t at_once = one.counted(Event::kResetSent);
    EXPECT_GE(at_once, 256U);
    EXPECT_LE(at_once, 257U);
    wire.now += kSecond / 100;
    ask(100'000);
    EXPECT_EQ(at_once + 100, one.counted(Event::kResetSent));
    EXPECT_EQ(100'000U * 2, one.counted(Event::kForeign));
}

TEST(UdSim, garbage_reaches_nobody) {
    for_seeds(200, [](std::uint64_t seed) {
        Wire wire(seed, {});
        NodeParams params;
        params.inbound_max = 50;
        Machine one(wire, 11, params);
        Machine two(wire, 12, params);
        Stream& stream = one.open(two);
        std::uint64_t sent = 0;
        const auto is_done = [&] {
            std::vector<std::byte> noise(wire.random() % 120);
            for (std::byte& byte : noise)
                byte = static_cast<std::byte>(wire.random());
            Header header;
            header.kind = static_cast<Kind>(1 + wire.random() % 7);
            header.to_cookie = wire.random() % 4 == 0 ? 5 : two.node().params().cookie;
            header.to_id = static_cast<std::uint32_t>(wire.random() % 3);
            header.from_id = static_cast<std::uint32_t>(wire.random());
            header.ack_id = static_cast<std::uint32_t>(wire.random() % 2);
            header = pack(header);
            if (noise.size() >= sizeof header && wire.random() % 2 == 0)
                std::memcpy(noise.data(), &header, sizeof header);
            two.arrived(noise);
            if (sent < 100 && one.push(stream))
                ++sent;
            return sent == 100 && stream.sender.is_idle();
        };
        EXPECT_TRUE(wire.run(is_done, 10 * kSecond));
        EXPECT_EQ(0, stream.failures);
        EXPECT_EQ(1U, two.received.size());
        EXPECT_EQ(100U, two.received[stream.name]);
        EXPECT_LE(two.node().inbounds(), 50U);
        one.close(stream);
    });
}

TEST(UdSim, closed_connections_leave_nothing_behind) {
    Wire wire(9, {});
    Machine one(wire, 11, {});
    Machine two(wire, 12, {});
    for (int i = 0; i < 5000; ++i) {
        Stream& stream = one.open(two);
        one.push(stream);
        ASSERT_TRUE(wire.run([&] { return stream.sender.is_idle(); }, kSecond));
        one.close(stream);
    }
    wire.run([] { return false; }, kSecond);
    EXPECT_EQ(0U, two.node().inbounds());
    EXPECT_EQ(0U, two.buffers_out);
    EXPECT_EQ(0U, one.buffers_out);
}

}  // namespace
}  // namespace tagwire::ud::sim
