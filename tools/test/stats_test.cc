// SPDX-License-Identifier: BSD-3-Clause
#include "tools/stats.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "tools/pattern.hpp"

namespace tagwire::test {
namespace {

using namespace tools;

TEST(Stats, percentiles_are_nearest_ranks) {
    std::vector<double> samples(1000);
    std::iota(samples.rbegin(), samples.rend(), 1.0);
    const LatencySummary summary = summarize(&samples);
    EXPECT_EQ(summary.min, 1);
    EXPECT_EQ(summary.p50, 500);
    EXPECT_EQ(summary.p99, 990);
    EXPECT_EQ(summary.p999, 999);
    EXPECT_EQ(summary.max, 1000);
    EXPECT_DOUBLE_EQ(summary.mean, 500.5);
}

TEST(Stats, one_sample_is_every_percentile) {
    std::vector<double> samples{7};
    const LatencySummary summary = summarize(&samples);
    EXPECT_EQ(summary.p50, 7);
    EXPECT_EQ(summary.p999, 7);
}

TEST(Stats, median_of_even_count_is_between) {
    EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
}

TEST(Stats, batches_cover_every_operation_once) {
    std::vector<std::uint64_t> seen;
    BatchTimer timer(1);
    in_batches(5, 70, &timer, [&](std::uint64_t sequence) { seen.push_back(sequence); });
    ASSERT_EQ(seen.size(), 70U);
    EXPECT_EQ(seen.front(), 5U);
    EXPECT_EQ(seen.back(), 74U);
    EXPECT_EQ(timer.samples().count(), 3U);  // 32, 32 and 6
}

TEST(Stats, excluded_time_belongs_to_no_operation) {
    constexpr std::uint64_t kExcluded = 100000;
    BatchTimer whole(1), timer(1);
    whole.start();
    timer.start();
    const std::uint64_t begin = now_ns();
    while (now_ns() < begin + kExcluded) {
    }
    timer.exclude(kExcluded);
    timer.batch_done(1);
    whole.batch_done(1);
    EXPECT_LE(timer.samples().kept()[0] + kExcluded, whole.samples().kept()[0]);
}

TEST(Stats, long_measurements_keep_an_even_part_of_their_samples) {
    constexpr std::uint64_t kCount = 5 * Samples::kKeptMax;
    Samples samples;
    samples.reserve(kCount);
    for (std::uint64_t i = 0; i < kCount; ++i)
        samples.add(static_cast<double>(i % 100'000) + (i == 777'777 ? 1e9 : 0));
    EXPECT_EQ(samples.count(), kCount);
    EXPECT_LT(samples.kept().size(), Samples::kKeptMax);
    EXPECT_GE(samples.kept().size(), Samples::kKeptMax / 2);
    EXPECT_EQ(samples.kept().capacity(), Samples::kKeptMax);
    const LatencySummary summary = samples.summary();
    EXPECT_EQ(summary.min, 0);
    EXPECT_EQ(summary.max, 1e9 + 77'777);
    EXPECT_NEAR(summary.p50, 50'000, 2'500);
    EXPECT_NEAR(summary.p99, 99'000, 200);
    EXPECT_GT(summary.mean, 40'000);
    for (std::size_t i = 1; i < 1000; ++i) {
        EXPECT_EQ(samples.kept()[i] - samples.kept()[i - 1], 8) << i;
    }
    samples.clear();
    EXPECT_EQ(samples.count(), 0U);
    EXPECT_EQ(samples.kept().capacity(), Samples::kKeptMax);
}

TEST(Pattern, tells_every_change_of_a_message) {
    for (const std::size_t length : {1U, 7U, 8U, 9U, 100U}) {
        std::vector<std::uint8_t> bytes(length);
        const Pattern pattern(3, 17);
        pattern.fill(bytes.data(), length);
        EXPECT_TRUE(pattern.matches(bytes.data(), length));
        for (std::size_t i = 0; i < length; ++i) {
            bytes[i] ^= 0x40;
            EXPECT_FALSE(pattern.matches(bytes.data(), length)) << i << " of " << length;
            bytes[i] ^= 0x40;
        }
    }
}

TEST(Pattern, depends_on_stream_and_sequence) {
    std::uint64_t a = 0;
    Pattern(1, 5).fill(&a, sizeof(a));
    EXPECT_FALSE(Pattern(1, 6).matches(&a, sizeof(a)));
    EXPECT_FALSE(Pattern(2, 5).matches(&a, sizeof(a)));
}

}  // namespace
}  // namespace tagwire::test
