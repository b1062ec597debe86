// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/cost/advisor.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>
#include <utility>

#include "ucs/sys/processor.hpp"

namespace tagwire::proto {

namespace {

/// Logarithm of the ratio by which a new threshold must be better.
constexpr double kGain = 0.08;
/// Weight of a class that no message has had of late.
constexpr double kUnusedWeight = 1.0 / 16;
constexpr std::uint32_t kUnusedAfter = 512;
/// The thresholds are compared after so many times, for that takes as long as a message.
constexpr std::uint32_t kTimesPerLook = 32;

/// A time that differs by this ratio is of another regime, or an accident: longer, by a lost
/// processor or pages that are new to it; shorter, by parts that had all come before the first was
/// taken.
constexpr float kOther = 1.35F;
/// Unless it is seen so often in a row.
constexpr unsigned kRises = 8;
constexpr unsigned kFalls = 2;
/// The least of the first times of a class is its figure, and says nothing of the regime.
constexpr unsigned kSettled = 3;
constexpr unsigned kSettledTrial = 2;
/// The first times of a connection fall with every message.
constexpr std::uint32_t kWarm = 64;
/// Logarithm of the ratio up to which times fit a remembered regime.
const double kFit = std::log(1.3);
/// A regime of fewer messages was a mistake if the one before it returns.
constexpr std::uint32_t kBrief = 256;
/// Messages after which a time says nothing of the present.
constexpr std::uint32_t kRecent = 64;

/// Messages between two trials, at the least: after a change of the regime, and otherwise.
constexpr std::uint32_t kTrialSoon = 16;
constexpr std::uint32_t kTrialEveryMin = 64;
/// ... where the sender does not follow.
constexpr std::uint32_t kTrialEveryMax = 4096;
/// Messages of a trial of rendezvous. Code and pages are cold: the first is not learnt from.
constexpr unsigned kTrial = 3;
/// A trial is over when so many messages in a row have gone the usual way again.
constexpr unsigned kStrays = 6;
/// Turns of a trial of eager messages, until they become no faster than kFaster of the turn before.
constexpr unsigned kTurnMax = 64;  // messages
static_assert(kTurnMax <= Advisor::kTrialMax);
constexpr unsigned kTurnsMin = 3;
constexpr unsigned kTurnsMax = 8;
constexpr float kFaster = 0.93F;
/// It ends at once where they are better, if cold, or where they take so many times as long as
/// rendezvous.
constexpr float kBetter = 0.92F;
constexpr float kHopeless = 2.5F;
/// Warm-up may speed eager messages up by at most this factor.
constexpr float kCold = 3;
/// Where they are known to take kGlanceFrom times as long as rendezvous, there are glances between
/// the trials: one message, which a trial follows if it took less than is known.
constexpr unsigned kGlance = 1;
constexpr float kGlanceFrom = 1.5F;
/// Eager messages are cold after so many rendezvous in a row.
constexpr unsigned kCoolsAfter = 32;
/// Share of the time of messages for trials, and where only they can tell another regime. The
/// sender's part of a cold rendezvous is not seen here.
constexpr double kTrialShare = 0.015;
constexpr double kTrialShareTwin = 0.05;
/// The way in use does not tell two regimes in which its times differ by less.
constexpr float kTwin = 1.8F;
/// Trials for what is unknown may come so many trials earlier.
constexpr double kTrialsOwed = 8;
/// The cost of a trial is taken to have risen by this ratio at most.
constexpr double kTrialCostMax = 4;

/// Class i has the lengths [lower_bound(i), lower_bound(i + 1)).
constexpr std::size_t lower_bound(std::size_t i) {
    return Advisor::kFirst << i;
}
constexpr std::size_t class_of(std::size_t bytes) {
    return static_cast<std::size_t>(std::bit_width(bytes / Advisor::kFirst)) - 1;
}

}  // namespace

std::size_t Advisor::learnt_end() {
    static const std::size_t end = ucs::is_processor_of_intel() ? std::size_t{512} << 10 : kEnd;
    return end;
}

Advisor::Advisor(std::size_t threshold, std::size_t turn, std::size_t end)
    : threshold_(threshold), turn_(turn), classes_(class_of(end)) {}

double Advisor::time_of_byte(bool is_rndv, std::size_t bytes) const {
    return static_cast<double>(regimes_[present_].known[is_rndv ? 1 : 0][class_of(bytes)]);
}

bool Advisor::is_recent(unsigned way, std::size_t i, std::uint32_t messages) const {
    return seen_[way][i] != 0 && number_ - seen_[way][i] < messages;
}

/// A known time, or one that follows from another class, by the ratio of the two in another
/// regime; 0: nothing.
float Advisor::time_in(const Regime& regime, unsigned way, std::size_t i) const {
    const auto& known = regime.known[way];
    if (known[i] != 0 || count_ == 1)
        return known[i];
    for (std::size_t distance = 1; distance < kClasses; ++distance) {
        for (const std::size_t k : {i - distance, i + distance}) {
            if (k >= kClasses || known[k] == 0)
                continue;
            for (const Regime& other : std::span(regimes_).first(count_)) {
                if (other.known[way][i] != 0 && other.known[way][k] != 0)
                    return known[k] * (other.known[way][i] / other.known[way][k]);
            }
        }
    }
    return 0;
}

// ---- Regimes

/// True: another regime has begun. A shorter time replaces a known one, a longer one counts for a
/// quarter: what is beyond the shortest is mostly accident.
bool Advisor::learn(unsigned way, std::size_t i, float now) {
    Regime& regime = regimes_[present_];
    float& known = regime.known[way][i];
    std::uint8_t& learnt = regime.learnt[way][i];
    seen_[way][i] = number_;
    regime.used = number_;
    if (way == 0 && (eager_is_cold() || learnt < kSettled)) {
        learn_early(i, now);
        return false;
    }
    const unsigned settled = is_in_trial_ ? kSettledTrial : kSettled;
    if (learnt < settled || (number_ < kWarm && now < known)) {
        known = known == 0 ? now : std::min(known, now);
        learnt = static_cast<std::uint8_t>(std::min<unsigned>(learnt + 1U, kSettled));
        return false;
    }
    if (now > known * kOther || now * kOther < known)
        return watch(way, i, now, now < known);
    if (watches_[way].count != 0)
        watches_[way] = {};
    known += now < known ? now - known : (now - known) / 4;
    return false;
}

/// Eager messages warm up with each turn of their buffers.
void Advisor::warm(unsigned way, std::size_t bytes) {
    if (way == 0) {
        rndv_in_a_row_ = 0;
        warm_bytes_ = std::min(warm_bytes_ + bytes, kTurnsMax * turn_);
    } else if (++rndv_in_a_row_ >= kCoolsAfter) {
        warm_bytes_ = 0;
    }
}

bool Advisor::eager_is_cold() const {
    return warm_bytes_ < kTurnsMax * turn_;
}

/// The longer one of the times of this message and the one before it: one alone is short by
/// accident where all parts had come before the first was taken.
float Advisor::of_two(std::size_t i, float now) {
    const float before = std::exchange(eager_before_[i], now);
    return before == 0 ? 0 : std::max(before, now);
}

/// Eager messages are cold, or new to the regime: a time that is less than is known holds, though
/// it may still fall; one that is more does not.
void Advisor::learn_early(std::size_t i, float now) {
    Regime& regime = regimes_[present_];
    float& known = regime.known[0][i];
    const float time = of_two(i, now);
    if (time == 0)
        return;
    known = known == 0 ? time : std::min(known, time);
    if (!eager_is_cold())
        ++regime.learnt[0][i];
}

/// A time that does not fit.
bool Advisor::watch(unsigned way, std::size_t i, float now, bool is_fall) {
    Watch& watch = watches_[way];
    if (watch.count == 0 || watch.is_fall != is_fall) {
        watch = {};
        watch.is_fall = is_fall;
        watch.since = number_;
    }
    float& least = watch.least[i];
    least = least == 0 ? now : std::min(least, now);
    if (++watch.count < (is_fall ? kFalls : kRises))
        return false;
    leave(way);
    return true;
}

/// The times that are sure to be of the regime that has begun, as `way` shows: its own, and those
/// of the other way which have stayed as they were.
Advisor::Ways Advisor::evidence(unsigned way) const {
    Ways seen{};
    seen[way] = watches_[way].least;
    const unsigned other = 1 - way;
    if (watches_[other].count != 0)
        return seen;
    const std::uint32_t messages =
        is_in_trial_ ? kRecent : number_ - watches_[way].since;  // it is in use all the time
    for (std::size_t i = 0; i < kClasses; ++i) {
        if (is_recent(other, i, messages))
            seen[other][i] = regimes_[present_].known[other][i];
    }
    return seen;
}

/// Logarithm of the ratio of the worst time; infinite if the regime knows nothing of `way`.
double Advisor::misfit(const Regime& regime, const Ways& seen, unsigned way) const {
    double worst = 0;
    bool is_known = false;
    for (unsigned w = 0; w < 2; ++w) {
        for (std::size_t i = 0; i < kClasses; ++i) {
            const float time = seen[w][i] == 0 ? 0 : time_in(regime, w, i);
            if (time == 0)
                continue;
            worst = std::max(worst, std::abs(std::log(static_cast<double>(seen[w][i] / time))));
            is_known = is_known || w == way;
        }
    }
    return is_known ? worst : HUGE_VAL;
}

/// To the remembered regime that fits best, or to a new one.
void Advisor::leave(unsigned way) {
    const Ways seen = evidence(way);
    unsigned best = present_;
    double least = kFit;
    unsigned fits = 0;
    for (unsigned k = 0; k < count_; ++k) {
        const double now = k == present_ ? HUGE_VAL : misfit(regimes_[k], seen, way);
        fits += now <= kFit ? 1 : 0;
        if (now <= least) {
            least = now;
            best = k;
        }
    }
    is_unsure_ = fits != 1;
    const unsigned left = present_;
    if (best != present_) {
        if (best == left_ && number_ - left_at_ < kBrief)
            correct(regimes_[best]);
        present_ = best;
        reason_ = Reason::kRemembered;
    } else {
        begin_regime(seen, way);
    }
    left_ = left;
    left_at_ = number_;
    left_for_ = {};
    left_for_[way] = seen[way];
    regimes_[present_].used = number_;
    watches_ = {};
}

/// It was left and has returned soon: the times for which it was left are its own; those that it
/// knew were wrong.
void Advisor::correct(Regime& regime) const {
    for (unsigned way = 0; way < 2; ++way) {
        for (std::size_t i = 0; i < kClasses; ++i) {
            if (left_for_[way][i] != 0)
                regime.known[way][i] = left_for_[way][i];
        }
    }
}

/// In the place of the one that has not been used for longest, if there is no room.
void Advisor::begin_regime(const Ways& seen, unsigned way) {
    unsigned place = count_;
    if (count_ < kRegimes) {
        ++count_;
    } else {
        place = present_ == 0 ? 1 : 0;
        for (unsigned k = 0; k < kRegimes; ++k) {
            if (k != present_ && number_ - regimes_[k].used > number_ - regimes_[place].used)
                place = k;
        }
    }
    present_ = place;
    reason_ = Reason::kNew;
    Regime& regime = regimes_[place] = {};
    regime.known = seen;
    for (std::size_t i = 0; i < kClasses; ++i) {
        regime.learnt[way][i] = seen[way][i] != 0 ? kSettled : 0;
        regime.learnt[1 - way][i] = seen[1 - way][i] != 0 ? 1 : 0;
    }
}

// ---- The threshold

/// True: another length is better.
bool Advisor::choose() {
    std::array<double, kClasses> slower{};  // rendezvous than eager: a weighted logarithm
    for (std::size_t i = 0; i < classes_; ++i) {
        // Cold ones in use may become faster.
        const bool may_be_faster = lower_bound(i) < threshold_ && warm_bytes_ < kTurnsMin * turn_;
        const float eager = time_in(regimes_[present_], 0, i) / (may_be_faster ? kCold : 1);
        const float rndv = time_in(regimes_[present_], 1, i);
        const bool is_used = is_recent(0, i, kUnusedAfter) || is_recent(1, i, kUnusedAfter);
        if (eager != 0 && rndv != 0)
            slower[i] = std::log(static_cast<double>(rndv / eager)) * (is_used ? 1 : kUnusedWeight);
    }
    // Slowness of the classes over the better of their two ways.
    const auto loss = [&](std::size_t threshold) {
        double sum = 0;
        for (std::size_t i = 0; i < classes_; ++i) {
            // A class that the threshold divides counts for its middle.
            const bool is_rndv = lower_bound(i) + lower_bound(i) / 2 >= threshold;
            sum += std::max(is_rndv ? slower[i] : -slower[i], 0.0);
        }
        return sum;
    };
    // The nearest of several that are as good: other lengths keep what they have.
    const auto distance = [&](std::size_t bound) {
        return bound > threshold_ ? bound - threshold_ : threshold_ - bound;
    };
    std::size_t best = threshold_;
    double least = loss(threshold_) - kGain;
    for (std::size_t k = 0; k <= classes_; ++k) {
        const std::size_t bound = lower_bound(k);
        const double now = loss(bound);
        if (now < least || (now == least && distance(bound) < distance(best))) {
            least = now;
            best = bound;
        }
    }
    const bool has_changed = best != threshold_;
    threshold_ = best;
    return has_changed;
}

// ---- Trials

/// Whether the message is one of the awaited trial. Its time beyond that of the way in use is paid.
bool Advisor::pay(unsigned way, std::size_t bytes, double time) {
    if (awaited_ == 0 || way != trial_way_ || (way == 1) == (bytes >= threshold_))
        return false;
    const double usual =
        static_cast<double>(time_in(regimes_[present_], 1 - way, class_of(bytes))) *
        static_cast<double>(bytes);
    spent_ += std::max(time - usual, 0.0);
    usual_ = usual;
    trial_bytes_ = bytes;
    strays_ = 0;
    if (--awaited_ == 0)
        settle();
    return true;
}

/// All messages of the trial, or of a turn of it, have come that will come.
void Advisor::settle() {
    const unsigned messages = trial_size_ - std::exchange(awaited_, 0);
    // One that has met an accident counts for little.
    double& cost = trial_cost_[trial_way_];
    const double now = std::max(spent_ / messages, usual_ / 4);
    cost = cost == 0 || now < cost ? now : cost + (std::min(now, kTrialCostMax * cost) - cost) / 4;
    (trial_size_ == kGlance ? glance_credit_ : credit_) -= cost * messages;
}

/// True: the messages of the trial that have not come will not, for the sender is back to its way:
/// they were not timed.
bool Advisor::is_over() {
    if (awaited_ == 0 || awaited_ == trial_size_ || ++strays_ < kStrays)
        return false;
    settle();
    return true;
}

/// In another regime `way` is the faster one, and the other one, which is in use, takes what it
/// takes now: only a trial shows that regime.
bool Advisor::has_twin(unsigned way, std::size_t i) const {
    if (count_ == 1)
        return false;
    const float used = regimes_[present_].known[1 - way][i];
    return std::ranges::any_of(std::span(regimes_).first(count_), [&](const Regime& regime) {
        const float time = regime.known[1 - way][i];
        return regime.known[way][i] != 0 && regime.known[way][i] < time && time < used * kTwin &&
               used < time * kTwin;
    });
}

/// A trial where the other way than that of this message is not known, or there is time for it.
void Advisor::want_trial(unsigned way, std::size_t bytes, double time) {
    const unsigned other = 1 - way;
    const std::size_t i = class_of(bytes);
    const Ways& known = regimes_[present_].known;
    const unsigned turn = trial_length(other, bytes);
    const bool is_known = known[other][i] != 0 && !is_unsure_;
    const double share = has_twin(other, i) ? kTrialShareTwin : kTrialShare;
    const double usual = is_known ? time : 3 * time;
    const double one = trial_cost_[other] != 0 ? trial_cost_[other] : usual;
    const double whole = (other == 0 ? kTurnsMin * turn : turn) * one;
    credit_ = std::min(credit_ + time * share, whole);
    glance_credit_ = std::min(glance_credit_ + time * share, one);
    if (number_ - asked_ < pause_)
        return;
    const bool is_whole = credit_ >= (is_known ? whole : -kTrialsOwed * whole);
    if (!is_whole &&
        (other == 1 || glance_credit_ < one || known[other][i] < known[way][i] * kGlanceFrom))
        return;
    // Nothing of the last has come: the sender has lists only, or may not send eager messages.
    pause_ = awaited_ == trial_size_ && awaited_ != 0 ? std::min(2 * pause_, kTrialEveryMax)
                                                      : kTrialEveryMin;
    turns_ = 0;
    turn_least_ = {};
    eager_before_ = {};
    is_unsure_ = false;
    ask(other, is_whole ? turn : kGlance);
}

unsigned Advisor::trial_length(unsigned way, std::size_t bytes) const {
    if (way == 1)
        return kTrial;
    return static_cast<unsigned>(std::clamp<std::size_t>(turn_ / bytes, kTrial, kTurnMax));
}

/// For a trial, or for one more turn of it.
void Advisor::ask(unsigned way, unsigned messages) {
    trials_ = trial_size_ = awaited_ = messages;
    trial_way_ = way;
    asked_ = number_;
    spent_ = 0;
}

/// A message of a trial of eager ones. True: another regime has begun.
bool Advisor::try_eager(std::size_t bytes, float now) {
    const std::size_t i = class_of(bytes);
    float& least = turn_least_[i];
    if (const float time = of_two(i, now); time != 0)
        least = least == 0 ? time : std::min(least, time);
    seen_[0][i] = number_;
    return awaited_ == 0 && end_turn(now);
}

/// As try_eager(), which has seen `now` last.
bool Advisor::end_turn(float now) {
    const std::size_t bytes = trial_bytes_;
    const std::size_t i = class_of(bytes);
    if (trial_size_ == kGlance) {
        if (now * kOther < regimes_[present_].known[0][i])
            ask(0, trial_length(0, bytes));
        return false;
    }
    ++turns_;
    if (has_gone_far_enough(i))
        return conclude();
    turn_least_before_ = std::exchange(turn_least_, {});
    ask(0, trial_length(0, bytes));
    return false;
}

bool Advisor::has_gone_far_enough(std::size_t i) const {
    const float least = turn_least_[i];
    const float rndv = regimes_[present_].known[1][i];
    if (least == 0)
        return turns_ >= kTurnsMax;
    if (turns_ >= kTurnsMax || least < rndv * kBetter || (rndv != 0 && least > rndv * kHopeless))
        return true;
    return turns_ >= kTurnsMin && least > turn_least_before_[i] * kFaster;
}

/// The times of the last turn are those of eager messages.
bool Advisor::conclude() {
    Regime& regime = regimes_[present_];
    regime.used = number_;
    bool is_other = false;
    for (std::size_t i = 0; i < kClasses; ++i) {
        float& known = regime.known[0][i];
        if (turn_least_[i] == 0)
            continue;
        is_other = is_other || (known != 0 && turn_least_[i] * kOther < known);
        if (known == 0 || turn_least_[i] * kOther >= known)
            known = turn_least_[i];
        regime.learnt[0][i] = kSettled;
    }
    if (is_other) {
        watches_[0].least = turn_least_;
        watches_[0].since = number_;
        leave(0);
    }
    return is_other;
}

bool Advisor::add(bool is_rndv, std::size_t bytes, double time, bool is_sample) {
    trials_ = 0;
    if (time <= 0)
        return false;
    ++number_;
    const unsigned way = is_rndv ? 1 : 0;
    const std::size_t i = class_of(bytes);
    const auto now = static_cast<float>(time / static_cast<double>(bytes));
    is_in_trial_ = pay(way, bytes, time);
    warm(way, is_sample && !is_in_trial_ ? kSampleEvery * bytes : bytes);
    bool is_other = false;
    bool has_changed = false;
    const bool is_cut_short = !is_in_trial_ && is_over();
    if (is_in_trial_ && way == 0)
        is_other = try_eager(bytes, now);
    else if (is_cut_short && trial_way_ == 0)
        is_other = end_turn(turn_least_[class_of(trial_bytes_)]);
    else if (!is_in_trial_ || awaited_ + 1 < trial_size_)
        is_other = learn(way, i, now);
    const bool has_ended = is_cut_short || (is_in_trial_ && (way == 1 || awaited_ == 0));
    if (is_other || has_ended || number_ % kTimesPerLook == 0)
        has_changed = choose();
    if (is_other || has_changed)
        awaited_ = 0;
    if (is_other)
        pause_ = kTrialSoon;
    if (!is_in_trial_)
        want_trial(way, bytes, time);
    else if (way == 1 && awaited_ == 0 && watches_[1].count != 0 && watches_[1].is_fall)
        ask(1, kTrial);  // one that took less than is known: once more
    return trials_ != 0 || ((is_other || has_changed) && is_threshold(threshold_));
}

}  // namespace tagwire::proto
