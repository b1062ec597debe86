// SPDX-License-Identifier: BSD-3-Clause
// TW_SKIP(reason): leaves a test that this machine cannot run. CI sets TAGWIRE_TEST_REQUIRE_ALL=1,
// where a skip is a failure, so that a test never disappears unnoticed from the place that has to
// run it.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

namespace tagwire::test {

inline bool all_tests_required() {
    const char* text = std::getenv("TAGWIRE_TEST_REQUIRE_ALL");
    return text != nullptr && std::strcmp(text, "1") == 0;
}

}  // namespace tagwire::test

#define TW_SKIP(reason)                                                     \
    do {                                                                    \
        if (::tagwire::test::all_tests_required()) {                        \
            FAIL() << "skipped where every test is required: " << (reason); \
        }                                                                   \
        GTEST_SKIP() << (reason);                                           \
    } while (false)
