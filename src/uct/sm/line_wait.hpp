// SPDX-License-Identifier: BSD-3-Clause
// The time until a sender owns a line that it writes next, smoothed from rare measurements.
//
// It decides whether the lines of the next buffer are fetched before they are needed. Between
// processors that are near each other that costs more than it saves. One per connection, owner
// thread of the sending interface.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tagwire::sm {

class LineWait {
  public:
    /// Messages between two measurements. Odd, so that a regular mix of sizes is met at all phases.
    static constexpr std::uint32_t kInterval = 255;
    /// The first measurements, which meet pages that nobody has used before, come earlier.
    static constexpr std::uint32_t kFirstInterval = 15;
    static constexpr std::uint32_t kFirstCount = 8;

    /// Another message was sent. True: measure now and call add(), or skip().
    [[nodiscard]] bool is_due() { return --left_ == 0; }
    /// There was nothing to measure.
    void skip() { left_ = kInterval; }

    /// A result counts as `ticks_max` at most: the process may have been stopped meanwhile.
    void add(std::uint64_t ticks, std::uint64_t ticks_max) {
        const auto eighths = static_cast<std::int64_t>(std::min(ticks, ticks_max) * 8);
        eighths_ += count_ == 0 ? eighths : (eighths - eighths_) / 4;
        count_ += count_ < kFirstCount ? 1 : 0;
        left_ = count_ < kFirstCount ? kFirstInterval : kInterval;
    }

    /// Smoothed. 0: not measured yet.
    [[nodiscard]] std::uint64_t ticks() const { return static_cast<std::uint64_t>(eighths_) / 8; }

  private:
    std::int64_t eighths_ = 0;  // of a tick
    std::uint32_t count_ = 0;   // of measurements, up to kFirstCount
    std::uint32_t left_ = kFirstInterval;
};

}  // namespace tagwire::sm
