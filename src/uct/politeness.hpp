// SPDX-License-Identifier: BSD-3-Clause
// Polite progress: who waits for a process that has no processor gives its own away.
//
//   found something                     the peers that are waited for run
//      |                                  +---------------------------+
//      v      kFirstLook empty calls      v                           |
//   busy -----------------------------> look ---- one of them stands --+--> yield, to other ranks
//                                         ^                            |      |
//                                         |                            |      | took longer than
//                                         |                            |      v ranks' turns last
//                                         +---- a message, or 100 us --+--> nap, beside strangers
//
// A peer stands when its count of calls (sm/layout.hpp: Bell::calls) has not moved since the last
// look: it has no processor, or computes. A yield hands the core to whoever waits for it, which is
// right among ranks that all yield; a stranger keeps it for a whole slice of the scheduler. A nap
// ends when a message comes, and the scheduler runs who wakes from sleep soon.
//
// A thread that waits for one which waited on the same processor naps now and then instead of a
// yield: the scheduler lets who wakes up run on an idle processor if there is one, but moves none
// of two that yield to each other all the time.
//
// Threads: the owner's, as Worker. Times are of clock_now_ns(). The class decides only; its caller
// yields and naps.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ucs/stats/counters.hpp"
#include "uct/describe.hpp"

namespace tagwire::uct {

enum class PoliteCounter { kLooks, kYields, kNaps, kAwayNs, kCount };
extern const ucs::CounterTable<PoliteCounter> kPoliteCounterInfos;

/// A thread that waits: its processor, and the time.
struct Whereabouts {
    std::uint32_t cpu;
    std::uint64_t now;
    static Whereabouts here(std::uint64_t now);
};

class Politeness {
  public:
    /// The state of those whom the worker waits for, as far as it is known.
    /// The last of this order counts where answers are several.
    enum class Peers : std::uint8_t {
        kNotSeen,    // nobody looked, while yields help others (wants_look())
        kNone,       // there is nobody
        kUnknown,    // they are out of sight: on another host, or on another transport
        kRun,        // each has made calls since the last look
        kStand,      // one has not
        kStandHere,  // one stands, and waited on this processor when it waited last
    };
    enum class Act : std::uint8_t { kSpin, kYield, kNap };

    /// Nanoseconds.
    struct Times {
        std::uint64_t slice;  // of the scheduler; 0: it does not tell
        std::uint64_t call;   // calls farther apart than this may be a program's that computes
        std::uint64_t undisturbed;  // a yield that is shorter than this found nobody
        std::uint64_t turn_min;     // a yield up to this is other ranks' turns
        std::uint64_t turn_max;     // a yield beyond this is a stranger's slice
        std::uint64_t answer;       // a peer that runs and waits for nobody has answered by then
        std::uint64_t wake_up;      // a process that is woken runs within this time
    };
    /// The lengths of this machine and its scheduler.
    static Times times_here();

    static constexpr unsigned kFirstLook = 16;      // empty calls
    static constexpr unsigned kYieldsApart = 8;     // where yields help
    static constexpr unsigned kYieldsPerLook = 32;  // yields at most without a look
    /// Yields in a row to one that waited here before a nap; four times as many each time.
    static constexpr unsigned kMovesApart = 32;
    static constexpr unsigned kMovesApartMax = 8192;
    static constexpr unsigned kLooksApart = 256;  // at most so many calls between two looks
    /// A yield to a stranger weighs as much as so many to ranks.
    static constexpr unsigned kStranger = 8;
    /// A nap takes so many times what the last yield took, twice as long each time that the next
    /// yield meets a stranger again.
    static constexpr std::uint64_t kNapsPerYield = 8;
    static constexpr unsigned kNapDoublingsMax = 3;
    /// A longer yield met several, or ranks that begin or end: no reason for longer naps.
    static constexpr std::uint64_t kSliceNs = 4'000'000;
    /// The longest nap among so many peers: the end of one that brings nothing costs 5 to 10 us,
    /// so all of them together take a third of a processor.
    static constexpr std::uint64_t nap_ns(std::size_t peers) {
        constexpr std::uint64_t kLeastNs = 100'000, kPeerNs = 25'000, kMostNs = 5'000'000;
        return std::clamp(kPeerNs * peers, kLeastNs, kMostNs);
    }

    explicit Politeness(const Times& times) : times_(times) { set_latency(0); }

