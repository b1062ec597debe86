// SPDX-License-Identifier: BSD-3-Clause
// The time that a device was watched: limits of how long it may take count in it. It is the clock's
// time, but of what passes between two looks at most kGapNs. A program that was stopped, or that
// gets no processor, has not waited for the device: it has only not looked.
//
// Used by: the waits of interfaces over verbs. Threads: owner of the interface.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tagwire::ib {

class WatchedTime {
  public:
    static constexpr std::uint64_t kGapNs = 10'000'000;

    /// The caller handles what has come by then. `now` is the clock's, which never goes back.
    /// Returns ns().
    std::uint64_t look(std::uint64_t now) {
        watched_ += std::min(now - last_look_, kGapNs);
        last_look_ = now;
        return watched_;
    }
    [[nodiscard]] std::uint64_t ns() const { return watched_; }

  private:
    std::uint64_t last_look_ = 0;
    std::uint64_t watched_ = 0;
};

}  // namespace tagwire::ib
