// SPDX-License-Identifier: BSD-3-Clause
// Learns from the long messages of a peer from which length on rendezvous are faster than eager
// messages, where the processors move the data: how fast they copy depends on how near they are to
// each other, on what lies in which cache, and changes from one moment to the next.
//
// The receiver learns, for it sees the data of both ways arrive, and tells the sender, who chooses.
// Pure arithmetic; times are of any unit.
//
// The times of both ways in one state of the machine are a regime. Every message is timed, so the
// way in use shows when the regime has changed. Up to kRegimes are remembered: a remembered one
// whose times fit returns with its threshold at once. For a new one the receiver asks for a trial:
// a few messages that the sender sends the other way. So it does now and then in any regime, for
// what the way in use does not show.
//
// Eager messages are cold at first: until the buffers that they are copied through have been used
// several times over, a byte takes up to three times as long. Meanwhile their times say nothing
// against them, and a trial of them goes on, turn by turn, as long as they become faster.
//
// 1. A threshold that is advised is the lower bound of a class; classes are powers of two.
// 2. It changes only if that is better by more than kGain over the classes with figures of both.
// 3. Trials of what is known take at most kTrialShare of the time of messages, or kTrialShareTwin
//    where a remembered regime differs from the present one in the way not in use alone. Glances
//    at eager messages that are known to be slow, one message each, may take as much again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "ucs/memory/reserve.hpp"

namespace tagwire::proto {

class alignas(64) Advisor : public ucs::FromReserve {
  public:
    static constexpr std::size_t kClasses = 7;
    /// Shorter messages are neither timed nor tried: that would cost more than it may gain.
    static constexpr std::size_t kFirst = std::size_t{16} << 10;
    /// Eager messages of one part that are sent for each one that is timed.
    static constexpr unsigned kSampleEvery = 8;
    static constexpr std::size_t kEnd = kFirst << kClasses;
    /// Messages of this length and longer ones go by rendezvous, which is the better way then, or
    /// as good: 512 KiB on Intel's processors, kEnd on others. On an AMD EPYC (family 25, model 1)
    /// 512 KiB take 30 us eager and 41 by rendezvous where processors are near, 51 and 42 far.
    static std::size_t learnt_end();
    static bool is_learnt(std::size_t bytes) { return bytes >= kFirst && bytes < learnt_end(); }
    /// A length that can be advised; kEnd: no rendezvous.
    static constexpr bool is_threshold(std::uint64_t bytes) {
        return bytes >= kFirst && bytes <= kEnd;
    }
    /// Regimes that are remembered.
    static constexpr unsigned kRegimes = 4;
    /// At most so many messages are asked for at once.
    static constexpr unsigned kTrialMax = 127;

    /// Reason for the present regime.
    enum class Reason : std::uint8_t { kFirst, kRemembered, kNew };

    /// A receiver can say this: the number of its regime, of those that it remembers, the Reason.
    static constexpr bool is_regime(unsigned regime, unsigned regimes, unsigned reason) {
        return regime >= 1 && regime <= regimes && regimes <= kRegimes &&
               reason <= static_cast<unsigned>(Reason::kNew);
    }

    /// `threshold`, of any length, holds until more is known. `turn`: bytes of the buffers that a
    /// sender copies eager messages through. `end`: as learnt_end().
    explicit Advisor(std::size_t threshold, std::size_t turn = std::size_t{2} << 20,
                     std::size_t end = learnt_end());

    /// A message of `bytes` bytes, which is_learnt(), took `time` from its start to its end. True:
    /// the sender is to be told, because threshold or regime have changed, or to ask for a trial.
    /// `is_sample`: it is one that stands for kSampleEvery, unless it is one of a trial.
    bool add(bool is_rndv, std::size_t bytes, double time, bool is_sample = false);

    /// From this length on rendezvous. The sender can be told if it is_threshold().
    [[nodiscard]] std::size_t threshold() const { return threshold_; }
    /// Messages that the sender is to send this way instead of the other, after add() has returned
    /// true.
    [[nodiscard]] unsigned trials(bool is_rndv) const {
        return trial_way_ == (is_rndv ? 1U : 0U) ? trials_ : 0;
    }
    /// Number of the present regime, from 1 on.
    [[nodiscard]] unsigned regime() const { return present_ + 1; }
    [[nodiscard]] unsigned regimes() const { return count_; }
    [[nodiscard]] Reason reason() const { return reason_; }
    /// Time of a byte at the class of `bytes`, which is_learnt(), in the present regime; 0: not
    /// known.
    [[nodiscard]] double time_of_byte(bool is_rndv, std::size_t bytes) const;

