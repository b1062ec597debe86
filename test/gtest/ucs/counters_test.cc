// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/stats/counters.hpp"

#include <gtest/gtest.h>

namespace tagwire::ucs {
namespace {

enum class Play { kSent, kReceived, kCount };

constexpr CounterInfo kInfos[] = {
    {"sent", "messages", "messages sent"},
    {"received", "messages", "messages received"},
};

TEST(Counters, start_at_zero_and_add_up) {
    CounterArray<Play> counters;
    EXPECT_EQ(counters.value(Play::kSent), 0U);
    counters.add(Play::kSent);
    counters.add(Play::kSent, 41);
    EXPECT_EQ(counters.value(Play::kSent), 42U);
    EXPECT_EQ(counters.value(Play::kReceived), 0U);
}

TEST(Counters, set_shows_names_beside_live_values) {
    CounterArray<Play> counters;
    const CounterSet set = counters.set(kInfos);
    counters.add(Play::kReceived, 3);
    ASSERT_EQ(set.infos.size(), set.values.size());
    EXPECT_STREQ(set.infos[1].name, "received");
    EXPECT_EQ(set.values[1].value(), 3U);
}

}  // namespace
}  // namespace tagwire::ucs
