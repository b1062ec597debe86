// SPDX-License-Identifier: BSD-3-Clause
// Applies measured costs to the cost model. calibration_file.cc reads and writes the file.
#include "protocols/cost/calibration.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include <fmt/format.h>

namespace tagwire::proto {

namespace {

constexpr double kNsMax = 1e12;
/// A kind of copies costs at most this part of what libc's cost, or libc's are used.
constexpr double kCopyCostsLess = 0.95;

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

/// Whether it is of a kind of copies; *kind_p: which.
bool is_copy_sample(std::string_view what, std::string_view side, ucs::CopyKind* kind_p) {
    return what.starts_with(side) && ucs::copy_kind_named(what.substr(side.size()), kind_p);
}

using CopyTimes = std::map<std::size_t, double>;  // nanoseconds of a message of so many bytes

/// Walks down from the longest message as long as `times` are better. `gain_p`: the sum of the
/// fractions of libc's times that are saved.
CopyRule copy_rule_of(ucs::CopyKind kind, const CopyTimes& times, const CopyTimes& libc,
                      double* gain_p) {
    CopyRule rule{.kind = kind};
    for (auto at = libc.rbegin(); at != libc.rend(); ++at) {
        const auto ours = times.find(at->first);
        if (ours == times.end() || ours->second > at->second * kCopyCostsLess)
            break;
        *gain_p += 1 - ours->second / at->second;
        rule.from = static_cast<std::uint32_t>(std::min<std::size_t>(at->first, rule.from));
    }
    return rule;
}

/// Copies that nobody has measured, or only beside libc's, are those of the processor. For copies
/// out no other kind is known to be faster than those; senders find out by themselves.
CopyRule best_copy(const std::array<CopyTimes, ucs::kCopyKinds>& times, bool is_out) {
    const bool knows_vectors = !times[static_cast<std::size_t>(ucs::CopyKind::kVector)].empty();
    CopyRule best = knows_vectors ? CopyRule{} : CopyRule::of_processor();
    if (is_out && best.kind != ucs::CopyKind::kLibc)
        return best;
    double best_gain = 0;
    for (const ucs::CopyKind kind : ucs::copy_kinds_here()) {
        double gain = 0;
        const CopyRule rule =
            copy_rule_of(kind, times[static_cast<std::size_t>(kind)], times.front(), &gain);
        if (gain > best_gain) {
            best = rule;
            best_gain = gain;
        }
    }
    return best;
}

}  // namespace

std::string problem_of(const CostSample& sample) {
    Protocol unused{};
    ucs::CopyKind unused_kind{};
    if (sample.transport.empty() || sample.device.empty())
        return "a sample has no transport or no device";
    if (sample.what != CostSample::kRegistration && !protocol_named(sample.what, &unused) &&
        !is_copy_sample(sample.what, CostSample::kCopyIn, &unused_kind) &&
        !is_copy_sample(sample.what, CostSample::kCopyOut, &unused_kind))
        return fmt::format("'{}' is neither a protocol nor a kind of copies", sample.what);
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
        const auto bytes = static_cast<double>(sample.bytes);
        const Curve::Knot knot{bytes, sample.ns};
        Protocol protocol{};
        if (protocol_named(sample.what, &protocol))
            knots[static_cast<std::size_t>(protocol)].push_back(
                {bytes, std::max(sample.ns, bytes * costs->measured_ns_per_byte_min)});
        else if (sample.what == CostSample::kRegistration)
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

CopyRules Calibration::copies(std::string_view transport, std::string_view device) const {
    static_assert(static_cast<std::size_t>(ucs::CopyKind::kLibc) == 0);
    std::array<CopyTimes, ucs::kCopyKinds> in;
    std::array<CopyTimes, ucs::kCopyKinds> out;
    for (const CostSample& sample : samples_) {
        if (sample.transport != transport || sample.device != device)
            continue;
        ucs::CopyKind kind{};
        if (is_copy_sample(sample.what, CostSample::kCopyIn, &kind))
            in[static_cast<std::size_t>(kind)][sample.bytes] = sample.ns;
        else if (is_copy_sample(sample.what, CostSample::kCopyOut, &kind))
            out[static_cast<std::size_t>(kind)][sample.bytes] = sample.ns;
    }
    return {best_copy(in, false), best_copy(out, true)};
}

bool Calibration::has(std::string_view transport, std::string_view device) const {
    return std::ranges::any_of(samples_, [&](const CostSample& sample) {
        return sample.transport == transport && sample.device == device;
    });
}

}  // namespace tagwire::proto
