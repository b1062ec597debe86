// SPDX-License-Identifier: BSD-3-Clause
// Applies measured costs to the cost model. calibration_file.cc reads and writes the file.
#include "protocols/cost/calibration.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace tagwire::proto {

namespace {

constexpr double kNsMax = 1e12;

/// Nanoseconds for each further byte among the longest messages.
double slope_of(const Curve& curve) {
    const auto knots = curve.knots();
    if (knots.size() < 2)
        return 0;
    const Curve::Knot& from = knots[knots.size() - 2];
    const Curve::Knot& to = knots.back();
    return to.bytes > from.bytes ? (to.ns - from.ns) / (to.bytes - from.bytes) : 0;
}

const Curve& curve_of(const RailCosts& costs, Protocol protocol) {
    return costs.measured[static_cast<std::size_t>(protocol)];
}

/// Derives parameters that all protocols share from the measured protocols.
void infer(RailCosts* costs) {
    const Curve& shortest = curve_of(*costs, Protocol::kShort);
    const Curve& first = shortest.empty() ? curve_of(*costs, Protocol::kBcopy) : shortest;
    if (!first.empty()) {
        const double message_ns = first.knots().front().ns;
        costs->overhead_ns = std::min(costs->overhead_ns, message_ns / 2);
        costs->latency_ns = message_ns - 2 * costs->overhead_ns;
    }
    const double parts = slope_of(curve_of(*costs, Protocol::kParts));
    if (parts > 0)
        (costs->wire_ns_per_byte > 0 ? costs->wire_ns_per_byte : costs->copy_ns_per_byte) = parts;
    const double read = slope_of(curve_of(*costs, Protocol::kRndvGet));
    if (read > 0)
        costs->direct_ns_per_byte = read;
}

}  // namespace

std::string problem_of(const CostSample& sample) {
    Protocol unused{};
    if (sample.transport.empty() || sample.device.empty())
        return "a sample has no transport or no device";
    if (sample.what != CostSample::kRegistration && !protocol_named(sample.what, &unused))
        return fmt::format("'{}' is not a protocol", sample.what);
    if (!std::isfinite(sample.ns) || sample.ns < 0 || sample.ns > kNsMax)
        return fmt::format("{} of {} bytes cannot take {} ns", sample.what, sample.bytes,
                           sample.ns);
    return {};
}

void Calibration::apply(std::string_view transport, std::string_view device,
                        RailCosts* costs) const {
    std::array<std::vector<Curve::Knot>, kProtocols> knots;
    std::vector<Curve::Knot> registration;
    for (const CostSample& sample : samples_) {
        if (sample.transport != transport || sample.device != device)
            continue;
        const Curve::Knot knot{static_cast<double>(sample.bytes), sample.ns};
        Protocol protocol{};
        if (protocol_named(sample.what, &protocol))
            knots[static_cast<std::size_t>(protocol)].push_back(knot);
        else
            registration.push_back(knot);
    }
    for (std::size_t i = 0; i < kProtocols; ++i)
        costs->measured[i] = Curve(std::move(knots[i]));
    const Curve registering(std::move(registration));
    if (!registering.empty()) {
        costs->registration_ns_per_byte = slope_of(registering);
        costs->registration_ns = registering.at(0);
    }
    infer(costs);
}

bool Calibration::has(std::string_view transport, std::string_view device) const {
    return std::ranges::any_of(samples_, [&](const CostSample& sample) {
        return sample.transport == transport && sample.device == device;
    });
}

}  // namespace tagwire::proto
