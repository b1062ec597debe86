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
// Threads: the owner's, as Worker. Times are of clock_now_ns(). The class decides only; its caller
// yields and naps.
#pragma once

#include <cstdint>

#include "ucs/stats/counters.hpp"

namespace tagwire::uct {

enum class PoliteCounter { kLooks, kYields, kNaps, kAwayNs, kCount };
extern const ucs::CounterTable<PoliteCounter> kPoliteCounterInfos;

class Politeness {
  public:
    /// The state of those whom the worker waits for, as far as it is known.
    enum class Peers : std::uint8_t {
        kNone,     // there is nobody
        kRun,      // each has made calls since the last look
        kStand,    // one has not
        kUnknown,  // they are out of sight: on another host, or on another transport
    };
    enum class Act : std::uint8_t { kSpin, kYield, kNap };

    /// Nanoseconds.
    struct Times {
        std::uint64_t call;         // calls farther apart than this are a program's that computes
        std::uint64_t undisturbed;  // a yield that is shorter than this found nobody
        std::uint64_t turn_min;     // a yield up to this is other ranks' turns
        std::uint64_t turn_max;     // a yield beyond this is a stranger's slice
        std::uint64_t blind;        // peers out of sight are taken to stand from then on
    };
    /// The lengths of this machine and its scheduler.
    static Times times_here();

    static constexpr unsigned kFirstLook = 16;    // empty calls
    static constexpr unsigned kLooksApart = 256;  // at most so many calls between two looks
    /// Occasions on which it naps before it tries a yield again.
    static constexpr unsigned kNapsInARow = 2000;
    static constexpr std::uint64_t kNapNs = 100'000;

    explicit Politeness(const Times& times) : times_(times) {}

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
    Act decide(Peers peers, std::uint64_t now);
    /// A yield has lasted from `begin` to `end`.
    void yielded(std::uint64_t begin, std::uint64_t end);
    void napped(std::uint64_t begin, std::uint64_t end);

    [[nodiscard]] bool naps() const { return naps_left_ > 0; }
    /// Yields that take longer gave the core to a stranger; nanoseconds.
    [[nodiscard]] std::uint64_t turn_limit() const;
    ucs::CounterArray<PoliteCounter> counters;

  private:
    /// Yields in a row that found nobody double the distance of looks, as looks at peers that run
    /// do: up to kLooksApart.
    static constexpr unsigned kUndisturbedMax = 4;

    void come_back(std::uint64_t begin, std::uint64_t end);

    const Times times_;
    unsigned empty_ = 0;           // calls in a row that found nothing
    unsigned due_ = kFirstLook;    // the next look
    unsigned apart_ = kFirstLook;  // calls before the next look, also in the next wait
    unsigned undisturbed_ = 0;     // yields in a row that found nobody
    unsigned naps_left_ = 0;
    unsigned back_at_ = 0;          // empty_ at back_
    std::uint64_t idle_since_ = 0;  // something was found
    std::uint64_t back_ = 0;        // the same, or the end of a yield or nap
    std::uint64_t usual_ = 0;       // average of yields to ranks
};

}  // namespace tagwire::uct
