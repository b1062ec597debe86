// SPDX-License-Identifier: BSD-3-Clause
#include "uct/politeness.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace tagwire::test {
namespace {

using uct::PoliteCounter;
using uct::Politeness;
using Act = Politeness::Act;
using Peers = Politeness::Peers;

/// Calls take 100 ns each.
class PolitenessTest : public ::testing::Test {
  protected:
    static constexpr Politeness::Times kTimes{.call = 1000,
                                              .undisturbed = 1500,
                                              .turn_min = 1'000'000,
                                              .turn_max = 2'000'000,
                                              .blind = 100'000};

    /// Empty calls until the next look is due.
    unsigned calls_until_look() {
        unsigned calls = 1;
        while (!politeness.add_empty(1))
            ++calls;
        now += calls * call_ns;
        return calls;
    }
    Act look(Peers peers) {
        calls_until_look();
        return politeness.decide(peers, now);
    }
    void yield(std::uint64_t took) {
        politeness.yielded(now, now + took);
        now += took;
    }
    void nap() {
        politeness.napped(now, now + 1000);
        now += 1000;
    }
    std::uint64_t count(PoliteCounter counter) const { return politeness.counters.value(counter); }

    Politeness politeness{kTimes};
    std::uint64_t now = 1;
    std::uint64_t call_ns = 100;
};

TEST_F(PolitenessTest, peers_that_run_are_spun_for_and_looked_at_ever_more_rarely) {
    politeness.restart(now);
    EXPECT_EQ(calls_until_look(), Politeness::kFirstLook);
    unsigned last = Politeness::kFirstLook;
    while (last < Politeness::kLooksApart) {
        EXPECT_EQ(politeness.decide(Peers::kRun, now), Act::kSpin);
        const unsigned calls = calls_until_look();
        EXPECT_EQ(calls, 2 * last);
        last = calls;
    }
    EXPECT_EQ(politeness.decide(Peers::kRun, now), Act::kSpin);
    EXPECT_EQ(calls_until_look(), Politeness::kLooksApart);
    // The next wait goes on like that.
    politeness.restart(now);
    EXPECT_EQ(calls_until_look(), Politeness::kLooksApart);
}

TEST_F(PolitenessTest, one_that_stands_is_yielded_to_and_looked_at_soon) {
    for (int i = 0; i < 10; ++i)
        EXPECT_EQ(look(Peers::kRun), Act::kSpin);
    EXPECT_EQ(look(Peers::kStand), Act::kYield);
    yield(5000);
    EXPECT_EQ(calls_until_look(), Politeness::kFirstLook);
    EXPECT_EQ(count(PoliteCounter::kYields), 1U);
    EXPECT_EQ(count(PoliteCounter::kAwayNs), 5000U);
}

TEST_F(PolitenessTest, yields_become_rare_where_nobody_wants_the_processor) {
    for (int i = 0; i < 10; ++i) {
        EXPECT_EQ(look(Peers::kStand), Act::kYield);
        yield(kTimes.undisturbed - 1);
    }
    EXPECT_EQ(calls_until_look(), Politeness::kLooksApart);
    // Until somebody does.
    EXPECT_EQ(politeness.decide(Peers::kStand, now), Act::kYield);
    yield(kTimes.undisturbed);
    EXPECT_EQ(calls_until_look(), Politeness::kFirstLook);
}

TEST_F(PolitenessTest, who_has_nobody_spins) {
    for (int i = 0; i < 100; ++i)
        EXPECT_EQ(look(Peers::kNone), Act::kSpin);
}

TEST_F(PolitenessTest, after_a_stranger_it_naps_and_tries_a_yield_again) {
    EXPECT_EQ(look(Peers::kStand), Act::kYield);
    yield(kTimes.turn_max + 1);
    for (unsigned i = 0; i < Politeness::kNapsInARow; ++i) {
        ASSERT_EQ(look(Peers::kStand), Act::kNap);
        nap();
    }
    EXPECT_EQ(look(Peers::kStand), Act::kYield);
    EXPECT_EQ(count(PoliteCounter::kNaps), Politeness::kNapsInARow);
}

TEST_F(PolitenessTest, naps_end_as_soon_as_the_peers_run) {
    EXPECT_EQ(look(Peers::kStand), Act::kYield);
    yield(kTimes.turn_max + 1);
    EXPECT_EQ(look(Peers::kRun), Act::kSpin);
    EXPECT_EQ(look(Peers::kStand), Act::kNap);
}

TEST_F(PolitenessTest, turns_of_many_ranks_are_learnt) {
    EXPECT_EQ(politeness.turn_limit(), kTimes.turn_min);
    for (int i = 0; i < 100; ++i) {
        EXPECT_EQ(look(Peers::kStand), Act::kYield);
        yield(180'000);
    }
    EXPECT_GT(politeness.turn_limit(), 1'400'000U);
    EXPECT_LE(politeness.turn_limit(), 1'440'000U);
    for (int i = 0; i < 100; ++i) {
        EXPECT_EQ(look(Peers::kStand), Act::kYield);
        yield(700'000);
    }
    EXPECT_EQ(politeness.turn_limit(), kTimes.turn_max);
}

TEST_F(PolitenessTest, peers_out_of_sight_are_waited_for_a_while) {
    politeness.restart(now);
    const std::uint64_t begin = now;
    while (look(Peers::kUnknown) == Act::kSpin)
        ASSERT_LE(now - begin, 2 * kTimes.blind);
    EXPECT_GE(now - begin, kTimes.blind);
    // A message begins the time anew.
    politeness.restart(now);
    EXPECT_EQ(look(Peers::kUnknown), Act::kSpin);
}

TEST_F(PolitenessTest, a_program_that_computes_between_calls_keeps_its_processor) {
    call_ns = kTimes.call + 1;
    for (int i = 0; i < 100; ++i)
        EXPECT_EQ(look(Peers::kStand), Act::kSpin);
    call_ns = 100;
    look(Peers::kStand);
    EXPECT_EQ(look(Peers::kStand), Act::kYield);
}

}  // namespace
}  // namespace tagwire::test
