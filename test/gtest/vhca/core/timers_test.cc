// SPDX-License-Identifier: BSD-3-Clause
// Timeouts that last longer than requested, as those of cards do.
#include <set>

#include "vhca/core/world.hpp"

namespace tagwire::vhca {

namespace {

constexpr std::uint32_t kStretch = 4;
constexpr Time kUnit = 4096;

WorldOptions stretched(std::uint64_t seed) {
    WorldOptions options;
    options.node.device.timer_stretch_max = kStretch;
    options.seed = seed;
    return options;
}

/// Time from the send until the retries to a silent peer are exhausted.
Time silence_of(std::uint64_t seed, Connection connection) {
    WorldOptions options = stretched(seed);
    options.connection = connection;
    World world(options);
    world.fabric.set_partitioned(0, 1, true);
    const Time begin = world.fabric.now();
    EXPECT_EQ(world.send(1, 0, 8), 0);
    EXPECT_EQ(world.a.wait().wc.status, IBV_WC_RETRY_EXC_ERR);
    EXPECT_EQ(world.a.device.counters().timeouts, connection.retry_cnt + 1U);
    return world.fabric.now() - begin;
}

TEST(VhcaTimers, silence_takes_between_once_and_four_times_as_long_as_asked_for) {
    const Connection connection{.timeout = 10, .retry_cnt = 3};
    const Time exact = 4 * (kUnit << connection.timeout);
    std::set<Time> seen;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        const Time silence = silence_of(seed, connection);
        EXPECT_GE(silence, exact) << "seed " << seed;
        EXPECT_LE(silence, kStretch * exact + kUnit) << "seed " << seed;
        seen.insert(silence);
    }
    EXPECT_GT(seen.size(), 10U);
    EXPECT_GT(*seen.rbegin(), 2 * exact);
}

TEST(VhcaTimers, seed_decides_how_long) {
    const Connection connection{.timeout = 10, .retry_cnt = 3};
    EXPECT_EQ(silence_of(7, connection), silence_of(7, connection));
}

TEST(VhcaTimers, wait_for_a_receiver_is_never_shorter_than_it_asked_for) {
    constexpr Time kAsked = 1'280'000;
    std::set<Time> seen;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        WorldOptions options = stretched(seed);
        options.connection.rnr_retry = 1;
        options.connection.min_rnr_timer = 14;
        World world(options);
        const Time begin = world.fabric.now();
        EXPECT_EQ(world.send(1, 0, 8), 0);
        EXPECT_EQ(world.a.wait().wc.status, IBV_WC_RNR_RETRY_EXC_ERR);
        const Time waited = world.fabric.now() - begin;
        EXPECT_GE(waited, kAsked) << "seed " << seed;
        EXPECT_LE(waited, kStretch * kAsked + kAsked / 10) << "seed " << seed;
        seen.insert(waited);
    }
    EXPECT_GT(*seen.rbegin(), 2 * kAsked);
}

}  // namespace

}  // namespace tagwire::vhca
