// SPDX-License-Identifier: BSD-3-Clause
// The physical limits that everything is compared with: a cache line going from one CPU to the
// other and back, and the copy of memory that the other CPU wrote. Both processes run it together
// over a shared mapping.
//
// Layout: three areas, each with one 8-byte counter per line that only ever grows, so that a line's
// value says whose turn it is. Area kOneLine: both sides write the same line. kTwoLines: one line
// per direction. kRotating: 64 lines per direction, 128 bytes apart, used in turn.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "tools/channel.hpp"
#include "tools/job.hpp"
#include "tools/shared_mapping.hpp"
#include "tools/stats.hpp"

namespace tagwire::tools {

class CachelineFloor {
  public:
    struct Variant {
        const char* name;
        enum Lines { kOneLine, kTwoLines, kRotating } lines;
        bool pause;
    };
    static constexpr unsigned kVariants = 6;
    static const std::array<Variant, kVariants> kAll;
    /// Round trips of all variants together in one block.
    static constexpr std::uint64_t kBlockRoundTrips = 2016;
    static constexpr std::size_t kMappingBytes = 64 << 10;

    /// `yield`: give the CPU away while waiting, for processes that share one.
    CachelineFloor(Side side, const SharedMapping& mapping, const Channel& channel, bool yield)
        : side_(side),
          base_(static_cast<std::uint8_t*>(mapping.data())),
          channel_(&channel),
          yield_(yield) {}

    /// Both sides call it. The driver gets the one-way time of the lowest variant, by the median of
    /// its batches.
    double block();

    /// One variant; the driver's times go to `timer` (null on the peer).
    void ping_pong(const Variant& variant, std::uint64_t round_trips, BatchTimer* timer);

  private:
    void wait_for(const std::uint64_t* line, std::uint64_t value, bool pause) const;

    Side side_;
    std::uint8_t* base_;
    const Channel* channel_;
    bool yield_;
    std::array<std::uint64_t, 3> done_{};  // round trips in each area
};

}  // namespace tagwire::tools
