// SPDX-License-Identifier: BSD-3-Clause
// Time-outs of blocking calls, in milliseconds; a negative one never expires.
#pragma once

#include <chrono>

namespace tagwire::fi {

class Deadline {
  public:
    explicit Deadline(int timeout_ms)
        : is_endless_(timeout_ms < 0), end_(Clock::now() + std::chrono::milliseconds(timeout_ms)) {}

    bool is_over() const { return !is_endless_ && Clock::now() >= end_; }
    /// As poll(2) takes it: rounded up, -1 without end.
    int left_ms() const {
        using std::chrono::milliseconds;
        if (is_endless_)
            return -1;
        const auto left = std::chrono::ceil<milliseconds>(end_ - Clock::now()).count();
        return left > 0 ? static_cast<int>(left) : 0;
    }

  private:
    using Clock = std::chrono::steady_clock;

    bool is_endless_;
    Clock::time_point end_;
};

}  // namespace tagwire::fi