  private:
    using Ways = std::array<std::array<float, kClasses>, 2>;  // eager, rendezvous

    struct Regime {
        Ways known{};  // times of a byte; 0: not known
        std::array<std::array<std::uint8_t, kClasses>, 2>
            learnt{};            // times in each, up to kSettled
        std::uint32_t used = 0;  // the last message in it
    };
    /// Times in a row, of one way, that do not fit the present regime.
    struct Watch {
        std::array<float, kClasses> least{};  // of each class; 0: none
        unsigned count = 0;
        bool is_fall = false;
        std::uint32_t since = 0;  // the message of the first
    };

    bool learn(unsigned way, std::size_t i, float now);
    bool watch(unsigned way, std::size_t i, float now, bool is_fall);
    void warm(unsigned way, std::size_t bytes);
    bool eager_is_cold() const;
    float of_two(std::size_t i, float now);
    void learn_early(std::size_t i, float now);
    Ways evidence(unsigned way) const;
    void leave(unsigned way);
    void begin_regime(const Ways& seen, unsigned way);
    void correct(Regime& regime) const;
    float time_in(const Regime& regime, unsigned way, std::size_t i) const;
    double misfit(const Regime& regime, const Ways& seen, unsigned way) const;
    bool choose();
    bool pay(unsigned way, std::size_t bytes, double time);
    void settle();
    bool is_over();
    bool has_twin(unsigned way, std::size_t i) const;
    void want_trial(unsigned way, std::size_t bytes, double time);
    void ask(unsigned way, unsigned messages);
    unsigned trial_length(unsigned way, std::size_t bytes) const;
    bool try_eager(std::size_t bytes, float now);
    bool end_turn(float now);
    bool has_gone_far_enough(std::size_t i) const;
    bool conclude();
    bool is_recent(unsigned way, std::size_t i, std::uint32_t messages) const;

    std::size_t threshold_;
    std::size_t turn_;
    std::size_t classes_;       // those that are learnt, of kClasses
    std::uint32_t number_ = 0;  // of the message
    std::array<Regime, kRegimes> regimes_{};
    unsigned present_ = 0;
    unsigned count_ = 1;
    Reason reason_ = Reason::kFirst;
    unsigned left_ = 0;          // the regime before
    std::uint32_t left_at_ = 0;  // the message after which it was left
    Ways left_for_{};            // times that did not fit it
    std::array<Watch, 2> watches_{};
    std::array<std::array<std::uint32_t, kClasses>, 2> seen_{};  // the last message; 0: none

    unsigned trials_ = 0;                         // messages wanted now
    unsigned trial_way_ = 0;                      // of the last trial
    unsigned trial_size_ = 0;                     // its messages, of eager ones those of a turn
    unsigned awaited_ = 0;                        // those that have not come
    unsigned strays_ = 0;                         // messages since that went the usual way
    std::size_t trial_bytes_ = 0;                 // of the last message of a trial
    unsigned turns_ = 0;                          // of eager messages in the trial
    std::array<float, kClasses> eager_before_{};  // time of a byte of the last one; 0: none
    std::array<float, kClasses> turn_least_{};    // least times of a byte in this turn
    std::array<float, kClasses> turn_least_before_{};  // in the turn before
    std::size_t warm_bytes_ = 0;                       // of eager messages since they were cold
    unsigned rndv_in_a_row_ = 0;
    bool is_in_trial_ = false;            // the message is one of them
    bool is_unsure_ = false;              // no remembered regime fits, or several do
    std::uint32_t asked_ = 0;             // the message after which the last trial was asked for
    std::uint32_t pause_ = 16;            // messages until the next
    double spent_ = 0;                    // beyond the way in use, by the messages of the trial
    double usual_ = 0;                    // what the last of them would have taken
    std::array<double, 2> trial_cost_{};  // of a message of a trial of each way; 0: not known
    double credit_ = 0;                   // time that trials may take
    double glance_credit_ = 0;            // time that glances may take
};
static_assert(sizeof(Advisor) < 1024, "there is one for each peer that sends long messages");

}  // namespace tagwire::proto
