// SPDX-License-Identifier: BSD-3-Clause
// The division of a message over rails, and the size from which it is divided.
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "common/seeds.hpp"
#include "protocols/cost/stripe_plan.hpp"

namespace tagwire::proto {
namespace {

RailCosts card(double ns_per_byte) {
    RailCosts rail;
    rail.overhead_ns = 75;
    rail.latency_ns = 600;
    rail.read_ns = rail.write_ns = 1300;
    rail.direct_ns_per_byte = ns_per_byte;
    rail.piece_max = 1 << 20;
    rail.can_get = rail.can_put = true;
    return rail;
}

std::uint64_t sum(const StripeParts& parts) {
    return std::accumulate(parts.begin(), parts.end(), std::uint64_t{0});
}

constexpr std::size_t kMin = 64 << 10;

void check_parts(const StripeParts& parts, std::uint64_t bytes, unsigned usable,
                 std::size_t part_min) {
    EXPECT_EQ(sum(parts), bytes);
    std::uint64_t at = parts[0];
    for (std::size_t i = 1; i < parts.size(); ++i) {
        if (parts[i] == 0)
            continue;
        EXPECT_EQ(at % kStripeAlign, 0U);
        EXPECT_GE(std::min(parts[0], parts[i]), part_min);
        EXPECT_NE(usable >> i & 1U, 0U);
        at += parts[i];
    }
}

TEST(StripePlan, two_alike_share_a_long_message_and_save_time) {
    const RailCosts one = card(0.08), two = card(0.08);
    const StripeMember members[] = {{&one, "a:1"}, {&two, "b:1"}};
    const StripePlan plan(members, Protocol::kRndvGet, {kMin, false});
    constexpr std::size_t kBytes = 16 << 20;
    const StripeParts parts = plan.divide(kBytes);
    EXPECT_NEAR(static_cast<double>(parts[0]), kBytes / 2.0, 3.0 * kStripeAlign);
    EXPECT_EQ(sum(parts), kBytes);
    EXPECT_LT(plan.cost(kBytes).ns,
              0.6 * cost_of(one, Protocol::kRndvGet, kBytes, BufferKind::kMapped).ns);
    EXPECT_GE(plan.from(), 2 * kMin);
    EXPECT_LT(plan.from(), 1U << 20);
}

TEST(StripePlan, parts_follow_bandwidth) {
    const RailCosts fast = card(0.04), slow = card(0.12);
    const StripeMember members[] = {{&slow, "a:1"}, {&fast, "b:1"}};
    const StripePlan plan(members, Protocol::kRndvPut, {kMin, false});
    constexpr std::size_t kBytes = 64 << 20;
    const StripeParts parts = plan.divide(kBytes);
    EXPECT_NEAR(static_cast<double>(parts[1]) / kBytes, 0.75, 0.01);
}

TEST(StripePlan, measured_costs_decide_where_there_are_any) {
    RailCosts one = card(0.08), two = card(0.08);
    // Measured, the second is slow to begin and has a ninth of the bandwidth of the first.
    const auto get = static_cast<std::size_t>(Protocol::kRndvGet);
    one.measured[get] = Curve({{4096, 5000}, {64 << 20, 5000 + 0.1 * (64 << 20)}});
    two.measured[get] = Curve({{4096, 900000}, {64 << 20, 900000 + 0.9 * (64 << 20)}});
    const StripeMember members[] = {{&one, "a:1"}, {&two, "b:1"}};
    const StripePlan plan(members, Protocol::kRndvGet, {kMin, false});
    EXPECT_GT(plan.from(), 9000000U);  // the second is not done with anything before
    const StripeParts parts = plan.divide(std::size_t{1} << 30);
    EXPECT_NEAR(static_cast<double>(parts[1]) / (std::size_t{1} << 30), 0.1, 0.02);
}

TEST(StripePlan, rails_that_wait_for_each_other_never_pay_and_can_be_forced) {
    const RailCosts one = card(0.08), two = card(0.08);
    const StripeMember members[] = {{&one, "processors"}, {&two, "processors"}};
    EXPECT_EQ(StripePlan(members, Protocol::kRndvGet, {kMin, false}).from(), StripePlan::kNever);
    const StripePlan forced(members, Protocol::kRndvGet, {kMin, true});
    EXPECT_EQ(forced.from(), 2 * kMin);
    EXPECT_GT(forced.divide(2 * kMin)[1], 0U);
    EXPECT_GT(forced.cost(16 << 20).ns,
              cost_of(one, Protocol::kRndvGet, 16 << 20, BufferKind::kMapped).ns);
}

TEST(StripePlan, one_rail_is_never_divided) {
    const RailCosts one = card(0.08);
    const StripeMember members[] = {{&one, "a:1"}};
    const StripePlan plan(members, Protocol::kRndvGet, {kMin, true});
    EXPECT_EQ(plan.from(), StripePlan::kNever);
    EXPECT_EQ(plan.divide(1 << 30)[0], std::uint64_t{1} << 30);
    EXPECT_EQ(StripePlan().from(), StripePlan::kNever);
}

TEST(StripePlan, parts_cover_the_message_aligned_and_long_enough) {
    test::for_each_seed(300, [](std::uint64_t seed) {
        std::mt19937_64 random(seed);
        std::array<RailCosts, kStripeRailsMax> costs;
        std::vector<StripeMember> members;
        const std::size_t rails = 2 + random() % 3;
        constexpr const char* kMovers[] = {"a", "b", "c"};
        for (std::size_t i = 0; i < rails; ++i) {
            costs[i] = card(0.01 * static_cast<double>(1 + random() % 100));
            members.push_back({&costs[i], kMovers[random() % 3]});
        }
        const std::size_t part_min = 4096 + random() % 100000;
        const bool is_forced = random() % 2 == 0;
        const StripePlan plan(members, Protocol::kRndvGet, {part_min, is_forced});
        for (int message = 0; message < 20; ++message) {
            const std::uint64_t bytes = random() % (std::uint64_t{1} << (12 + random() % 24));
            const auto usable = static_cast<unsigned>(random() % 16);
            const StripeParts parts = plan.divide(bytes, usable);
            check_parts(parts, bytes, usable, part_min);
            if (is_forced && bytes >= plan.from() && (usable >> 1 & 1U) != 0) {
                EXPECT_LT(parts[0], bytes);
            }
        }
    });
}

}  // namespace
}  // namespace tagwire::proto
