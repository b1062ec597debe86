// SPDX-License-Identifier: BSD-3-Clause
// Runs one job on either side, once its tests exist. Driver and peer go through the same steps in
// the same order, so every function says for both what happens.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "tools/floor.hpp"
#include "tools/job.hpp"
#include "tools/loops.hpp"
#include "tools/stats.hpp"

namespace tagwire::tools {

/// The slowest and the fastest sender among the ranks of a job.
struct RateRange {
    double min = 0;
    double max = 0;
};

/// The driver's results of one job.
struct Measurement {
    std::uint64_t iterations = 0;
    double seconds = 0;        // that these took
    double floor_seconds = 0;  // that one of the floor's blocks between them took
    std::optional<LatencySummary> latency_ns;
    std::optional<double> floor_ns;
    std::optional<double> above_floor_ns;
    std::optional<double> messages_per_s;
    std::optional<double> bytes_per_s;
    std::optional<RateRange> rank_messages_per_s;
    /// Streams: of each thread, by its own time, and by the processor time that it took.
    std::vector<double> thread_messages_per_s, thread_messages_per_cpu_s;
    std::uint64_t validated = 0;  // messages, both sides
    std::uint64_t errors = 0;

    /// The rate of the slowest thread / that of the fastest; nothing with less than two.
    std::optional<double> fairness() const;
};

/// Called with the share of a measurement that is done.
using OnProgress = std::function<void(double)>;

/// Round trips in one block of a test; a block of the floor comes before each.
inline constexpr std::uint64_t kBlockRoundTrips = 2048;

/// Floor and test alternate in blocks (`floor` may be null).
Measurement run_ping_pong(Side side, Test& test, const Job& job, CachelineFloor* floor,
                          const OnProgress& on_progress);

/// The driver's operations one by one; the peer returns at once.
Measurement run_fetch(Side side, Test& test, const Job& job, const OnProgress& on_progress);

/// One thread for each test, all started together. `cpus`: of each thread; empty: all stay where
/// the process is.
Measurement run_streams(const std::vector<std::unique_ptr<Test>>& tests, const Job& job,
                        const std::vector<int>& cpus);

struct VariantMeasurement {
    const CachelineFloor::Variant* variant;
    Measurement measurement;
};

/// All variants in turn, lowest median first (on the driver).
std::vector<VariantMeasurement> run_cacheline(Side side, CachelineFloor& floor, const Job& job,
                                              const OnProgress& on_progress);

/// Driver: copies out of memory that the peer has written.
Measurement run_memcpy(const SharedMapping& source, const Job& job);

/// Driver: loads that depend on each other, at random among `depth` + 1 lines of its own memory.
/// Matching among `depth` receives takes some of them.
Measurement run_chase(const Job& job);

}  // namespace tagwire::tools
