// SPDX-License-Identifier: BSD-3-Clause
// Divides the data of one rendezvous over several rails, and tells from which size that pays.
//
// Pure arithmetic, any thread. The first rail is the lane, on which requests and replies travel
// whatever carries the data. Several rails together take as long as the slowest of them, unless the
// same resource moves the bytes of both (a port, or this machine's processors for shared memory and
// virtual devices): those wait for each other.
//
// 1. Parts are one behind the other, cover the message, and begin at multiples of kStripeAlign.
// 2. No part of another rail than the lane is shorter than the rules say; the lane has one always.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "protocols/cost/cost.hpp"
#include "ucs/memory/reserve.hpp"

namespace tagwire::proto {

inline constexpr std::size_t kStripeRailsMax = 4;
inline constexpr std::size_t kStripeAlign = 4096;

struct StripeMember {
    const RailCosts* costs;
    std::string_view mover;  // what moves its bytes
};

struct StripeRules {
    std::size_t part_min = 0;
    bool is_forced = false;  // whatever costs less
};

/// Bytes for each rail, the lane first; 0: it has no part.
using StripeParts = std::array<std::uint64_t, kStripeRailsMax>;

class StripePlan {
  public:
    static constexpr std::size_t kNever = SIZE_MAX;
    static constexpr unsigned kAll = (1U << kStripeRailsMax) - 1;

    StripePlan() = default;
    /// At most kStripeRailsMax members, which outlive it. `direct`: how each moves its part.
    StripePlan(std::span<const StripeMember> members, Protocol direct, StripeRules rules);

    std::size_t rails() const { return members_.size(); }
    /// Length of the shortest message that is divided.
    std::size_t from() const { return from_; }
    /// Over the rails whose bits are set in `usable`; the lane's counts as set.
    StripeParts divide(std::uint64_t bytes, unsigned usable = kAll) const;
    /// Cost of a divided message from the call until both sides are done.
    Cost cost(std::size_t bytes) const;

  private:
    using Weights = std::array<std::uint32_t, kStripeRailsMax>;
    static constexpr std::size_t kPowers = 41;

    double direct_ns(std::size_t member, double bytes) const;
    bool try_weights(std::uint64_t bytes, const Weights& weights, StripeParts* parts_p) const;
    void divide_others(std::uint64_t bytes, unsigned usable, StripeParts* parts_p) const;
    double together_ns(const StripeParts& parts) const;
    Weights balanced(double bytes) const;
    std::size_t crossover() const;

    ucs::ReserveVector<StripeMember> members_;
    Protocol direct_ = Protocol::kRndvGet;
    StripeRules rules_;
    std::size_t from_ = kNever;
    std::array<Weights, kPowers> weights_{};  // for messages of 2^i bytes and more
};

}  // namespace tagwire::proto
