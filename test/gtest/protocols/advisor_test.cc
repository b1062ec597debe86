// SPDX-License-Identifier: BSD-3-Clause
//
// The receiver's learning by itself: a sender follows its advice, tries the other way when asked
// to, on a machine whose costs change. All times are simulated.

#include "protocols/cost/advisor.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace tagwire::test {
namespace {

using proto::Advisor;

constexpr std::size_t k1 = 1024;

/** Nanoseconds of a message by each protocol, without noise. */
struct Machine {
    const char* name;
    double eager_byte;
    double rndv_fixed;
    double rndv_byte;
    /** Times as long take eager messages until their buffers have been used some times over. */
    double cold = 1;

    double time(bool is_rndv, std::size_t bytes) const {
        const auto n = static_cast<double>(bytes);
        return is_rndv ? rndv_fixed + rndv_byte * n : 200 + eager_byte * n;
    }
    bool is_rndv_better(std::size_t bytes) const { return time(true, bytes) < time(false, bytes); }
    double best(std::size_t bytes) const { return time(is_rndv_better(bytes), bytes); }
};
/** Near: from 96 KiB on; far and cached: from 4 KiB; slow system calls: from 400 KiB. */
constexpr Machine kNear{"near", 0.055, 2500, 0.029, 2.5};
constexpr Machine kFar{"far", 0.45, 1000, 0.08};
constexpr Machine kSlowCalls{"slow calls", 0.08, 8000, 0.06, 1.5};
/** Data that the sender writes anew: the rendezvous takes 1.8 times as long. */
constexpr Machine kNearFresh{"near, fresh", 0.055, 4500, 0.052, 2.5};
constexpr Machine kFarFresh{"far, fresh", 0.45, 1800, 0.145};
/** As measured: near, from 400 KiB on, where a cold eager message takes as long as a far one. */
constexpr Machine kNearCopied{"near, copied", 0.047, 2500, 0.044, 3.2};
/** Far, written past the caches: from 32 KiB on. */
constexpr Machine kFarPast{"far, past the caches", 0.165, 3500, 0.045};

struct Connection {
    explicit Connection(std::size_t first, unsigned seed = 1) : advisor(first), random(seed) {}

    /** One message; whether it went by rendezvous. */
    bool send(const Machine& machine, std::size_t bytes) {
        follow();
        bool is_rndv = bytes >= threshold;
        if (trials[is_rndv ? 0 : 1] > 0 && Advisor::is_learnt(bytes)) {
            is_rndv = !is_rndv;
            --trials[is_rndv ? 1 : 0];
            ++tried;
        }
        // Mostly what it costs, some more, and now and then the process loses its processor.
        const double usual =
            machine.time(is_rndv, bytes) * (1 + 0.1 * static_cast<double>(random() % 3));
        const double cold = coldness(machine, is_rndv, bytes);
        taken += machine.time(is_rndv, bytes) + cold;
        best += machine.best(bytes);
        const double accident = random() % 50 == 0 ? usual * 30 : 0;
        // The receiver came late, and all parts of an eager message were there.
        const double share = !is_rndv && random() % 200 == 0 ? 0.4 : 1;
        if (advisor.add(is_rndv, bytes, (usual + cold + accident) * share)) {
            ++advices;
            news.push_back({Advisor::is_threshold(advisor.threshold()) ? advisor.threshold() : 0,
                            {advisor.trials(false), advisor.trials(true)},
                            number});
        }
        ++number;
        return is_rndv;
    }

    /** Time of all messages since reset() beyond that of the better way. */
    double excess() const { return taken / best - 1; }
    void reset() {
        taken = best = 0;
        tried = 0;
    }

    Advisor advisor;
    std::size_t threshold = advisor.threshold();  // the sender's
    std::array<unsigned, 2> trials{};             // eager, rendezvous
    std::uint64_t number = 0;
    int advices = 0;
    unsigned tried = 0;
    double taken = 0;
    double best = 0;

