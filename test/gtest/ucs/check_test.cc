// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/debug/check.hpp"

#include <gtest/gtest.h>

namespace {

TEST(Check, failed_condition_ends_the_program_and_is_printed) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const int one = 1;
    TW_CHECK(one == 1);
    EXPECT_DEATH(TW_CHECK(one == 2), "check_test.cc:[0-9]+: check failed: one == 2");
}

TEST(Check, assertion_is_evaluated_in_checked_builds_only) {
    int evaluated = 0;
    TW_ASSERT(++evaluated == 1);
    EXPECT_EQ(evaluated, tagwire::ucs::kDebugChecks ? 1 : 0);
}

}  // namespace
