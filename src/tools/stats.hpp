// SPDX-License-Identifier: BSD-3-Clause
// Order statistics of one measurement, and the timer that feeds them.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

namespace tagwire::tools {

struct LatencySummary {
    double min, p50, p99, p999, max, mean;
};

/// The value below which `fraction` of the sorted samples lie (nearest rank). `sorted` must not be
/// empty.
double percentile(const std::vector<double>& sorted, double fraction);

/// `samples` must not be empty; it is sorted in place.
LatencySummary summarize(std::vector<double>* samples);

/// Middle value, or the mean of the two middle ones. `samples` must not be empty.
double median(std::vector<double> samples);

inline std::uint64_t now_ns() {
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                          std::chrono::steady_clock::now().time_since_epoch())
                                          .count());
}

/// Times batches of operations, since one operation is shorter than a few ticks of many machines'
/// clocks.
class BatchTimer {
  public:
    static constexpr unsigned kBatch = 32;

    /// `per_operation`: one-way messages in each timed operation, 2 for a round trip.
    explicit BatchTimer(double per_operation) : per_operation_(per_operation) {}

    void start() { last_ = now_ns(); }

    void batch_done(std::uint64_t operations) {
        const std::uint64_t now = now_ns();
        samples_.push_back(static_cast<double>(now - last_) /
                           (static_cast<double>(operations) * per_operation_));
        last_ = now;
    }

    void reserve(std::size_t batches) { samples_.reserve(batches); }
    std::vector<double>& samples() { return samples_; }

  private:
    std::vector<double> samples_;
    double per_operation_;
    std::uint64_t last_ = 0;
};

/// Runs `operation(sequence)` `count` times from sequence `first`; the timer, if any, sees each
/// batch.
template <class Operation>
void in_batches(std::uint64_t first, std::uint64_t count, BatchTimer* timer, Operation operation) {
    if (timer != nullptr)
        timer->start();
    for (std::uint64_t done = 0; done < count;) {
        const std::uint64_t batch = std::min<std::uint64_t>(BatchTimer::kBatch, count - done);
        for (std::uint64_t i = 0; i < batch; ++i)
            operation(first + done + i);
        if (timer != nullptr)
            timer->batch_done(batch);
        done += batch;
    }
}

}  // namespace tagwire::tools
