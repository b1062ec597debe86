// SPDX-License-Identifier: BSD-3-Clause
// A receiver's knowledge of the time that a message takes, and the ways in which long messages to a
// peer follow each other. In turns: something has come from the other side since the last one, so
// all that the sender does is time that somebody waits for. In a stream the two sides work at the
// same time, and the receiver's part of it counts. Each pattern has a threshold of its own
// (advisor.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace tagwire::proto {

enum class Pattern : std::uint8_t { kTurns, kStream };
inline constexpr std::size_t kPatterns = 2;

constexpr std::size_t index_of(Pattern pattern) {
    return static_cast<std::size_t>(pattern);
}

/// In ticks of one clock that all processors of a host share. Where they do not, or a sender says
/// nonsense, a time is at most twice what it should be.
struct Timing {
    std::uint64_t since = 0;  // when the receiver met the message; 0: it is not timed
    std::uint64_t lead = 0;   // how long its sender had been at it by then
    Pattern pattern = Pattern::kTurns;
    bool is_sample = false;  // others like it are not timed

    /// The timing of a message whose sender began at `begun`, by its own word
    /// (Envelope::add_begun()).
    static Timing of(std::uint64_t begun, std::uint64_t now) {
        if (begun == 0)
            return {.since = now, .pattern = Pattern::kStream};
        return {.since = now, .lead = now - begun};
    }
    [[nodiscard]] bool is_wanted() const { return since != 0; }
    /// A sender copies for no longer than a receiver; what is beyond that, the message has waited
    /// for a receiver that did something else.
    [[nodiscard]] std::uint64_t until(std::uint64_t now) const {
        const std::uint64_t seen = now > since ? now - since : 0;
        return seen + std::min(lead, seen);
    }
};

}  // namespace tagwire::proto
