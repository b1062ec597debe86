// SPDX-License-Identifier: BSD-3-Clause
// Runs of a test that differ in their seed.
//
// TAGWIRE_TEST_SEED=<seed> repeats one run, TAGWIRE_TEST_ROUNDS=<n> sets how many seeds are tried.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>

namespace tagwire::test {

/// A sanitizer sees in each run more than its result, and makes it several times as long.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr std::uint64_t kSeedsDivisor = 2;
#else
inline constexpr std::uint64_t kSeedsDivisor = 1;
#endif

/// Calls `run(seed)` for each seed until one fails. Returns how many there were to try; 0 for one
/// that is repeated.
template <typename Run>
std::uint64_t for_each_seed(std::uint64_t rounds, Run&& run) {
    const auto number = [](const char* name, std::uint64_t otherwise) {
        const char* text = std::getenv(name);
        return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
    };
    const std::uint64_t only = number("TAGWIRE_TEST_SEED", 0);
    rounds = number("TAGWIRE_TEST_ROUNDS", (rounds + kSeedsDivisor - 1) / kSeedsDivisor);
    const std::uint64_t first = only != 0 ? only : 1;
    const std::uint64_t last = only != 0 ? only : rounds;
    for (std::uint64_t seed = first; seed <= last && !testing::Test::HasFailure(); ++seed) {
        SCOPED_TRACE("replay with TAGWIRE_TEST_SEED=" + std::to_string(seed));
        run(seed);
    }
    return only != 0 ? 0 : rounds;
}

}  // namespace tagwire::test