  private:
    /** Time beyond that of a message of the same way just before. */
    double coldness(const Machine& machine, bool is_rndv, std::size_t bytes) {
        // Code and pages of a way that was not taken of late are cold.
        std::uint64_t& last = is_rndv ? last_rndv : last_eager;
        const bool is_late = number - last >= 32;
        last = number;
        if (is_rndv)
            return is_late ? 20'000 : 0;
        warm = is_late ? 0 : warm + static_cast<double>(bytes);
        const double left = std::max(1 - warm / kWarmBytes, 0.0);
        return (is_late ? 3000 : 0) + machine.time(false, bytes) * (machine.cold - 1) * left;
    }

    /** Advice arrives two messages later. */
    void follow() {
        while (!news.empty() && news.front().at + 2 < number) {
            if (news.front().threshold != 0)
                threshold = news.front().threshold;
            trials = news.front().trials;
            news.erase(news.begin());
        }
    }

    struct News {
        std::size_t threshold;
        std::array<unsigned, 2> trials;
        std::uint64_t at;
    };
    std::vector<News> news;
    std::uint64_t last_eager = 0;
    std::uint64_t last_rndv = 0;
    static constexpr double kWarmBytes = 5 << 20;
    double warm = 0;
    std::mt19937 random;
};

const std::vector<Machine> kMachines = {kNear,     kFar,        kSlowCalls, kNearFresh,
                                        kFarFresh, kNearCopied, kFarPast};
const std::vector<std::size_t> kLengths = {16 * k1, 32 * k1, 64 * k1, 128 * k1, 256 * k1};

/** Time of a message beyond that of the better way. */
double excess(const Connection& connection, const Machine& machine, std::size_t bytes) {
    return machine.time(bytes >= connection.threshold, bytes) / machine.best(bytes) - 1;
}

/** Messages until the better way is taken for good, of `messages`; both count as the better one if
 * they differ by less than the noise. */
int messages_until_better(Connection& connection, const Machine& machine, std::size_t bytes,
                          int messages) {
    int last = 0;
    for (int i = 1; i <= messages; ++i) {
        connection.send(machine, bytes);
        if (excess(connection, machine, bytes) > 0.15)
            last = i;
    }
    return last;
}

bool wants_trial(const Advisor& advisor) {
    return advisor.trials(false) != 0 || advisor.trials(true) != 0;
}

constexpr int kLong = 10'000;
constexpr int kSoonIfKnown = 100;
/** Three turns of cold eager messages, and the way to them. */
constexpr int kSoonIfNew = 450;
/** Rendezvous in use tell little of eager messages, and cold ones not much more. */
constexpr int kSoonIfWarm = 3000;

TEST(Advisor, finds_the_better_way_for_each_length) {
    for (const Machine& machine : kMachines) {
        for (const std::size_t bytes : kLengths) {
            SCOPED_TRACE(testing::Message() << machine.name << ", " << bytes << " bytes");
            Connection connection(56 * k1);
            EXPECT_LE(messages_until_better(connection, machine, bytes, 1000), kSoonIfNew);
            connection.reset();
            for (int i = 0; i < kLong; ++i)
                connection.send(machine, bytes);
            EXPECT_LE(connection.excess(), 0.10) << connection.tried << " tried";
        }
    }
}

// An accident may hide a change from a trial: the next one shows it.
TEST(Advisor, follows_a_machine_that_changes) {
    int changes = 0;
    int late = 0;
    for (const auto& [one, other] :
         {std::pair{kNear, kFar}, std::pair{kNearFresh, kFarFresh}, std::pair{kNear, kFarFresh},
          std::pair{kNearFresh, kFar}, std::pair{kNearCopied, kFarPast}}) {
        for (const std::size_t bytes : kLengths) {
            SCOPED_TRACE(testing::Message()
                         << one.name << " and " << other.name << ", " << bytes << " bytes");
            Connection connection(56 * k1);
            for (int i = 0; i < kLong; ++i)
                connection.send(one, bytes);
            EXPECT_LE(messages_until_better(connection, other, bytes, kLong), kSoonIfNew);
            for (int turn = 0; turn < 10; ++turn, ++changes) {
                const Machine& machine = turn % 2 == 0 ? one : other;
                const bool shows_when_warm = machine.cold > 1 && bytes >= connection.threshold;
                const int soon = shows_when_warm ? kSoonIfWarm : kSoonIfKnown;
                if (messages_until_better(connection, machine, bytes, 2 * kSoonIfWarm) > soon)
                    ++late;
            }
        }
    }
    EXPECT_LE(late, changes / 50) << "of " << changes;
}

// Lengths as they come, three regimes in turn, times that rise by a fifth meanwhile. Eager messages
// of near processors do not tell whether data is fresh.
TEST(Advisor, stays_near_the_best_whatever_happens) {
    double sum = 0;
    int parts = 0;
    for (unsigned seed = 1; seed <= 20; ++seed) {
        Connection connection(56 * k1, seed);
        std::mt19937 random(seed);
        for (int turn = 0; turn < 12; ++turn) {
            Machine machine = std::vector{kNear, kFar, kNearFresh}[random() % 3];
            const std::size_t lengths = 1 + random() % kLengths.size();
            for (int i = 0; i < 3000; ++i) {
                if (i == kSoonIfNew)
                    connection.reset();
                machine.eager_byte *= 1 + 0.2 / 3000;
                machine.rndv_byte *= 1 + 0.2 / 3000;
                connection.send(machine, kLengths[random() % lengths]);
            }
            sum += connection.excess();
            ++parts;
            EXPECT_LE(connection.excess(), 0.6) << "seed " << seed << ", turn " << turn;
        }
    }
    EXPECT_LE(sum / parts, 0.10);
}

// The eager messages in use take what they took, the rendezvous have become better.
TEST(Advisor, finds_by_trials_what_the_way_in_use_does_not_show) {
    constexpr Machine kSlowRead{"slow reads", 0.055, 2500, 0.2};
    Connection connection(1024 * k1);
    for (int i = 0; i < kLong; ++i)
        connection.send(kSlowRead, 256 * k1);
    EXPECT_GT(connection.threshold, 256 * k1);
    EXPECT_LE(messages_until_better(connection, kNear, 256 * k1, kLong), 500);
    EXPECT_EQ(connection.advisor.regime(), 2U);
}

TEST(Advisor, says_which_regime_it_is_and_why) {
    Connection connection(56 * k1);
    for (int i = 0; i < 1000; ++i)
        connection.send(kNear, 64 * k1);
    EXPECT_EQ(connection.advisor.regime(), 1U);
    EXPECT_EQ(connection.advisor.regimes(), 1U);
    EXPECT_EQ(connection.advisor.reason(), Advisor::Reason::kFirst);
    for (int i = 0; i < 1000; ++i)
        connection.send(kFar, 64 * k1);
    EXPECT_EQ(connection.advisor.regime(), 2U);
    EXPECT_EQ(connection.advisor.regimes(), 2U);
    EXPECT_EQ(connection.advisor.reason(), Advisor::Reason::kNew);
    EXPECT_GT(connection.advisor.time_of_byte(false, 64 * k1), 0.4);
    for (int i = 0; i < 1000; ++i)
        connection.send(kNear, 64 * k1);
    EXPECT_EQ(connection.advisor.regime(), 1U);
    EXPECT_EQ(connection.advisor.regimes(), 2U);
    EXPECT_EQ(connection.advisor.reason(), Advisor::Reason::kRemembered);
    EXPECT_LT(connection.advisor.time_of_byte(false, 64 * k1), 0.1);
}

// A length that a regime has not seen takes what its other lengths tell.
TEST(Advisor, a_regime_known_at_one_length_serves_another) {
    Connection connection(56 * k1);
    for (const std::size_t bytes : {64 * k1, 32 * k1}) {
        for (int i = 0; i < 2000; ++i)
            connection.send(kNear, bytes);
    }
    EXPECT_GT(connection.threshold, 32 * k1);
    for (int i = 0; i < 2000; ++i)
        connection.send(kFar, 64 * k1);
    EXPECT_LE(connection.threshold, 32 * k1) << "no message of 32 KiB has come";
    for (int i = 0; i < 2000; ++i)
        connection.send(kNear, 32 * k1);
    EXPECT_EQ(connection.advisor.regimes(), 2U);
    EXPECT_GT(connection.threshold, 32 * k1);
}

TEST(Advisor, accidents_in_a_row_are_no_regime) {
    Connection connection(56 * k1);
    for (int i = 0; i < 1000; ++i)
        connection.send(kNear, 64 * k1);
    for (int i = 0; i < 1000; ++i) {
        const bool is_rndv = 64 * k1 >= connection.advisor.threshold();
        const double time = kNear.time(is_rndv, 64 * k1);
        connection.advisor.add(is_rndv, 64 * k1, i % 8 == 0 ? time : 5 * time);
        ASSERT_EQ(connection.advisor.regimes(), 1U) << i;
    }
}

TEST(Advisor, remembers_no_more_regimes_than_it_has_room_for) {
    Connection connection(56 * k1);
    double slower = 1;
    for (unsigned i = 0; i < 3 * Advisor::kRegimes; ++i, slower *= 2) {
        const Machine machine{"", 0.05 * slower, 1000, 0.04 * slower};
        for (int k = 0; k < 200; ++k)
            connection.send(machine, 64 * k1);
        EXPECT_LE(connection.advisor.regimes(), Advisor::kRegimes);
        EXPECT_GE(connection.advisor.regime(), 1U);
        EXPECT_LE(connection.advisor.regime(), connection.advisor.regimes());
    }
    EXPECT_EQ(connection.advisor.regimes(), Advisor::kRegimes);
}

TEST(Advisor, keeps_its_advice_where_nothing_changes) {
    Connection connection(56 * k1);
    for (int i = 0; i < 2000; ++i)
        connection.send(kNear, std::size_t{32 * k1} << (i % 5));
    std::size_t threshold = connection.threshold;
    int changes = 0;
    for (int i = 0; i < 20'000; ++i) {
        connection.send(kNear, std::size_t{32 * k1} << (i % 5));
        changes += connection.threshold != threshold ? 1 : 0;
        threshold = connection.threshold;
    }
    EXPECT_LE(changes, 20);
}

TEST(Advisor, trials_take_little_of_the_time) {
    for (const Machine& machine : kMachines) {
        for (const std::size_t bytes : kLengths) {
            Connection connection(56 * k1);
            for (int i = 0; i < 1000; ++i)
                connection.send(machine, bytes);
            const double before = excess(connection, machine, bytes);
            connection.reset();
            for (int i = 0; i < kLong; ++i)
                connection.send(machine, bytes);
            EXPECT_LE(connection.excess(), std::max(before, 0.0) + 0.05)
                << machine.name << ", " << bytes << " bytes, " << connection.tried << " tried";
            EXPECT_GT(connection.tried, 0U) << machine.name << ", " << bytes << " bytes";
        }
    }
}

// Those that come before their receive is posted are not timed.
TEST(Advisor, a_trial_ends_though_some_of_its_messages_are_not_timed) {
    Advisor advisor(48 * k1);
    unsigned left = 0;
    int asked = 0;
    for (int i = 0; i < 20'000; ++i) {
        const bool is_eager = left > 0;
        left -= is_eager ? 1 : 0;
        if (is_eager && i % 5 == 0)
            continue;
        if (!advisor.add(!is_eager, 128 * k1, is_eager ? 14'000 : 8000))
            continue;
        left = advisor.trials(false);
        ++asked;
    }
    EXPECT_NEAR(advisor.time_of_byte(false, 128 * k1), 14'000 / (128.0 * k1), 0.001);
    EXPECT_LT(asked, 200) << "it would begin a trial again and again";
    EXPECT_EQ(advisor.threshold(), 48 * k1);
}

TEST(Advisor, one_message_of_many_warms_the_buffers_for_all) {
    constexpr std::size_t kTurn = 2 * k1 * k1;
    Advisor all(64 * k1, kTurn);
    Advisor some(64 * k1, kTurn);
    constexpr int kMessages = 3 * kTurn / (16 * k1);
    for (int i = 0; i < kMessages; ++i) {
        all.add(false, 16 * k1, 2000);
        if (i % static_cast<int>(Advisor::kSampleEvery) == 0)
            some.add(false, 16 * k1, 2000, true);
    }
    for (Advisor* advisor : {&all, &some}) {  // warm ones take no third of what is told any more
        advisor->add(true, 16 * k1, 1000);
        for (int i = 0; i < 32 && advisor->threshold() != 16 * k1; ++i)
            advisor->add(true, 16 * k1, 1000);
        EXPECT_EQ(advisor->threshold(), 16 * k1);
    }
}

// A gather list goes its own way whatever is advised.
TEST(Advisor, asks_a_sender_that_does_not_follow_ever_less_often) {
    Advisor advisor(56 * k1);
    int asked = 0;
    for (int i = 0; i < 20'000; ++i) {
        advisor.add(true, 64 * k1, 5000);
        asked += advisor.trials(false) != 0 ? 1 : 0;
    }
    EXPECT_GE(asked, 5);
    EXPECT_LE(asked, 15);
}

// Such as a calibration may give; a peer that is told one takes that for garbage.
TEST(Advisor, tells_no_threshold_that_cannot_be_followed) {
    for (const std::size_t threshold : {std::size_t{5000}, SIZE_MAX}) {
        Advisor advisor(threshold);
        const bool is_rndv = threshold < Advisor::kFirst;
        for (int i = 0; i < 1000; ++i) {  // what holds is the better way
            const bool has_told = advisor.add(is_rndv, 64 * k1, i % 2 == 0 ? 1000 : 1200);
            EXPECT_EQ(has_told, wants_trial(advisor));
            const bool has_told_more = advisor.add(!is_rndv, 64 * k1, 9000);
            EXPECT_EQ(has_told_more, wants_trial(advisor));
        }
        EXPECT_EQ(advisor.threshold(), threshold);
        bool has_told = false;
        for (int i = 0; i < 1000; ++i) {  // the other has become better
            advisor.add(is_rndv, 64 * k1, 1000);
            if (!advisor.add(!is_rndv, 64 * k1, 100))
                continue;
            has_told = has_told || Advisor::is_threshold(advisor.threshold());
            EXPECT_TRUE(has_told || wants_trial(advisor)) << advisor.threshold();
        }
        EXPECT_TRUE(has_told);
    }
}

TEST(Advisor, learns_nothing_from_times_that_cannot_be) {
    Advisor advisor(56 * k1);
    for (int i = 0; i < 100; ++i) {
        EXPECT_FALSE(advisor.add(false, 64 * k1, 0));
        EXPECT_FALSE(advisor.add(true, 64 * k1, -1));
        EXPECT_FALSE(wants_trial(advisor));
    }
    EXPECT_EQ(advisor.threshold(), 56 * k1);
    EXPECT_EQ(advisor.time_of_byte(true, 64 * k1), 0);
    EXPECT_FALSE(Advisor::is_learnt(Advisor::kFirst - 1));
    EXPECT_FALSE(Advisor::is_learnt(Advisor::kEnd));
}

}  // namespace
}  // namespace tagwire::test
