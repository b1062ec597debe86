// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/crowding.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace tagwire::test {
namespace {

using sm::Crowding;

class CrowdingTest : public ::testing::Test {
  protected:
    static constexpr std::uint64_t kLimit = 1000;  // ticks per call
    static constexpr std::uint64_t kCalls = 8;

    /// One look, after `kCalls` calls that took `ticks` each.
    bool look(std::uint64_t ticks) {
        now += kCalls * ticks;
        return crowding.look(now, kCalls);
    }
    void make_crowded() {
        while (!look(2 * kLimit)) {
        }
        ASSERT_TRUE(crowding.is_crowded());
    }

    Crowding crowding{kLimit};
    std::uint64_t now = UINT64_MAX - 20 * kLimit;  // it wraps around
};

TEST_F(CrowdingTest, is_not_what_calls_close_together_mean) {
    for (int i = 0; i < 100; ++i)
        look(kLimit);
    EXPECT_FALSE(crowding.is_crowded());
}

TEST_F(CrowdingTest, is_seen_after_several_looks_far_apart) {
    unsigned looks = 1;
    while (!look(kLimit + 1))
        ++looks;
    EXPECT_TRUE(crowding.is_crowded());
    EXPECT_EQ(Crowding::kLooksToCrowded, looks);
}

TEST_F(CrowdingTest, is_not_what_single_pauses_mean) {
    for (int i = 0; i < 100; ++i) {
        for (unsigned look_no = 1; look_no < Crowding::kLooksToCrowded; ++look_no)
            EXPECT_FALSE(look(50 * kLimit));
        EXPECT_FALSE(look(1));
    }
    EXPECT_FALSE(crowding.is_crowded());
}

TEST_F(CrowdingTest, ends_after_a_few_looks_close_together) {
    make_crowded();
    for (unsigned i = 1; i < Crowding::kLooksBack; ++i)
        EXPECT_FALSE(look(1));
    EXPECT_TRUE(look(1));
    EXPECT_FALSE(crowding.is_crowded());
}

TEST_F(CrowdingTest, counts_the_calls_that_found_messages) {
    make_crowded();
    for (unsigned i = 0; i < Crowding::kLooksBack; ++i) {
        now += 1000 * kLimit;
        crowding.look(now, 1001);
    }
    EXPECT_FALSE(crowding.is_crowded());
}

}  // namespace
}  // namespace tagwire::test
