// SPDX-License-Identifier: BSD-3-Clause
#include "tools/stats.hpp"

#include <cmath>
#include <numeric>
#include <utility>

namespace tagwire::tools {

double percentile(const std::vector<double>& sorted, double fraction) {
    const double rank = std::ceil(fraction * static_cast<double>(sorted.size()));
    const std::size_t index = rank < 1 ? 0 : static_cast<std::size_t>(rank) - 1;
    return sorted[std::min(index, sorted.size() - 1)];
}

LatencySummary summarize(std::vector<double>* samples) {
    std::sort(samples->begin(), samples->end());
    const double sum = std::accumulate(samples->begin(), samples->end(), 0.0);
    return {samples->front(),
            percentile(*samples, 0.5),
            percentile(*samples, 0.99),
            percentile(*samples, 0.999),
            samples->back(),
            sum / static_cast<double>(samples->size())};
}

double median(std::vector<double> samples) {
    std::sort(samples.begin(), samples.end());
    const std::size_t middle = samples.size() / 2;
    return samples.size() % 2 == 1 ? samples[middle] : (samples[middle - 1] + samples[middle]) / 2;
}

void Samples::clear() {
    std::vector<double> kept = std::move(kept_);
    kept.clear();
    *this = Samples();
    kept_ = std::move(kept);
}

LatencySummary Samples::summary() const {
    std::vector<double> sorted = kept_;
    LatencySummary summary = summarize(&sorted);
    summary.min = min_;
    summary.max = max_;
    summary.mean = sum_ / static_cast<double>(count_);
    return summary;
}

/// Every second one stays, the first among them: the next that is kept follows at the new stride.
void Samples::thin() {
    for (std::size_t i = 0; i < kept_.size() / 2; ++i)
        kept_[i] = kept_[2 * i];
    kept_.resize(kept_.size() / 2);
    stride_ *= 2;
}

}  // namespace tagwire::tools