    /// The longest time that a message takes to a peer out of sight. For such peers it naps, since
    /// nothing tells whether a yield would help them: once it has waited for two round trips and
    /// two wake-ups, to which the end of a nap adds half at most.
    void set_latency(std::uint64_t ns);

    /// Something was found.
    void restart(std::uint64_t now) {
        empty_ = 0;
        due_ = apart_;
        idle_since_ = back_ = now;
        back_at_ = 0;
    }
    /// `calls` more found nothing. True: decide() is due.
    bool add_empty(unsigned calls) {
        empty_ += calls;
        return empty_ >= due_;
    }
    /// decide() is to be told the state of the peers: yields have not shown yet that others want
    /// the processor, or show that no more.
    [[nodiscard]] bool wants_look(std::uint64_t now) const {
        return !is_crowded_ || naps(now) || blind_yields_ >= kYieldsPerLook;
    }
    Act decide(Peers peers, std::uint64_t now);
    /// A yield has lasted from `begin` to `end`; a peer is known to have had the processor.
    void yielded(std::uint64_t begin, std::uint64_t end, bool is_peers);
    void napped(std::uint64_t begin, std::uint64_t end);

    void describe(const DescribeSink& sink, std::uint64_t now) const;
    /// The thread naps instead of yielding.
    [[nodiscard]] bool naps(std::uint64_t now) const { return now < nap_until_; }
    /// Number of processes that may have turns before this one has the next.
    void set_peers(std::size_t count) { peers_ = count; }
    [[nodiscard]] bool is_long_turn(std::uint64_t took) const { return took > turn_limit(); }
    /// Yields that take longer gave the core to a stranger; nanoseconds.
    [[nodiscard]] std::uint64_t turn_limit() const;
    ucs::CounterArray<PoliteCounter> counters;

  private:
    /// A program computes where its calls are so many times as far apart as they have been lately.
    static constexpr std::uint64_t kComputesTimes = 3;
    /// Calls of a program that does nothing else are no farther apart: of several transmit
    /// contexts, each of which asks the system.
    static constexpr std::uint64_t kCallMaxNs = 5000;
    /// Yields in a row that found nobody double the distance of looks, as looks at peers that run
    /// do: up to kLooksApart.
    static constexpr unsigned kUndisturbedMax = 4;
    /// One that finds somebody may be an accident.
    static constexpr unsigned kUsefulMin = 2;

    /// The program has done other things between the calls since `back_`.
    [[nodiscard]] bool computes(std::uint64_t now);
    [[nodiscard]] unsigned first_look() const { return is_crowded_ ? kYieldsApart : kFirstLook; }
    /// The last message came `idle` nanoseconds ago.
    [[nodiscard]] Act among_ranks(Peers peers, std::uint64_t idle) const;
    [[nodiscard]] Act beside_strangers(Peers peers, std::uint64_t idle) const;
    [[nodiscard]] bool is_time_to_move(Peers peers);
    void met_stranger(std::uint64_t took, std::uint64_t now);
    void come_back(std::uint64_t begin, std::uint64_t end);

    const Times times_;
    unsigned empty_ = 0;           // calls in a row that found nothing
    unsigned due_ = kFirstLook;    // the next look
    unsigned apart_ = kFirstLook;  // calls before the next look, also in the next wait
    bool is_crowded_ = false;      // the last yields gave the processor to somebody
    unsigned useful_ = 0;          // yields to others, since kUndisturbedMax found nobody
    unsigned undisturbed_ = 0;     // yields in a row that found nobody
    unsigned blind_yields_ = 0;    // since the last look
    unsigned here_ = 0;            // yields to one that waited here
    unsigned next_move_ = kMovesApart;
    unsigned elsewhere_ = 0;              // looks since then at none that waited here
    unsigned strangers_ = 0;              // above kStranger: yields meet strangers
    unsigned doublings_ = 0;              // of the next time of naps
    unsigned back_at_ = 0;                // empty_ at back_
    std::uint64_t blind_ = 0;             // peers out of sight are napped for from then on
    std::uint64_t nap_until_ = 0;         // instead of yields
    std::uint64_t idle_since_ = 0;        // something was found
    std::uint64_t back_ = 0;              // the same, or the end of a yield or nap
    std::uint64_t closest_ = UINT64_MAX;  // that calls came behind each other
    std::size_t peers_ = 0;
    std::uint64_t usual_ = 0;  // average of yields to ranks
};

}  // namespace tagwire::uct
