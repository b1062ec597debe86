// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/cost/timing.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace tagwire::test {
namespace {

using proto::Pattern;
using proto::Timing;

TEST(Timing, a_message_in_turns_takes_what_its_sender_did_before_it_came_too) {
    const Timing timing = Timing::of(1000, 1300);
    EXPECT_TRUE(timing.is_wanted());
    EXPECT_EQ(timing.pattern, Pattern::kTurns);
    EXPECT_EQ(timing.until(1800), 800U);
}

TEST(Timing, what_a_message_has_waited_for_its_receiver_counts_no_more_than_the_copy) {
    EXPECT_EQ(Timing::of(1000, 90'000).until(90'400), 800U);
}

TEST(Timing, a_sender_of_another_clock_at_most_doubles_a_time) {
    EXPECT_EQ(Timing::of(UINT64_MAX, 1000).until(1400), 800U);
    EXPECT_EQ(Timing::of(5000, 1000).until(1400), 800U);
    EXPECT_EQ(Timing::of(1000, 1100).until(1095), 0U)
        << "the thread has moved to a processor behind";
}

TEST(Timing, of_a_stream_the_receivers_part_counts) {
    const Timing timing = Timing::of(0, 1300);
    EXPECT_EQ(timing.pattern, Pattern::kStream);
    EXPECT_EQ(timing.until(1800), 500U);
    EXPECT_FALSE(Timing{}.is_wanted());
}

}  // namespace
}  // namespace tagwire::test
