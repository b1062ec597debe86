// SPDX-License-Identifier: BSD-3-Clause
// The sleeps of an interface whose requests wait for room, which a receiver frees without a word:
// an eighth of the time for which nothing has gone, so a request waits at most so much longer than
// it must, and a receiver that is stopped costs its senders ten wake-ups a second in the end.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tagwire::sm {

class RoomWait {
  public:
    static constexpr std::uint64_t kShortestNs = 1'000'000;
    static constexpr std::uint64_t kLongestNs = 100'000'000;

    /// The next sleep. `sent` is another number when something has gone since the last call.
    std::uint64_t next_sleep_ns(std::uint64_t sent, std::uint64_t now_ns) {
        if (since_ns_ == 0 || sent != sent_) {
            since_ns_ = now_ns;
            sent_ = sent;
        }
        return std::clamp((now_ns - since_ns_) / 8, kShortestNs, kLongestNs);
    }
    /// Nothing waits.
    void end() { since_ns_ = 0; }

  private:
    std::uint64_t since_ns_ = 0;
    std::uint64_t sent_ = 0;
};

}  // namespace tagwire::sm
