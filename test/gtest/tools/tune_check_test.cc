// SPDX-License-Identifier: BSD-3-Clause
// Which figures `tagwire tune` does not believe.
#include <gtest/gtest.h>

#include "tools/tune_check.hpp"

namespace tagwire::test {
namespace {

using namespace tools;

TEST(TuneCheck, costs_that_grow_over_a_steady_floor_are_believed) {
    const Costs costs{{{"parts", 9216}, 1670}, {{"parts", 12288}, 1400}, {{"short", 8}, 60}};
    EXPECT_TRUE(doubts_of(costs, {{60, 62}, {60, 300}, {61, 60}}).empty());
    EXPECT_TRUE(doubts_of({}, {}).empty());
}

TEST(TuneCheck, a_longer_message_that_costs_far_less_is_named) {
    const Costs costs{{{"bcopy", 64}, 80}, {{"parts", 9216}, 4950}, {{"parts", 12288}, 1670}};
    const std::vector<std::string> doubts = doubts_of(costs, {{60, 60}});
    ASSERT_EQ(doubts.size(), 1U);
    EXPECT_EQ(doubts[0], "parts of 9k takes 4.95 us, of 12k only 1.67 us");
}

TEST(TuneCheck, a_floor_that_moves_is_told) {
    const std::vector<std::string> doubts = doubts_of({}, {{60, 90}, {200, 60}, {60, 60}});
    ASSERT_EQ(doubts.size(), 1U);
    EXPECT_NE(doubts[0].find("around 2 of 3 measurements"), std::string::npos) << doubts[0];
}

}  // namespace
}  // namespace tagwire::test
