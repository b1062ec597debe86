// SPDX-License-Identifier: BSD-3-Clause
// Chooses how many iterations a row of `tagwire perf` has.
#include <algorithm>

#include "tools/perf.hpp"

namespace tagwire::tools {
namespace {

constexpr std::uint64_t kWarmupMax = 10000;
constexpr std::uint64_t kProbeIterationsMax = 128;
constexpr std::uint64_t kProbeBytes = 64 << 20;
constexpr std::uint64_t kProbeFactor = 4;
constexpr int kProbesMax = 6;
// A shorter probe tells too little about the row.
constexpr double kProbeShareMin = 0.1;
constexpr double kShortestIteration = 1e-10;  // seconds

std::uint64_t default_warmup(std::uint64_t iterations) {
    return std::min(iterations / 10, kWarmupMax);
}

std::uint64_t first_probe(std::uint64_t size) {
    return std::clamp<std::uint64_t>(kProbeBytes / std::max<std::uint64_t>(size, 1), 1,
                                     kProbeIterationsMax);
}

}  // namespace

void set_counts(const PerfPlan& plan, Job* job, const std::function<Measurement(const Job&)>& run) {
    if (plan.iterations) {
        job->iterations = *plan.iterations;
    } else {
        Job probe = *job;
        probe.iterations = first_probe(job->size);
        Measurement probed;
        for (int i = 0; i < kProbesMax && probed.seconds < plan.seconds * kProbeShareMin; ++i) {
            probe.iterations *= i == 0 ? 1 : kProbeFactor;
            probe.warmup = default_warmup(probe.iterations);
            probed = run(probe);
        }
        const double each = probed.seconds / static_cast<double>(probe.iterations) +
                            probed.floor_seconds / static_cast<double>(kBlockRoundTrips);
        const double wanted = plan.seconds / std::max(each, kShortestIteration);
        job->iterations = std::max(static_cast<std::uint64_t>(wanted), first_probe(job->size));
    }
    job->warmup = plan.warmup.value_or(default_warmup(job->iterations));
}

}  // namespace tagwire::tools
