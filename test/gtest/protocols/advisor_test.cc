// SPDX-License-Identifier: BSD-3-Clause
//
// The receiver's learning by itself: a sender follows its advice and tries the other way now and
// then, on a machine whose costs change.

#include "protocols/cost/advisor.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace tagwire::test {
namespace {

using proto::Advisor;

constexpr std::size_t k1 = 1024;

/** Nanoseconds of a message by each protocol, without noise. */
struct Machine {
    double eager_byte;
    double rndv_fixed;
    double rndv_byte;

    double time(bool is_rndv, std::size_t bytes) const {
        const auto n = static_cast<double>(bytes);
        return is_rndv ? rndv_fixed + rndv_byte * n : 200 + eager_byte * n;
    }
    bool is_rndv_better(std::size_t bytes) const { return time(true, bytes) < time(false, bytes); }
};
/** Near: from 96 KiB on; far and cached: from 4 KiB; slow system calls: from 400 KiB. */
constexpr Machine kNear{0.055, 2500, 0.029};
constexpr Machine kFar{0.45, 1000, 0.08};
constexpr Machine kSlowCalls{0.08, 8000, 0.06};

struct Connection {
    explicit Connection(std::size_t threshold) : advisor(threshold) {}

    /** One message; whether it went by rendezvous. */
    bool send(const Machine& machine, std::size_t bytes) {
        const bool is_trial =
            Advisor::is_trial(bytes, advisor.threshold(), number, number - changed_at);
        ++number;
        const bool is_rndv = (bytes >= advisor.threshold()) != is_trial;
        // Mostly what it costs, some more, and now and then the process loses its processor.
        double time = machine.time(is_rndv, bytes) * (1 + 0.1 * static_cast<double>(random() % 3));
        if (random() % 50 == 0)
            time *= 30;
        if (advisor.add(is_rndv, bytes, time)) {
            ++changes;
            changed_at = number;
        }
        return is_rndv;
    }

    Advisor advisor;
    std::uint64_t number = 0;
    std::uint64_t changed_at = 0;
    int changes = 0;
    std::mt19937 random{1};
};

const std::vector<Machine> kMachines = {kNear, kFar, kSlowCalls};

/** Time of a message beyond that of the better way. */
double excess(const Connection& connection, const Machine& machine, std::size_t bytes) {
    const double taken = machine.time(bytes >= connection.advisor.threshold(), bytes);
    return taken / machine.time(machine.is_rndv_better(bytes), bytes) - 1;
}

// Readings are up to a fifth too long, which hides less than that for a while.
constexpr double kSoon = 0.15;
constexpr int kSoonMessages = 3 * Advisor::kTrialEveryLater;
constexpr double kAtLast = 0.10;

TEST(Advisor, finds_the_better_way_for_each_length) {
    for (const Machine& machine : kMachines) {
        for (const std::size_t bytes : {32 * k1, 64 * k1, 128 * k1, 256 * k1, 512 * k1}) {
            Connection connection(56 * k1);
            for (int i = 0; i < kSoonMessages; ++i)
                connection.send(machine, bytes);
            EXPECT_LE(excess(connection, machine, bytes), kSoon) << bytes << " bytes";
            for (int i = 0; i < 20 * kSoonMessages; ++i)
                connection.send(machine, bytes);
            EXPECT_LE(excess(connection, machine, bytes), kAtLast) << bytes << " bytes";
        }
    }
}

TEST(Advisor, follows_a_machine_that_changes) {
    for (const Machine& first : kMachines) {
        for (const Machine& second : kMachines) {
            for (const std::size_t bytes : {32 * k1, 64 * k1, 128 * k1, 256 * k1}) {
                Connection connection(56 * k1);
                for (int i = 0; i < 20 * kSoonMessages; ++i)
                    connection.send(first, bytes);
                for (int i = 0; i < kSoonMessages; ++i)
                    connection.send(second, bytes);
                EXPECT_LE(excess(connection, second, bytes), kSoon) << bytes << " bytes";
            }
        }
    }
}

TEST(Advisor, keeps_its_advice_where_nothing_changes) {
    Connection connection(56 * k1);
    for (int i = 0; i < 2000; ++i)
        connection.send(kNear, std::size_t{32 * k1} << (i % 5));
    const int before = connection.changes;
    for (int i = 0; i < 20'000; ++i)
        connection.send(kNear, std::size_t{32 * k1} << (i % 5));
    EXPECT_LE(connection.changes - before, 20);
}

TEST(Advisor, tries_the_other_way_near_the_threshold_only_and_rarely) {
    int trials = 0;
    for (std::uint64_t number = 0; number < 3100; ++number) {
        trials += Advisor::is_trial(64 * k1, 56 * k1, number, number) ? 1 : 0;
        EXPECT_FALSE(Advisor::is_trial(Advisor::kFirst - 1, 56 * k1, number, number));
        EXPECT_FALSE(Advisor::is_trial(1024 * k1, 56 * k1, number, number));
    }
    EXPECT_EQ(trials, 5) << "two soon, three later";
}

// A receiver that often has news must not keep its sender from trying.
TEST(Advisor, tries_however_often_advice_comes) {
    int trials = 0;
    for (std::uint64_t number = 0; number < 10 * Advisor::kTrialEvery; ++number)
        trials += Advisor::is_trial(64 * k1, 56 * k1, number, number % 7) ? 1 : 0;
    EXPECT_EQ(trials, 10);
}

// Such as a calibration may give; a peer that is told one takes that for garbage.
TEST(Advisor, tells_no_threshold_that_cannot_be_followed) {
    for (const std::size_t threshold : {std::size_t{5000}, SIZE_MAX}) {
        Advisor advisor(threshold);
        const bool is_rndv = threshold < Advisor::kFirst;
        for (int i = 0; i < 1000; ++i) {  // what holds is the better way
            EXPECT_FALSE(advisor.add(is_rndv, 64 * k1, i % 2 == 0 ? 1000 : 1700));
            EXPECT_FALSE(advisor.add(!is_rndv, 64 * k1, 9000));
        }
        EXPECT_EQ(advisor.threshold(), threshold);
        bool has_told = false;
        for (int i = 0; i < 1000; ++i) {
            if (!advisor.add(!is_rndv, 64 * k1, 100))
                continue;
            has_told = true;
            EXPECT_TRUE(Advisor::is_threshold(advisor.threshold())) << advisor.threshold();
        }
        EXPECT_TRUE(has_told);
    }
}

TEST(Advisor, learns_nothing_from_times_that_cannot_be) {
    Advisor advisor(56 * k1);
    for (int i = 0; i < 100; ++i) {
        EXPECT_FALSE(advisor.add(false, 64 * k1, 0));
        EXPECT_FALSE(advisor.add(true, 64 * k1, -1));
    }
    EXPECT_EQ(advisor.threshold(), 56 * k1);
    EXPECT_EQ(advisor.time_of_byte(true, 64 * k1), 0);
    EXPECT_FALSE(Advisor::is_learnt(Advisor::kFirst - 1));
    EXPECT_FALSE(Advisor::is_learnt(Advisor::kEnd));
}

}  // namespace
}  // namespace tagwire::test
