// SPDX-License-Identifier: BSD-3-Clause
// A sequence of numbers that depends on its seed alone, on every machine (xorshift64).
#pragma once

#include <cstdint>

namespace tagwire::tools {

class Random {
  public:
    explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15U | 1U) {}

    std::uint64_t next() {
        state_ ^= state_ << 13;
        state_ ^= state_ >> 7;
        state_ ^= state_ << 17;
        return state_;
    }
    /// 0 to n - 1.
    std::uint64_t below(std::uint64_t n) { return (next() >> 16) % n; }
    bool one_in(std::uint64_t n) { return below(n) == 0; }

  private:
    std::uint64_t state_;
};

}  // namespace tagwire::tools
