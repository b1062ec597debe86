// SPDX-License-Identifier: BSD-3-Clause
// The choice of copies into shared memory, on simulated machines.
#include "protocols/cost/copy_chooser.hpp"

#include <gtest/gtest.h>

#include <random>

namespace tagwire::test {
namespace {

using proto::CopyChooser;
using ucs::CopyKind;

/// Ticks of a copy as measured on a server of AMD, medians: 2, 4 and 8 KiB.
struct Distance {
    double libc[3];
    double nontemporal[3];
};
constexpr Distance kNearNs{{310, 720, 1250}, {290, 480, 850}};
constexpr Distance kFarNs{{1140, 2800, 5800}, {600, 800, 1500}};

class Copies : public ::testing::Test {
  protected:
    Copies() { chooser_.begin({}, true); }

    /// Sends messages of `2048 << size` bytes; how many went by non-temporal stores.
    unsigned send(unsigned count, unsigned size, const Distance& distance) {
        unsigned past_caches = 0;
        for (unsigned i = 0; i < count; ++i) {
            const std::size_t bytes = std::size_t{2048} << size;
            const CopyChooser::Plan plan = chooser_.plan(bytes);
            const bool is_past = plan.kind == CopyKind::kNonTemporal;
            past_caches += is_past ? 1 : 0;
            timed_ += plan.is_timed ? 1 : 0;
            if (plan.is_timed)
                chooser_.took(plan.kind, bytes,
                              noisy(is_past ? distance.nontemporal[size] : distance.libc[size]));
        }
        return past_caches;
    }
    /// The processor is lost in 2 % of the copies.
    double noisy(double ticks) {
        if (random_() % 50 == 0)
            return ticks * 100;
        return ticks * std::uniform_real_distribution<>(0.8, 1.3)(random_);
    }
    bool is_far(std::size_t bytes = 4096) const {
        return chooser_.kind_for(bytes) == CopyKind::kNonTemporal;
    }

    std::mt19937_64 random_{7};
    CopyChooser chooser_;
    unsigned timed_ = 0;
};

TEST_F(Copies, between_near_processors_plain_copies_are_chosen) {
    for (unsigned size = 0; size < 3; ++size) {
        EXPECT_LE(send(10'000, size, kNearNs), 10'000U / 100) << size;
        EXPECT_FALSE(is_far());
    }
}

TEST_F(Copies, between_far_ones_nearly_all_go_past_the_caches) {
    for (const unsigned size : {1U, 2U}) {
        send(100, size, kFarNs);
        EXPECT_TRUE(is_far()) << size;
        EXPECT_GE(send(10'000, size, kFarNs), 9'500U) << size;
    }
}

TEST_F(Copies, follow_the_machine_within_100_messages) {
    send(1000, 1, kNearNs);
    unsigned late = 0;
    for (int change = 0; change < 200; ++change) {
        send(100, 1, kFarNs);
        late += is_far() ? 0 : 1;
        send(1000 + static_cast<unsigned>(random_() % 64), 1, kFarNs);
        send(100, 1, kNearNs);
        late += is_far() ? 1 : 0;
        send(1000 + static_cast<unsigned>(random_() % 64), 1, kNearNs);
    }
    EXPECT_LE(late, 8U) << "of 400";
}

TEST_F(Copies, are_timed_now_and_then) {
    send(8000, 2, kNearNs);
    EXPECT_LE(timed_, 8000U / 7);
    EXPECT_GE(timed_, 8000U / 9);
}

TEST_F(Copies, lengths_share_what_is_known) {
    send(500, 2, kFarNs);
    EXPECT_TRUE(is_far(2048));
    EXPECT_TRUE(is_far(1 << 20));
    EXPECT_EQ(chooser_.plan(2047).kind, CopyKind::kLibc);
    EXPECT_FALSE(chooser_.plan(2047).is_timed);
}

TEST(CopiesBySetting, are_as_the_rule_says_and_never_timed) {
    CopyChooser chooser;
    chooser.begin({.from = 1024, .kind = CopyKind::kNonTemporal}, false);
    for (int i = 0; i < 2000; ++i) {
        EXPECT_EQ(chooser.plan(1023).kind, CopyKind::kLibc);
        const CopyChooser::Plan plan = chooser.plan(4096);
        EXPECT_EQ(plan.kind, CopyKind::kNonTemporal);
        EXPECT_FALSE(plan.is_timed);
    }
}

TEST(CopiesBySetting, what_was_measured_is_what_a_choice_begins_with) {
    CopyChooser chooser;
    chooser.begin({.from = 4096, .kind = CopyKind::kNonTemporal}, true);
    EXPECT_EQ(chooser.kind_for(4096), CopyKind::kNonTemporal);
    EXPECT_EQ(chooser.plan(1024).kind, CopyKind::kLibc);
}

TEST_F(Copies, of_a_measured_kind_are_what_others_are_compared_with) {
    chooser_.begin({.from = 2048, .kind = CopyKind::kVector}, true);
    EXPECT_EQ(chooser_.kind_for(4096), CopyKind::kVector);
    send(200, 1, kFarNs);
    EXPECT_TRUE(is_far());
    send(200, 1, kNearNs);
    EXPECT_EQ(chooser_.kind_for(4096), CopyKind::kVector);
}

TEST_F(Copies, near_ones_are_of_the_measured_kind_from_the_measured_length_on) {
    chooser_.begin({.from = 16384, .kind = CopyKind::kVector}, true);
    EXPECT_EQ(chooser_.kind_for(16384), CopyKind::kVector);
    EXPECT_EQ(chooser_.kind_for(16383), CopyKind::kLibc);
    EXPECT_EQ(chooser_.plan(16383).kind, CopyKind::kLibc);
}

TEST_F(Copies, that_begin_far_become_the_processors_own_near) {
    chooser_.begin({.from = 2048, .kind = CopyKind::kNonTemporal}, true);
    send(200, 1, kNearNs);
    EXPECT_EQ(chooser_.kind_for(4096), ucs::plain_copy_kind());
}

}  // namespace
}  // namespace tagwire::test
