// SPDX-License-Identifier: BSD-3-Clause
// Learns from the long messages of a peer from which length on rendezvous are faster than eager
// messages, where the processors move the data: how fast they copy depends on how near they are to
// each other, on what lies in which cache, and changes from one moment to the next.
//
// The receiver learns, for it sees the data of both come, and tells the sender, who chooses. Now
// and then, near the threshold, the sender tries the way that it does not choose (is_trial): so the
// receiver has figures of both. Pure arithmetic; times are of any unit.
//
// 1. A threshold that is advised is the lower bound of a class; classes are powers of two.
// 2. It changes only if that is better by more than kGain over the classes with figures of both.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "ucs/memory/reserve.hpp"

namespace tagwire::proto {

class Advisor : public ucs::FromReserve {
  public:
    static constexpr std::size_t kClasses = 6;
    /// Shorter messages are neither timed nor tried: that would cost more than it may gain.
    static constexpr std::size_t kFirst = std::size_t{32} << 10;
    /// ... nor longer ones: those are not eager.
    static constexpr std::size_t kEnd = kFirst << kClasses;
    static constexpr bool is_learnt(std::size_t bytes) { return bytes >= kFirst && bytes < kEnd; }
    /// A length that can be advised; kEnd: no rendezvous.
    static constexpr bool is_threshold(std::uint64_t bytes) {
        return bytes >= kFirst && bytes <= kEnd;
    }
    /// One of so many messages near the threshold is a trial, after an advice and later.
    static constexpr std::uint64_t kTrialEvery = 509;
    static constexpr std::uint64_t kTrialEveryLater = 1021;
    static constexpr std::uint64_t kLater = 2 * kTrialEvery;

    /// `threshold`, of any length, holds until more is known.
    explicit Advisor(std::size_t threshold) : threshold_(threshold) {}

    /// A message of `bytes` bytes, which is_learnt(), took `time` from its start to its end. True:
    /// the sender is to be told, for the threshold has changed, or times have: more trials are
    /// wanted.
    bool add(bool is_rndv, std::size_t bytes, double time);

    /// From this length on rendezvous. It is_threshold() when the sender is to be told.
    [[nodiscard]] std::size_t threshold() const { return threshold_; }
    /// Time of a byte at the class of `bytes`, which is_learnt(); 0: not known.
    [[nodiscard]] double time_of_byte(bool is_rndv, std::size_t bytes) const;

    /// The sender's side: message `number`, the `since`th after an advice, goes the other way.
    static bool is_trial(std::size_t bytes, std::size_t threshold, std::uint64_t number,
                         std::uint64_t since) {
        const std::uint64_t every = since < kLater ? kTrialEvery : kTrialEveryLater;
        return number % every == every - 1 && is_learnt(bytes) && bytes >= threshold / 4 &&
               bytes / 8 < threshold;
    }

  private:
    struct Time {
        double known = 0;    // of a byte; 0: not known
        double suspect = 0;  // the least of the last ones, if they were much longer
        unsigned accidents = 0;
        double told = 0;  // what was known when the sender was told last

        void learn(double now);
    };

    [[nodiscard]] double loss(std::size_t threshold) const;

    std::size_t threshold_;
    unsigned learnt_ = 0;
    std::array<std::array<Time, kClasses>, 2> times_{};  // eager, rendezvous
};

}  // namespace tagwire::proto
