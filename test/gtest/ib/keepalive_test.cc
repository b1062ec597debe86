// SPDX-License-Identifier: BSD-3-Clause
// The schedule of keepalive.
#include "uct/ib/keepalive.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace tagwire::ib {
namespace {

constexpr std::uint64_t kInterval = 1'000'000'000;

/// Endpoints, each with the number of times that it was probed.
struct Probed {
    explicit Probed(std::size_t count) : times(count) {
        for (int& each : times)
            eps.push_back(&each);
    }
    std::vector<int> times;
    std::vector<int*> eps;
};

TEST(KeepaliveSchedule, spreads_the_probes_of_many_endpoints) {
    Probed many(1000);
    Keepalive keepalive;
    keepalive.init(kInterval);
    int most = 0, looks = 0;
    do {
        int probes = 0;
        keepalive.look(kInterval + static_cast<std::uint64_t>(looks), many.eps, [&](int& each) {
            ++each;
            ++probes;
            return true;
        });
        most = std::max(most, probes);
        ++looks;
    } while (keepalive.is_due());
    EXPECT_LE(most, 100);
    EXPECT_LT(looks, 100);
    EXPECT_EQ(1000, std::ranges::count(many.times, 1));
}

TEST(KeepaliveSchedule, goes_on_with_the_one_that_had_no_room) {
    Probed some(5);
    Keepalive keepalive;
    keepalive.init(kInterval);
    const auto probe_until = [&](std::size_t refused) {
        keepalive.look(kInterval, some.eps, [&](int& each) {
            if (&each == some.eps[refused])
                return false;
            ++each;
            return true;
        });
    };
    probe_until(2);
    EXPECT_TRUE(keepalive.is_due());
    EXPECT_EQ((std::vector{1, 1, 0, 0, 0}), some.times);
    probe_until(4);
    EXPECT_EQ((std::vector{1, 1, 1, 1, 0}), some.times);
}

}  // namespace
}  // namespace tagwire::ib
