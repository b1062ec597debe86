// SPDX-License-Identifier: BSD-3-Clause
#include "uct/politeness.hpp"

#include <gtest/gtest.h>
#include <uct/api/tagwire_uct.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace tagwire::test {
namespace {

using uct::PoliteCounter;
using uct::Politeness;
using Act = Politeness::Act;
using Peers = Politeness::Peers;

/// Calls take 100 ns each.
class PolitenessTest : public ::testing::Test {
  protected:
    static constexpr Politeness::Times kTimes{.slice = 4'000'000,
                                              .call = 1000,
                                              .undisturbed = 1500,
                                              .turn_min = 1'000'000,
                                              .turn_max = 2'000'000,
                                              .answer = 2000,
                                              .wake_up = 50'000};

    /// Something was found a while ago.
    void SetUp() override {
        politeness.restart(now);
        now += 2 * kTimes.answer;
    }

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
    void yield(std::uint64_t took, bool is_peers = false) {
        politeness.yielded(now, now + took, is_peers);
        now += took;
    }
    /// Yields that others needed.
    void be_crowded() {
        yield(kTimes.undisturbed);
        yield(kTimes.undisturbed);
    }
    /// Two yields to strangers.
    void meet_strangers() {
        yield(kTimes.turn_max + 1);
        yield(kTimes.turn_max + 1);
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

TEST_F(PolitenessTest, one_that_stands_is_yielded_to) {
    for (int i = 0; i < 10; ++i)
        EXPECT_EQ(look(Peers::kRun), Act::kSpin);
    EXPECT_EQ(look(Peers::kStand), Act::kYield);
    yield(5000);
    EXPECT_EQ(count(PoliteCounter::kYields), 1U);
    EXPECT_EQ(count(PoliteCounter::kAwayNs), 5000U);
}

TEST_F(PolitenessTest, while_yields_help_others_no_look_is_needed) {
    EXPECT_TRUE(politeness.wants_look(now));
    EXPECT_EQ(look(Peers::kStand), Act::kYield);
    yield(kTimes.undisturbed);
    EXPECT_TRUE(politeness.wants_look(now)) << "one may be an accident";
    for (int i = 0; i < 10; ++i) {
        yield(kTimes.undisturbed);
        EXPECT_FALSE(politeness.wants_look(now));
        EXPECT_EQ(calls_until_look(), Politeness::kYieldsApart);
        EXPECT_EQ(politeness.decide(Peers::kNotSeen, now), Act::kYield);
    }
    EXPECT_EQ(count(PoliteCounter::kLooks), 1U);
    while (!politeness.wants_look(now)) {
        yield(kTimes.undisturbed - 1);
        ASSERT_LE(count(PoliteCounter::kYields), 30U);
    }
}

TEST_F(PolitenessTest, yields_become_rare_where_nobody_wants_the_processor) {
    for (int i = 0; i < 10; ++i) {
        EXPECT_EQ(look(Peers::kStand), Act::kYield);
        yield(kTimes.undisturbed - 1);
    }
    EXPECT_EQ(calls_until_look(), Politeness::kLooksApart);
    // Until somebody does.
    EXPECT_EQ(politeness.decide(Peers::kStand, now), Act::kYield);
    be_crowded();
    EXPECT_EQ(calls_until_look(), Politeness::kYieldsApart);
}

TEST_F(PolitenessTest, one_that_stands_has_the_time_of_an_answer) {
    politeness.restart(now);
    const std::uint64_t begin = now;
    while (look(Peers::kStand) == Act::kSpin)
        ASSERT_LE(now - begin, 10 * kTimes.answer);
    EXPECT_GE(now - begin, kTimes.answer);
}

TEST_F(PolitenessTest, who_has_nobody_spins) {
    for (int i = 0; i < 100; ++i)
        EXPECT_EQ(look(Peers::kNone), Act::kSpin);
}

TEST_F(PolitenessTest, one_long_turn_among_short_ones_is_no_stranger) {
    for (int i = 0; i < 20; ++i) {
        for (unsigned short_ones = 0; short_ones < Politeness::kStranger; ++short_ones) {
            EXPECT_EQ(look(Peers::kStand), Act::kYield);
            yield(5000);
        }
        EXPECT_EQ(look(Peers::kStand), Act::kYield);
        yield(kTimes.turn_max + 1);
    }
    EXPECT_FALSE(politeness.naps(now));
}

TEST_F(PolitenessTest, where_others_want_it_a_peer_that_runs_gets_the_time_of_an_answer) {
    be_crowded();
    politeness.restart(now);
    const std::uint64_t begin = now;
    while (look(Peers::kRun) == Act::kSpin)
        ASSERT_LE(now - begin, 10 * kTimes.answer);
    EXPECT_GE(now - begin, kTimes.answer);
}

TEST_F(PolitenessTest, long_turns_of_peers_are_no_strangers) {
    for (int i = 0; i < 20; ++i) {
        EXPECT_EQ(look(Peers::kStand), Act::kYield);
        yield(kTimes.turn_max + 1, true);
    }
    EXPECT_FALSE(politeness.naps(now));
    EXPECT_EQ(politeness.turn_limit(), kTimes.turn_min);
}

TEST_F(PolitenessTest, it_naps_now_and_then_for_one_that_waited_here) {
    unsigned yields = 0;
    std::vector<unsigned> between;
    while (between.size() < 6) {
        const Act act = look(Peers::kStandHere);
        if (act == Act::kNap) {
            between.push_back(std::exchange(yields, 0));
            nap();
            continue;
        }
        ASSERT_EQ(act, Act::kYield);
        ++yields;
        yield(5000);
    }
    for (std::size_t i = 1; i < between.size(); ++i)
        EXPECT_GE(between[i], std::min(3 * between[i - 1], Politeness::kMovesApartMax - 1));
    // Peers elsewhere run: it has helped, or there is room.
    for (unsigned i = 0; i < Politeness::kMovesApart; ++i)
        look(Peers::kRun);
    while (look(Peers::kStandHere) != Act::kNap) {
        yield(5000);
        ASSERT_LE(++yields, 2 * Politeness::kMovesApart);
    }
}

TEST_F(PolitenessTest, after_strangers_it_naps_and_tries_a_yield_again) {
    constexpr std::uint64_t kTook = kTimes.turn_max + 1;
    meet_strangers();
    const std::uint64_t until = now + kTook * Politeness::kNapsPerYield;
    while (politeness.naps(now)) {
        const bool is_over = now + 20'000 >= until;  // behind the calls before the look
        const Act act = look(Peers::kStandHere);
        if (!is_over) {
            ASSERT_EQ(act, Act::kNap);
        }
        nap();
    }
    EXPECT_GE(now, until);
    EXPECT_EQ(look(Peers::kStandHere), Act::kYield);
    // One is enough now, and the time of naps is longer each time, up to a limit.
    std::uint64_t expected = kTook * Politeness::kNapsPerYield;
    for (unsigned i = 0; i < 2 * Politeness::kNapDoublingsMax; ++i) {
        expected *= i < Politeness::kNapDoublingsMax ? 2 : 1;
        yield(kTook);
        EXPECT_TRUE(politeness.naps(now + expected - 1));
        EXPECT_FALSE(politeness.naps(now + expected));
        now += expected;
    }
}

TEST_F(PolitenessTest, a_turn_of_many_slices_is_napped_for_as_one_is) {
    constexpr std::uint64_t kMany = 20 * Politeness::kSliceNs;
    yield(kMany);
    yield(kMany);
    EXPECT_TRUE(politeness.naps(now));
    EXPECT_FALSE(politeness.naps(now + Politeness::kSliceNs * Politeness::kNapsPerYield));
}

TEST_F(PolitenessTest, naps_of_many_peers_take_a_part_of_the_processors_only) {
    EXPECT_EQ(Politeness::nap_ns(0), std::uint64_t{TAGWIRE_UCT_NAP_NS});
    EXPECT_EQ(Politeness::nap_ns(4), std::uint64_t{TAGWIRE_UCT_NAP_NS});
    for (const std::size_t peers : {16U, 64U, 128U})
        EXPECT_EQ(peers * 1'000'000 / Politeness::nap_ns(peers),
                  4 * 1'000'000 / Politeness::nap_ns(4));
    EXPECT_LE(Politeness::nap_ns(1'000'000), 10'000'000U);
}

TEST_F(PolitenessTest, naps_end_as_soon_as_the_peers_run) {
    meet_strangers();
    EXPECT_EQ(look(Peers::kRun), Act::kSpin);
    EXPECT_EQ(look(Peers::kStandHere), Act::kNap);
}

TEST_F(PolitenessTest, a_peer_elsewhere_has_the_time_to_wake_up) {
    meet_strangers();
    politeness.restart(now);
    const std::uint64_t begin = now;
    while (look(Peers::kStand) == Act::kSpin)
        ASSERT_LE(now - begin, 2 * kTimes.wake_up);
    EXPECT_GE(now - begin, kTimes.wake_up);
    politeness.restart(now);
    EXPECT_EQ(look(Peers::kStandHere), Act::kNap);
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

TEST_F(PolitenessTest, for_peers_out_of_sight_it_naps_once_that_costs_little) {
    for (const std::uint64_t latency : {0U, 10'000U, 1'000'000U}) {
        politeness.set_latency(latency);
        politeness.restart(now);
        const std::uint64_t begin = now, enough = 2 * kTimes.wake_up + 4 * latency;
        Act act = look(Peers::kUnknown);
        for (; act == Act::kSpin; act = look(Peers::kUnknown))
            ASSERT_LE(now - begin, 2 * enough);
        EXPECT_EQ(act, Act::kNap);
        EXPECT_GE(now - begin, enough);
        nap();
        EXPECT_EQ(look(Peers::kUnknown), Act::kNap);
        // A message begins the time anew.
        politeness.restart(now);
        EXPECT_EQ(look(Peers::kUnknown), Act::kSpin);
    }
    EXPECT_EQ(count(PoliteCounter::kYields), 0U);
}

TEST_F(PolitenessTest, many_peers_have_longer_turns) {
    politeness.set_peers(64);
    EXPECT_GT(politeness.turn_limit(), kTimes.turn_max);
    politeness.set_peers(2);
    EXPECT_EQ(politeness.turn_limit(), kTimes.turn_min);
}

TEST_F(PolitenessTest, a_program_that_computes_between_calls_keeps_its_processor) {
    call_ns = 20'000;
    for (int i = 0; i < 100; ++i)
        EXPECT_EQ(look(Peers::kStand), Act::kSpin);
    call_ns = 100;
    look(Peers::kStand);
    EXPECT_EQ(look(Peers::kStand), Act::kYield);
    call_ns = kTimes.call + 1;
    EXPECT_EQ(look(Peers::kStand), Act::kSpin) << "others were closer";
}

// Several transmit contexts that ask the system, on a slow machine.
TEST_F(PolitenessTest, calls_that_are_never_closer_are_slow_ones) {
    call_ns = 3 * kTimes.call;
    look(Peers::kStand);
    EXPECT_EQ(look(Peers::kStand), Act::kYield);
    call_ns *= 4;
    EXPECT_EQ(look(Peers::kStand), Act::kSpin);
}

TEST_F(PolitenessTest, calls_may_become_slow_for_good) {
    look(Peers::kRun);
    call_ns = 3 * kTimes.call;
    unsigned looks = 1;
    while (look(Peers::kStand) == Act::kSpin && looks < 10'000)
        ++looks;
    EXPECT_GT(looks, 100U) << "it may compute";
    EXPECT_LT(looks, 10'000U);
}

}  // namespace
}  // namespace tagwire::test
