// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/cost/stripe_plan.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

namespace tagwire::proto {

namespace {

/// Sum of the weights of a message's rails, nearly: none is 0.
constexpr std::uint32_t kWhole = 1U << 16;
/// Rounds in which the parts are shifted to where they take less time.
constexpr int kRounds = 12;
/// Fraction of the cost that striping must save: it takes queues and requests of more devices.
constexpr double kMargin = 0.05;

bool is_control(std::string_view term) {
    return term == "request" || term == "answer" || term == "end";
}

std::uint64_t aligned(std::uint64_t bytes) {
    return bytes - bytes % kStripeAlign;
}

std::uint64_t aligned_up(std::uint64_t bytes) {
    return aligned(bytes + kStripeAlign - 1);
}

}  // namespace

StripePlan::StripePlan(std::span<const StripeMember> members, Protocol direct, StripeRules rules)
    : members_(members.begin(), members.end()), direct_(direct), rules_(rules) {
    if (members_.size() < 2)
        return;
    for (std::size_t power = 0; power < kPowers; ++power)
        weights_[power] = balanced(static_cast<double>(std::size_t{1} << power));
    from_ = crossover();
}

/// Time that the member takes for the bytes alone.
double StripePlan::direct_ns(std::size_t member, double bytes) const {
    const Cost cost = cost_of(*members_[member].costs, direct_, static_cast<std::size_t>(bytes),
                              BufferKind::kMapped);
    double ns = cost.ns;
    for (std::size_t i = 0; i < cost.count; ++i)
        if (is_control(cost.terms[i].name))
            ns -= cost.terms[i].ns;
    return std::max(ns, 1.0);
}

/// Parts that take equally long: each round gives every rail what it moves in the same time at the
/// rate that it had with its last part.
StripePlan::Weights StripePlan::balanced(double bytes) const {
    std::array<double, kStripeRailsMax> share{};
    const std::size_t rails = members_.size();
    for (std::size_t i = 0; i < rails; ++i)
        share[i] = 1.0 / static_cast<double>(rails);
    for (int round = 0; round < kRounds; ++round) {
        double all = 0;
        for (std::size_t i = 0; i < rails; ++i) {
            const double part = std::max(share[i] * bytes, 1.0);
            share[i] = part / direct_ns(i, part);
            all += share[i];
        }
        for (std::size_t i = 0; i < rails; ++i)
            share[i] /= all;
    }
    Weights weights{};
    for (std::size_t i = 0; i < rails; ++i)
        weights[i] = 1 + static_cast<std::uint32_t>(share[i] * kWhole);
    return weights;
}

StripeParts StripePlan::divide(std::uint64_t bytes, unsigned usable) const {
    StripeParts parts{};
    if (bytes >= 2 * kStripeAlign && members_.size() > 1)
        divide_others(bytes, usable, &parts);
    parts[0] = bytes - std::accumulate(parts.begin() + 1, parts.end(), std::uint64_t{0});
    // Others begin at multiples: what is over is the last one's.
    const std::uint64_t over = parts[0] % kStripeAlign;
    const auto last =
        std::find_if(parts.rbegin(), parts.rend() - 1, [](std::uint64_t part) { return part > 0; });
    if (last != parts.rend() - 1) {
        *last += over;
        parts[0] -= over;
    }
    return parts;
}

/// Parts of all but the lane. The weakest goes first when parts would be too short, and leaves its
/// share to the others.
void StripePlan::divide_others(std::uint64_t bytes, unsigned usable, StripeParts* parts_p) const {
    const auto power = std::min<std::size_t>(std::bit_width(bytes) - 1, kPowers - 1);
    Weights weights = weights_[power];
    for (std::size_t i = 1; i < weights.size(); ++i)
        weights[i] = (usable >> i & 1U) != 0 ? weights[i] : 0;
    while (!try_weights(bytes, weights, parts_p)) {
        *parts_p = {};
        std::uint32_t* weakest = nullptr;
        for (std::size_t i = 1; i < weights.size(); ++i)
            if (weights[i] > 0 && (weakest == nullptr || weights[i] <= *weakest))
                weakest = &weights[i];
        if (weakest == nullptr)
            return;
        *weakest = 0;
    }
}

/// False: a part would be too short.
bool StripePlan::try_weights(std::uint64_t bytes, const Weights& weights,
                             StripeParts* parts_p) const {
    const std::uint64_t least = aligned_up(std::max<std::uint64_t>(rules_.part_min, kStripeAlign));
    const auto all = static_cast<double>(std::accumulate(weights.begin(), weights.end(), 1U));
    std::uint64_t others = 0;
    std::uint64_t* longest = nullptr;
    for (std::size_t i = 1; i < weights.size(); ++i) {
        if (weights[i] == 0)
            continue;
        std::uint64_t& part = (*parts_p)[i];
        part = aligned(static_cast<std::uint64_t>(static_cast<double>(bytes) * weights[i] / all));
        if (rules_.is_forced)
            part = std::max(part, least);
        else if (part < least)
            return false;
        others += part;
        longest = longest == nullptr || part > *longest ? &part : longest;
    }
    // The lane has its part, too: the longest gives of its own.
    if (longest == nullptr || others + least <= bytes)
        return longest != nullptr;
    const std::uint64_t given = aligned_up(others + least - bytes);
    if (*longest < given + least)
        return false;
    *longest -= given;
    return true;
}

double StripePlan::together_ns(const StripeParts& parts) const {
    double slowest = 0;
    for (std::size_t i = 0; i < members_.size(); ++i) {
        double of_mover = 0;
        for (std::size_t j = 0; j < members_.size(); ++j)
            if (parts[j] > 0 && members_[j].mover == members_[i].mover)
                of_mover += direct_ns(j, static_cast<double>(parts[j]));
        slowest = std::max(slowest, of_mover);
    }
    return slowest;
}

Cost StripePlan::cost(std::size_t bytes) const {
    Cost cost;
    if (members_.empty())
        return cost;
    const Cost alone = cost_of(*members_[0].costs, direct_, bytes, BufferKind::kMapped);
    for (std::size_t i = 0; i < alone.count; ++i)
        if (is_control(alone.terms[i].name))
            cost.add(alone.terms[i].name, alone.terms[i].ns);
    const StripeParts parts = divide(bytes);
    double more = 0;  // posting and taking the ends of what the others do
    for (std::size_t i = 1; i < members_.size(); ++i)
        if (parts[i] > 0)
            more += 2 * members_[i].costs->overhead_ns;
    cost.add("rails", more);
    cost.add("data", together_ns(parts));
    return cost;
}

/// From where it is the cheaper one, for all sizes above, too.
std::size_t StripePlan::crossover() const {
    const std::size_t least =
        2 * aligned_up(std::max<std::uint64_t>(rules_.part_min, kStripeAlign));
    if (rules_.is_forced)
        return least;
    std::size_t from = kNever;
    for (std::size_t step = kSizesCompared; step-- > 0;) {
        const std::size_t bytes = size_compared(step);
        if (bytes < least)
            break;
        const double alone = cost_of(*members_[0].costs, direct_, bytes, BufferKind::kMapped).ns;
        if (cost(bytes).ns >= alone * (1 - kMargin))
            break;
        from = bytes;
    }
    return from;
}

}  // namespace tagwire::proto
