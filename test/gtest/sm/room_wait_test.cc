// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/room_wait.hpp"

#include <gtest/gtest.h>

namespace tagwire::test {
namespace {

constexpr std::uint64_t kMs = 1'000'000;

/// Sleeps within `ns` of time, while nothing goes.
unsigned sleeps_within(sm::RoomWait& wait, std::uint64_t ns) {
    unsigned count = 0;
    for (std::uint64_t now = 1; now < ns; ++count)
        now += wait.next_sleep_ns(7, now);
    return count;
}

TEST(RoomWait, a_receiver_that_stays_stopped_costs_few_wake_ups) {
    sm::RoomWait wait;
    EXPECT_LE(sleeps_within(wait, 1000 * kMs), 60U);
    sm::RoomWait longer;
    EXPECT_LE(sleeps_within(longer, 60'000 * kMs), 660U);
}

TEST(RoomWait, a_sleep_is_at_most_an_eighth_of_the_time_before) {
    sm::RoomWait wait;
    EXPECT_EQ(wait.next_sleep_ns(1, kMs), sm::RoomWait::kShortestNs);
    for (std::uint64_t waited = 8 * kMs; waited <= 800 * kMs; waited *= 2)
        EXPECT_EQ(wait.next_sleep_ns(1, kMs + waited), waited / 8);
    EXPECT_EQ(wait.next_sleep_ns(1, 1'000'000 * kMs), sm::RoomWait::kLongestNs);
}

TEST(RoomWait, sleeps_are_short_again_when_something_has_gone_or_nothing_waited) {
    sm::RoomWait wait;
    wait.next_sleep_ns(1, kMs);
    EXPECT_GT(wait.next_sleep_ns(1, 500 * kMs), sm::RoomWait::kShortestNs);
    EXPECT_EQ(wait.next_sleep_ns(2, 501 * kMs), sm::RoomWait::kShortestNs);
    EXPECT_GT(wait.next_sleep_ns(2, 900 * kMs), sm::RoomWait::kShortestNs);
    wait.end();
    EXPECT_EQ(wait.next_sleep_ns(2, 901 * kMs), sm::RoomWait::kShortestNs);
}

}  // namespace
}  // namespace tagwire::test
