// SPDX-License-Identifier: BSD-3-Clause
// Time in which nobody looked at the device does not count as time that it was given.
#include "uct/ib/watched_time.hpp"

#include <gtest/gtest.h>

namespace tagwire::ib {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

TEST(WatchedTime, is_the_clocks_while_somebody_looks) {
    WatchedTime time;
    const std::uint64_t begin = time.look(77 * kSecond);
    for (std::uint64_t now = 77 * kSecond; now <= 78 * kSecond; now += WatchedTime::kGapNs / 10)
        time.look(now);
    EXPECT_EQ(kSecond, time.ns() - begin);
}

TEST(WatchedTime, a_program_that_was_stopped_has_not_waited) {
    WatchedTime time;
    const std::uint64_t begin = time.look(77 * kSecond);
    EXPECT_EQ(WatchedTime::kGapNs, time.look(200 * kSecond) - begin);
    EXPECT_EQ(WatchedTime::kGapNs + 5, time.look(200 * kSecond + 5) - begin);
}

}  // namespace
}  // namespace tagwire::ib
