// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/force.hpp"

#include <gtest/gtest.h>

namespace tagwire::sm {
namespace {

TEST(SmForceOption, is_nothing_by_default) {
    SmForce force{.ring_start = 1, .poll = PollMode::kBell};
    ASSERT_EQ(parse_force("", &force), UCS_OK);
    EXPECT_EQ(force.ring_start, 0U);
    EXPECT_EQ(force.death, DeathMode::kAuto);
    EXPECT_EQ(force.poll, PollMode::kAuto);
    EXPECT_EQ(force.wakeup, WakeupMode::kAuto);
}

TEST(SmForceOption, sets_what_it_names) {
    SmForce force;
    ASSERT_EQ(
        parse_force("ring_start:18446744073709551500,death:hangup,poll:bell,wakeup:fence", &force),
        UCS_OK);
    EXPECT_EQ(force.ring_start, 18446744073709551500U);
    EXPECT_EQ(force.death, DeathMode::kHangup);
    EXPECT_EQ(force.poll, PollMode::kBell);
    EXPECT_EQ(force.wakeup, WakeupMode::kFence);
    ASSERT_EQ(parse_force("wakeup:membarrier", &force), UCS_OK);
    EXPECT_EQ(force.wakeup, WakeupMode::kMembarrier);
    EXPECT_EQ(force.poll, PollMode::kAuto);
}

TEST(SmForceOption, is_refused_as_a_whole) {
    for (const char* text : {"poll", "poll:", "poll:auto", "wakeup:bell", "ring_start:x",
                             "ring_start:1x", "ring_start:", "ring_start:18446744073709551616",
                             "ring_start:-1", ",", "poll:bell,,death:pidfd", "poll:bell;"}) {
        SmForce force{.ring_start = 7};
        EXPECT_EQ(parse_force(text, &force), UCS_ERR_INVALID_PARAM) << text;
        EXPECT_EQ(force.ring_start, 7U) << text;
        EXPECT_EQ(force.poll, PollMode::kAuto) << text;
    }
}

}  // namespace
}  // namespace tagwire::sm
