// SPDX-License-Identifier: BSD-3-Clause
// A log line that strangers or peers can cause as often as they like: it is written when the number
// of its occasions has doubled, so that N of them write about log2(N) lines. Not thread-safe.
#pragma once

#include <bit>
#include <cstdint>

namespace tagwire::ucs {

class Rarely {
  public:
    /// One more occasion. True: it is to be logged, with count().
    bool happens() { return std::has_single_bit(++count_); }
    [[nodiscard]] std::uint64_t count() const { return count_; }

  private:
    std::uint64_t count_ = 0;
};

}  // namespace tagwire::ucs
