// SPDX-License-Identifier: BSD-3-Clause
// Transports that `tagwire tune` measures, and figures that it does not believe.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tools/tune_check.hpp"
#include "tools/tune_transports.hpp"

namespace tagwire::test {
namespace {

using namespace tools;

TEST(TunedTransports, are_each_named_once_and_leave_out_what_is_excepted) {
    std::vector<std::string> names = tuned_transports("auto");
    EXPECT_EQ(std::ranges::count(names, "sm"), 1);
    EXPECT_EQ(std::ranges::count(names, "tcp:lo"), 1);
    EXPECT_EQ(tuned_transports("sm,tcp:lo"), (std::vector<std::string>{"sm", "tcp:lo"}));
    std::erase_if(names, [](const std::string& name) { return name.starts_with("tcp:"); });
    EXPECT_EQ(tuned_transports("auto,^tcp"), names);
}

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
