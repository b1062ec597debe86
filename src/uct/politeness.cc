// SPDX-License-Identifier: BSD-3-Clause
#include "uct/politeness.hpp"

#include <sched.h>

#include <algorithm>
#include <ctime>

namespace tagwire::uct {

constexpr ucs::CounterTable<PoliteCounter> kPoliteCounterInfos = ucs::counter_table<PoliteCounter>({
    {PoliteCounter::kLooks, "looks", "times", "looks whether the peers that are waited for run"},
    {PoliteCounter::kYields, "yields", "times",
     "times that progress yielded the processor while a peer did not run"},
    {PoliteCounter::kNaps, "naps", "times",
     "times that progress slept a while, since other programs had kept the processor before"},
    {PoliteCounter::kAwayNs, "away", "ns", "time spent in yields and naps"},
});

namespace {

/// The scheduler's slice of this thread in nanoseconds; 0: it does not tell.
std::uint64_t slice_ns() {
    timespec slice{};
    if (::sched_rr_get_interval(0, &slice) != 0)
        return 0;
    return static_cast<std::uint64_t>(slice.tv_sec) * 1'000'000'000U +
           static_cast<std::uint64_t>(slice.tv_nsec);
}

}  // namespace

Politeness::Times Politeness::times_here() {
    // A loop that polls one other thing besides takes some hundred nanoseconds.
    constexpr std::uint64_t kCallNs = 2000;
    // The system call alone takes 0.2 to 0.6 us, a turn of another rank some microseconds.
    constexpr std::uint64_t kUndisturbedNs = 1500;
    constexpr std::uint64_t kTurnMinNs = 1'000'000;
    // Where peers are out of sight, a message takes tens of microseconds: a nap that begins later
    // than this adds little to the wait.
    constexpr std::uint64_t kBlindNs = 100'000;
    const std::uint64_t turn_max = std::max(slice_ns() / 2, kTurnMinNs * 3 / 2);
    return {.call = kCallNs,
            .undisturbed = kUndisturbedNs,
            .turn_min = kTurnMinNs,
            .turn_max = turn_max,
            .blind = kBlindNs};
}

std::uint64_t Politeness::turn_limit() const {
    constexpr std::uint64_t kUnusual = 8;
    return std::clamp(kUnusual * usual_, times_.turn_min, times_.turn_max);
}

Politeness::Act Politeness::decide(Peers peers, std::uint64_t now) {
    counters.add(PoliteCounter::kLooks);
    const bool computes = now - back_ > (empty_ - back_at_) * times_.call;
    back_ = now;
    back_at_ = empty_;
    if (peers == Peers::kUnknown && now - idle_since_ >= times_.blind)
        peers = Peers::kStand;
    const bool stands = peers == Peers::kStand;
    apart_ = std::min(stands ? kFirstLook << undisturbed_ : 2 * apart_, kLooksApart);
    due_ = empty_ + apart_;
    if (!stands)
        return Act::kSpin;
    if (computes)
        return Act::kSpin;
    if (naps_left_ == 0)
        return Act::kYield;
    --naps_left_;
    return Act::kNap;
}

void Politeness::yielded(std::uint64_t begin, std::uint64_t end) {
    counters.add(PoliteCounter::kYields);
    come_back(begin, end);
    const std::uint64_t took = end - begin;
    if (took < times_.undisturbed) {
        undisturbed_ = std::min(undisturbed_ + 1, kUndisturbedMax);
        return;
    }
    undisturbed_ = 0;
    apart_ = kFirstLook;
    due_ = empty_ + apart_;
    if (took > turn_limit()) {
        naps_left_ = kNapsInARow;
        return;
    }
    constexpr std::int64_t kWeight = 8;
    usual_ += static_cast<std::uint64_t>(static_cast<std::int64_t>(took - usual_) / kWeight);
}

void Politeness::napped(std::uint64_t begin, std::uint64_t end) {
    counters.add(PoliteCounter::kNaps);
    come_back(begin, end);
}

void Politeness::come_back(std::uint64_t begin, std::uint64_t end) {
    counters.add(PoliteCounter::kAwayNs, end - begin);
    back_ = end;
    back_at_ = empty_;
}

}  // namespace tagwire::uct
