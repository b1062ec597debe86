// SPDX-License-Identifier: BSD-3-Clause
// Tells whether the thread's calls of progress are far apart: more processes than processors, each
// of which yields when it has nothing to do, or a program that computes in between. Then a polled
// ring costs cold cache lines for each call, and a bell costs little beside the pause.
//
// Threads: the owner of the interface. Invariants
//  (1) It changes after several looks in a row that agree, so one pause changes nothing. It turns
//      crowded slowly, because that costs a barrier on all processors, and back at once.
#pragma once

#include <cstdint>

namespace tagwire::sm {

class Crowding {
  public:
    /// Above this, on the average of the calls between two looks, calls are far apart. A yield to
    /// nobody takes 0.2 to 1.3 us, a turn of other processes some microseconds each.
    static constexpr std::uint64_t kCallNs = 2000;
    static constexpr unsigned kLooksToCrowded = 4;
    static constexpr unsigned kLooksBack = 2;

    explicit Crowding(std::uint64_t call_ticks = 0) : call_ticks_(call_ticks) {}

    /// There were `calls` calls since the last look. True: is_crowded() has changed.
    bool look(std::uint64_t now, std::uint64_t calls) {
        const bool is_slow = now - last_ > calls * call_ticks_;
        last_ = now;
        if (is_slow == is_crowded_) {
            differing_ = 0;
            return false;
        }
        if (++differing_ < (is_slow ? kLooksToCrowded : kLooksBack))
            return false;
        differing_ = 0;
        is_crowded_ = is_slow;
        return true;
    }
    [[nodiscard]] bool is_crowded() const { return is_crowded_; }

  private:
    std::uint64_t call_ticks_;
    std::uint64_t last_ = 0;  // ticks
    unsigned differing_ = 0;  // looks in a row
    bool is_crowded_ = false;
};

}  // namespace tagwire::sm
