// SPDX-License-Identifier: BSD-3-Clause
// Order statistics of one measurement, and the timer that feeds them.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
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

/// The samples of a measurement of any length in bounded memory: all of them count for minimum,
/// maximum and mean, an evenly spaced part (each, every 2nd, every 4th ...) for the percentiles.
class Samples {
  public:
    static constexpr std::size_t kKeptMax = std::size_t{1} << 18;

    void reserve(std::uint64_t count) {
        kept_.reserve(static_cast<std::size_t>(std::min<std::uint64_t>(count, kKeptMax)));
    }

    /// True: half of those kept were dropped, which has taken a while.
    bool add(double sample) {
        min_ = std::min(min_, sample);
        max_ = std::max(max_, sample);
        sum_ += sample;
        if ((count_++ & (stride_ - 1)) != 0)
            return false;
        kept_.push_back(sample);
        if (kept_.size() < kKeptMax) [[likely]]
            return false;
        thin();
        return true;
    }

    /// Keeps the memory.
    void clear();

    std::uint64_t count() const { return count_; }
    const std::vector<double>& kept() const { return kept_; }
    /// There must be a sample.
    LatencySummary summary() const;
    double median() const { return tools::median(kept_); }

  private:
    void thin();

    std::vector<double> kept_;
    std::uint64_t count_ = 0;
    std::uint64_t stride_ = 1;  // a power of two
    double min_ = std::numeric_limits<double>::infinity();
    double max_ = -std::numeric_limits<double>::infinity();
    double sum_ = 0;
};

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

    /// So many nanoseconds of this batch belong to no operation.
    void exclude(std::uint64_t ns) { last_ += ns; }

    void batch_done(std::uint64_t operations) {
        const std::uint64_t now = now_ns();
        const bool took_time = samples_.add(static_cast<double>(now - last_) /
                                            (static_cast<double>(operations) * per_operation_));
        last_ = took_time ? now_ns() : now;
    }

    Samples& samples() { return samples_; }

  private:
    Samples samples_;
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
