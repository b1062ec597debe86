// SPDX-License-Identifier: BSD-3-Clause
// Decides whether a message goes eager or by rendezvous. Pure, any thread; inline, because each
// message asks: what a caller knows of the state at compile time costs nothing.
//
//     rule      the first that applies                            way
//     kBegun    it has begun                                      as it has begun
//     kUrgent   it passes others                                  eager
//     kPaused   the peer has paused eager data                    rendezvous
//     kOrder    longer than the peer keeps before its place       rendezvous
//     kTrial    it is one of those that are tried the other way   not by its length
//     kLength   none of these                                     by its length
//
// An empty message is eager: no threshold is 0, and kPaused and kOrder do not apply to it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace tagwire::proto {

/// Messages that the receiver has asked for, to compare both ways (advisor.hpp).
enum class Trial : std::uint8_t {
    kNone,
    kEager,  // it wants to see eager ones
    kRndv,
    kSame,  // asked before, this message was one of them
};

struct MessageState {
    // Thresholds of its buffer, at least 1.
    std::size_t rndv_from;             // by the costs, or by an option
    std::size_t advised_from = 0;      // by the receiver's times; 0: it has not said
    std::size_t eager_end = SIZE_MAX;  // the peer keeps no eager message of this length
    // Beside its length.
    std::size_t in_order_max = SIZE_MAX;  // the peer keeps no longer one before its place
    std::size_t trial_max = 0;            // no longer one is tried
    Trial trial = Trial::kNone;
    bool has_begun = false;
    bool is_rndv = false;  // as it has begun
    bool is_urgent = false;
    bool is_eager_paused = false;
};

enum class WayRule : std::uint8_t { kBegun, kUrgent, kPaused, kOrder, kTrial, kLength };

struct Way {
    bool is_rndv;
    WayRule rule;

    bool operator==(const Way&) const = default;
};

/// Length from which messages go by rendezvous, where nothing else says how.
constexpr std::size_t threshold(const MessageState& state) {
    const std::size_t chosen = state.advised_from != 0 ? state.advised_from : state.rndv_from;
    return std::min(chosen, state.eager_end);
}

constexpr Way choose(std::size_t length, const MessageState& state) {
    if (state.has_begun)
        return {state.is_rndv, WayRule::kBegun};
    if (state.is_urgent)
        return {false, WayRule::kUrgent};
    if (state.is_eager_paused && length > 0)
        return {true, WayRule::kPaused};
    if (length > state.in_order_max)
        return {true, WayRule::kOrder};
    const bool is_rndv = length >= threshold(state);
    const bool is_tried = length <= state.trial_max && length < state.eager_end &&
                          state.trial == (is_rndv ? Trial::kEager : Trial::kRndv);
    if (state.trial == Trial::kSame || is_tried)
        return {!is_rndv, WayRule::kTrial};
    return {is_rndv, WayRule::kLength};
}

}  // namespace tagwire::proto
