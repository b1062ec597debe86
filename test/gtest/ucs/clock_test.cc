// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/time/clock.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace tagwire::ucs {
namespace {

TEST(Clock, never_runs_backwards) {
    std::uint64_t ns = clock_now_ns();
    std::uint64_t ticks = ticks_now();
    for (int i = 0; i < 10'000; ++i) {
        const std::uint64_t next_ns = clock_now_ns();
        const std::uint64_t next_ticks = ticks_now();
        ASSERT_GE(next_ns, ns);
        ASSERT_GE(next_ticks, ticks);
        ns = next_ns;
        ticks = next_ticks;
    }
}

TEST(Clock, ticks_measure_the_same_time_as_the_clock) {
    tick_ns();
    // Each reading of the ticks lies between two of the clock, however late those come.
    const std::uint64_t first_ns = clock_now_ns();
    const std::uint64_t first_ticks = ticks_now();
    const std::uint64_t begin_ns = clock_now_ns();
    while (clock_now_ns() - begin_ns < 20'000'000)
        std::this_thread::yield();
    const std::uint64_t end_ns = clock_now_ns();
    const std::uint64_t last_ticks = ticks_now();
    const std::uint64_t last_ns = clock_now_ns();
    const double measured = static_cast<double>(ticks_to_ns(last_ticks - first_ticks));
    EXPECT_LE(measured, 1.01 * static_cast<double>(last_ns - first_ns));
    EXPECT_GE(measured, 0.99 * static_cast<double>(end_ns - begin_ns));
}

TEST(Clock, conversions_are_inverse) {
    for (const std::uint64_t ns : {0ULL, 1'000ULL, 1'000'000ULL, 60'000'000'000ULL}) {
        const std::uint64_t back = ticks_to_ns(ticks_from_ns(ns));
        EXPECT_NEAR(static_cast<double>(back), static_cast<double>(ns),
                    static_cast<double>(ns) * 1e-3 + 2 * tick_ns());
    }
}

TEST(Clock, length_of_a_tick_is_plausible) {
    EXPECT_GT(tick_ns(), 0.05);
    EXPECT_LE(tick_ns(), 1'000.0);
}

TEST(Clock, threads_agree_on_the_length_of_a_tick) {
    double other = 0;
    std::thread([&other] { other = tick_ns(); }).join();
    EXPECT_NEAR(other, tick_ns(), tick_ns() * 1e-3);
}

}  // namespace
}  // namespace tagwire::ucs
