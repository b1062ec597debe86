// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/cost/advisor.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace tagwire::proto {

namespace {

/// Logarithm of the ratio by which a new threshold must be better.
constexpr double kGain = 0.08;

/// So much longer is an accident, such as a lost processor or pages that are new to it, unless it
/// is seen so often in a row.
constexpr double kAccident = 1.5;
constexpr unsigned kAccidentsMax = 8;
/// The thresholds are compared after so many times, for that takes as long as a message.
constexpr unsigned kLearntPerLook = 32;
/// A time that differs so much from that at the last advice: the machine is another one.
constexpr double kOther = 1.6;

/// Class i has the lengths [lower_bound(i), lower_bound(i + 1)).
constexpr std::size_t lower_bound(std::size_t i) {
    return Advisor::kFirst << i;
}
constexpr std::size_t class_of(std::size_t bytes) {
    return static_cast<std::size_t>(std::bit_width(bytes / Advisor::kFirst)) - 1;
}

}  // namespace

/// Down at once: nothing makes a message faster by accident.
void Advisor::Time::learn(double now) {
    if (known == 0 || now < known) {
        known = now;
    } else if (now < known * kAccident) {
        known += (now - known) / 4;
    } else {
        suspect = accidents == 0 ? now : std::min(suspect, now);
        if (++accidents <= kAccidentsMax)
            return;
        known = suspect;
    }
    accidents = 0;
}

double Advisor::time_of_byte(bool is_rndv, std::size_t bytes) const {
    return times_[is_rndv ? 1 : 0][class_of(bytes)].known;
}

/// Slowness of the classes over the better of their two ways: a sum of logarithms.
double Advisor::loss(std::size_t threshold) const {
    double sum = 0;
    for (std::size_t i = 0; i < kClasses; ++i) {
        const double eager = times_[0][i].known;
        const double rndv = times_[1][i].known;
        if (eager == 0 || rndv == 0)
            continue;
        // A class that the threshold divides counts for its middle.
        const bool is_rndv = lower_bound(i) + lower_bound(i) / 2 >= threshold;
        sum += std::max(std::log((is_rndv ? rndv : eager) / (is_rndv ? eager : rndv)), 0.0);
    }
    return sum;
}

bool Advisor::add(bool is_rndv, std::size_t bytes, double time) {
    if (time <= 0)
        return false;
    const std::size_t i = class_of(bytes);
    Time& learnt = times_[is_rndv ? 1 : 0][i];
    learnt.learn(time / static_cast<double>(bytes));
    const bool is_other =
        learnt.known > learnt.told * kOther || learnt.known * kOther < learnt.told;
    if (is_other)
        learnt.told = learnt.known;
    if (times_[0][i].known == 0 || times_[1][i].known == 0 ||
        (!is_other && ++learnt_ % kLearntPerLook != 0))
        return false;
    // The nearest of several that are as good: other lengths keep what they have.
    const auto distance = [&](std::size_t bound) {
        return bound > threshold_ ? bound - threshold_ : threshold_ - bound;
    };
    std::size_t best = threshold_;
    double least = loss(threshold_) - kGain;
    for (std::size_t k = 0; k <= kClasses; ++k) {
        const std::size_t bound = lower_bound(k);
        const double now = loss(bound);
        if (now < least || (now == least && distance(bound) < distance(best))) {
            least = now;
            best = bound;
        }
    }
    const bool has_changed = best != threshold_;
    threshold_ = best;
    return (has_changed || is_other) && is_threshold(threshold_);
}

}  // namespace tagwire::proto
