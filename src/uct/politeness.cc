// SPDX-License-Identifier: BSD-3-Clause
#include "uct/politeness.hpp"

#include <sched.h>

#include <algorithm>
#include <ctime>

#include "ucs/debug/check.hpp"

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

Whereabouts Whereabouts::here(std::uint64_t now) {
    return {static_cast<std::uint32_t>(::sched_getcpu()), now};
}

Politeness::Times Politeness::times_here() {
    // A loop that polls one other thing besides takes some hundred nanoseconds.
    // Builds that check themselves take longer for a call.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    constexpr std::uint64_t kCallNs = 200'000;
#else
    constexpr std::uint64_t kCallNs = ucs::kDebugChecks ? 50'000 : 2000;
#endif
    // The system call alone takes 0.2 to 0.6 us, a turn of another rank some microseconds.
    constexpr std::uint64_t kUndisturbedNs = 1500;
    constexpr std::uint64_t kTurnMinNs = 1'000'000;
    constexpr std::uint64_t kAnswerNs = 2000;
    // 7 us on the same processor; 40 where a virtual machine has to be told of it.
    constexpr std::uint64_t kWakeUpNs = 50'000;
    const std::uint64_t slice = slice_ns();
    const std::uint64_t turn_max = std::max(slice / 2, kTurnMinNs * 3 / 2);
    return {.slice = slice,
            .call = kCallNs,
            .undisturbed = kUndisturbedNs,
            .turn_min = kTurnMinNs,
            .turn_max = turn_max,
            .answer = kAnswerNs,
            .wake_up = kWakeUpNs};
}

void Politeness::set_latency(std::uint64_t ns) {
    constexpr unsigned kWakeUps = 2, kMessages = 4;
    blind_ = kWakeUps * times_.wake_up + kMessages * ns;
}

std::uint64_t Politeness::turn_limit() const {
    constexpr std::uint64_t kUnusual = 8;
    // A turn of each of them, while they connect, say.
    constexpr std::uint64_t kTurnNs = 60'000;
    const std::uint64_t least = std::max(times_.turn_min, kTurnNs * peers_);
    return std::clamp(kUnusual * usual_, least, std::max(times_.turn_max, least));
}

void Politeness::describe(const DescribeSink& sink, std::uint64_t now) const {
    constexpr std::uint64_t kNsPerUs = 1000;
    if (times_.slice == 0)
        sink.text("scheduler_slice_us", "unknown");
    else
        sink.number("scheduler_slice_us", times_.slice / kNsPerUs);
    sink.number("turn_limit_us", turn_limit() / kNsPerUs);
    sink.number("turn_limit_max_us", times_.turn_max / kNsPerUs);
    sink.number("nap_max_us", nap_ns(peers_) / kNsPerUs);
    sink.number("naps_end_in_us", naps(now) ? (nap_until_ - now) / kNsPerUs : 0);
}

Politeness::Act Politeness::decide(Peers peers, std::uint64_t now) {
    const bool is_computing = computes(now);
    back_ = now;
    back_at_ = empty_;
    if (peers == Peers::kNotSeen) {
        due_ = empty_ + kYieldsApart;
        blind_yields_ += is_computing ? 0 : 1;
        return is_computing ? Act::kSpin : Act::kYield;
    }
    counters.add(PoliteCounter::kLooks);
    blind_yields_ = 0;
    const bool moves = is_time_to_move(peers);
    const std::uint64_t idle = now - idle_since_;
    const bool is_blind = peers == Peers::kUnknown && idle >= blind_;
    const bool stands = is_blind || peers == Peers::kStand || peers == Peers::kStandHere;
    apart_ = std::min(stands ? first_look() << undisturbed_ : 2 * apart_, kLooksApart);
    due_ = empty_ + apart_;
    if (is_computing)
        return Act::kSpin;
    if (naps(now))
        return stands ? beside_strangers(peers, idle) : Act::kSpin;
    return moves || is_blind ? Act::kNap : among_ranks(peers, idle);
}

bool Politeness::computes(std::uint64_t now) {
    const std::uint64_t calls = empty_ - back_at_;
    if (calls == 0)
        return now > back_;
    // A machine may become slower, or interfaces more.
    constexpr std::uint64_t kForgets = 256;
    if (closest_ < kCallMaxNs)
        closest_ += closest_ / kForgets + 1;
    closest_ = std::min(closest_, (now - back_) / calls);
    const std::uint64_t apart =
        std::max(times_.call, kComputesTimes * std::min(closest_, kCallMaxNs));
    return now - back_ > calls * apart;
}

Politeness::Act Politeness::among_ranks(Peers peers, std::uint64_t idle) const {
    const bool could_answer = idle >= times_.answer;
    // Others want the processor, and it waits for one of them, perhaps.
    if (peers == Peers::kRun)
        return is_crowded_ && could_answer ? Act::kYield : Act::kSpin;
    if (peers != Peers::kStand && peers != Peers::kStandHere)
        return Act::kSpin;
    // It may be about to answer: it copies what was sent, say.
    return is_crowded_ || could_answer ? Act::kYield : Act::kSpin;
}

/// A peer elsewhere may be about to run: it was woken, say. One that ran here needs this processor.
Politeness::Act Politeness::beside_strangers(Peers peers, std::uint64_t idle) const {
    return peers == Peers::kStandHere || idle >= times_.wake_up ? Act::kNap : Act::kSpin;
}

bool Politeness::is_time_to_move(Peers peers) {
    if (peers != Peers::kStandHere) {
        if (++elsewhere_ >= kMovesApart) {
            here_ = 0;
            next_move_ = kMovesApart;
        }
        return false;
    }
    elsewhere_ = 0;
    here_ += is_crowded_ ? 1 : 0;
    if (here_ < next_move_)
        return false;
    here_ = 0;
    next_move_ = std::min(4 * next_move_, kMovesApartMax);
    return true;
}

void Politeness::yielded(std::uint64_t begin, std::uint64_t end, bool is_peers) {
    counters.add(PoliteCounter::kYields);
    come_back(begin, end);
    const std::uint64_t took = end - begin;
    if (took < times_.undisturbed) {
        undisturbed_ = std::min(undisturbed_ + 1, kUndisturbedMax);
        if (undisturbed_ == kUndisturbedMax)
            useful_ = 0;
        is_crowded_ = useful_ == kUsefulMin;
        return;
    }
    undisturbed_ = 0;
    const bool is_long = is_long_turn(took);
    useful_ = std::min(useful_ + 1, kUsefulMin);
    is_crowded_ = useful_ == kUsefulMin && (!is_long || is_peers);
    apart_ = is_crowded_ ? kYieldsApart : kFirstLook;
    due_ = empty_ + apart_;
    if (is_long && !is_peers)
        return met_stranger(took, end);
    if (strangers_ == 0)
        doublings_ = 0;
    else
        --strangers_;
    if (is_long)
        return;
    constexpr std::int64_t kWeight = 8;
    usual_ += static_cast<std::uint64_t>(static_cast<std::int64_t>(took - usual_) / kWeight);
}

/// One alone may be a rank that computed, or an accident. After a time of naps one is enough.
void Politeness::met_stranger(std::uint64_t took, std::uint64_t now) {
    strangers_ += kStranger;
    if (strangers_ <= kStranger)
        return;
    strangers_ = kStranger;
    nap_until_ = now + ((std::min(took, kSliceNs) * kNapsPerYield) << doublings_);
    doublings_ = std::min(doublings_ + 1, kNapDoublingsMax);
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
