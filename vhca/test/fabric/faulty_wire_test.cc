// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "vhca/fabric/faulty_wire.hpp"

namespace tagwire::test {
namespace {

using vhca::FaultConfig;
using vhca::FaultCounters;
using vhca::FaultyWire;
using vhca::Route;
using vhca::Time;

/** Remembers the numbers that were sent; may be full. */
class NumberWire final : public vhca::Wire {
  public:
    std::byte* claim(Route, std::size_t) override {
        return is_full && room == 0 ? nullptr : place_;
    }
    void commit(Route, std::size_t) override {
        std::uint32_t number = 0;
        std::memcpy(&number, place_, sizeof number);
        numbers.push_back(number);
        room -= room != 0 ? 1 : 0;
    }
    bool is_full = false;
    unsigned room = 0;  // of a full one
    std::vector<std::uint32_t> numbers;

  private:
    std::byte place_[vhca::kPacketBytesMax];
};

struct Bench {
    Time now = 1'000;
    NumberWire below;
    FaultyWire wire;

    explicit Bench(const FaultConfig& config) : wire(below, config, [this] { return now; }) {}

    void send(std::uint32_t count) {
        for (std::uint32_t i = 0; i < count; ++i) {
            std::byte* place = wire.claim(Route{1}, 64);
            ASSERT_NE(place, nullptr);
            std::memcpy(place, &i, sizeof i);
            wire.commit(Route{1}, 64);
            wire.progress(now += 10);
        }
    }
    void settle() {
        while (wire.progress(now) != vhca::kNever)
            now += 1'000;
    }
};

TEST(FaultyWire, every_packet_is_accounted_for) {
    Bench bench({.loss = 0.1, .duplication = 0.1, .reordering = 0.2, .seed = 7});
    bench.send(2'000);
    bench.settle();
    const FaultCounters& counters = bench.wire.counters();
    EXPECT_EQ(counters.packets, 2'000U);
    EXPECT_EQ(counters.packets + counters.duplicated, counters.lost + counters.passed);
    EXPECT_EQ(counters.passed, bench.below.numbers.size());
    EXPECT_NEAR(static_cast<double>(counters.lost), 200, 60);
    EXPECT_NEAR(static_cast<double>(counters.duplicated), 180, 60);
    EXPECT_NEAR(static_cast<double>(counters.reordered), 400, 90);
    EXPECT_FALSE(std::is_sorted(bench.below.numbers.begin(), bench.below.numbers.end()));
}

TEST(FaultyWire, packets_of_another_class_than_the_network_carries_are_lost) {
    const vhca::ServiceClass carried{.level = 3, .traffic = 96};
    Bench bench({.carried = carried});
    for (const vhca::ServiceClass service :
         {carried, vhca::ServiceClass{}, vhca::ServiceClass{3, 0}, vhca::ServiceClass{0, 96}}) {
        const Route to{.node = 1, .service = service};
        ASSERT_NE(bench.wire.claim(to, 64), nullptr);
        bench.wire.commit(to, 64);
    }
    EXPECT_EQ(bench.below.numbers.size(), 1U);
    EXPECT_EQ(bench.wire.counters().lost, 3U);
    EXPECT_EQ(bench.wire.counters().misclassed, 3U);
}

TEST(FaultyWire, one_seed_gives_the_same_faults_again) {
    const FaultConfig config{.loss = 0.3, .duplication = 0.2, .reordering = 0.2, .seed = 99};
    Bench one(config), two(config);
    one.send(500);
    one.settle();
    two.send(500);
    two.settle();
    EXPECT_EQ(one.below.numbers, two.below.numbers);
}

TEST(FaultyWire, delay_keeps_order_and_time) {
    Bench bench({.delay_ns = 5'000});
    bench.send(10);
    EXPECT_TRUE(bench.below.numbers.empty());
    EXPECT_EQ(bench.wire.progress(bench.now), 6'000U);
    bench.now = 6'000;
    bench.wire.progress(bench.now);
    EXPECT_EQ(bench.below.numbers.size(), 1U);
    bench.settle();
    EXPECT_EQ(bench.below.numbers.size(), 10U);
    EXPECT_TRUE(std::is_sorted(bench.below.numbers.begin(), bench.below.numbers.end()));
    EXPECT_EQ(bench.wire.counters().delayed, 10U);
}

TEST(FaultyWire, what_is_late_waits_for_room_and_is_not_lost) {
    Bench bench({.duplication = 0.5, .delay_ns = 1'000, .seed = 3});
    for (std::uint32_t i = 0; i < 100; ++i) {
        ASSERT_NE(bench.wire.claim(Route{1}, 64), nullptr);
        bench.wire.commit(Route{1}, 64);
    }
    bench.below.is_full = true;
    bench.now += 2'000;
    EXPECT_LE(bench.wire.progress(bench.now), bench.now);
    bench.below.room = 3;
    EXPECT_LE(bench.wire.progress(bench.now), bench.now);
    EXPECT_EQ(bench.below.numbers.size(), 3U);
    EXPECT_EQ(bench.wire.claim(Route{1}, 64), nullptr) << "it would come before those that wait";
    bench.below.room = 1;
    EXPECT_NE(bench.wire.claim(Route{2}, 64), nullptr) << "another node's room is not its matter";
    bench.below.is_full = false;
    EXPECT_EQ(bench.wire.progress(bench.now), vhca::kNever);
    EXPECT_EQ(bench.below.numbers.size(), 100 + bench.wire.counters().duplicated);
    EXPECT_NE(bench.wire.claim(Route{1}, 64), nullptr);
}

TEST(FaultyWire, as_many_late_packets_as_may_be_to_a_node_stop_no_other_one) {
    Bench bench({.delay_ns = 1'000});
    for (std::size_t i = 0; i < FaultyWire::kHeldMax; ++i) {
        ASSERT_NE(bench.wire.claim(Route{1}, 64), nullptr);
        bench.wire.commit(Route{1}, 64);
    }
    EXPECT_EQ(bench.wire.claim(Route{1}, 64), nullptr);
    ASSERT_NE(bench.wire.claim(Route{2}, 64), nullptr);
    bench.wire.commit(Route{2}, 64);
    bench.settle();
    EXPECT_EQ(bench.below.numbers.size(), FaultyWire::kHeldMax + 1);
    EXPECT_NE(bench.wire.claim(Route{1}, 64), nullptr);
}

TEST(FaultyWire, a_repeated_packet_that_finds_no_room_comes_later) {
    Bench bench({.duplication = 1});
    ASSERT_NE(bench.wire.claim(Route{1}, 64), nullptr);
    bench.below.is_full = true;
    bench.below.room = 1;
    bench.wire.commit(Route{1}, 64);
    EXPECT_EQ(bench.below.numbers.size(), 1U);
    EXPECT_EQ(bench.wire.held(), 1U);
    bench.below.is_full = false;
    EXPECT_EQ(bench.wire.progress(bench.now), vhca::kNever);
    EXPECT_EQ(bench.below.numbers.size(), 2U);
}

}  // namespace
}  // namespace tagwire::test
