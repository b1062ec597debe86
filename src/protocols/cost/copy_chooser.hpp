// SPDX-License-Identifier: BSD-3-Clause
// Chooses, while messages flow, how a sender copies them into shared memory: by plain copies
// (memcpy(3) or vectors), or by stores that leave no cache line behind.
//
// Memory that a near receiver has read is in a cache that both share: writing it is cheap, and what
// is written is found there. A far receiver's caches must give each line up first, which takes
// longer than to write past all caches. The sender sees that in the time of its own copies: plain
// ones take some four times as long as non-temporal ones where the receiver is far, and about as
// long where it is near, where the receiver takes longer for what went past the caches.
//
// One copy in kTimedEvery is timed, and now and then one of the other kind is made: so the choice
// follows when a hypervisor moves a processor. Pure arithmetic; times are of any unit.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "protocols/cost/copy_rules.hpp"

namespace tagwire::proto {

class CopyChooser {
  public:
    /// Shorter messages are copied as the rule says.
    static constexpr std::size_t kFrom = 2048;
    static constexpr unsigned kTimedEvery = 8;
    /// One copy of so many is of the kind that is not chosen: while plain ones are, and while not.
    static constexpr unsigned kOtherEvery = 512;
    static constexpr unsigned kOtherEveryFar = 32;

    struct Plan {
        ucs::CopyKind kind = ucs::CopyKind::kLibc;
        bool is_timed = false;  // took() wants to know
    };

    /// `rule` holds; with `is_choosing` only below kFrom, and as what is chosen first.
    void begin(const CopyRule& rule, bool is_choosing) {
        *this = {};
        rule_ = rule;
        is_choosing_ = is_choosing;
        is_far_ = rule.kind == ucs::CopyKind::kNonTemporal;
    }

    /// For the copy of the next message, of all its parts, or of one.
    Plan plan(std::size_t message_bytes) {
        if (!is_choosing_ || message_bytes < kFrom)
            return {rule_.kind_for(message_bytes), false};
        return choose(message_bytes);
    }
    /// The kind by which most messages of that length go now.
    [[nodiscard]] ucs::CopyKind kind_for(std::size_t message_bytes) const {
        if (!is_choosing_ || message_bytes < kFrom)
            return rule_.kind_for(message_bytes);
        return is_far_ ? ucs::CopyKind::kNonTemporal : near_for(message_bytes);
    }
    /// A copy of `bytes` bytes, some of a message, that was planned so took `time`.
    void took(ucs::CopyKind kind, std::size_t bytes, double time);

  private:
    static constexpr std::size_t kClasses = 3;  // by length: a short copy costs more for each byte
    static constexpr std::size_t class_of(std::size_t bytes) {
        return bytes < 2 * kFrom ? 0 : bytes < 4 * kFrom ? 1 : 2;
    }

    Plan choose(std::size_t message_bytes);
    /// By the rule, or, where that is for far processors, as this processor copies plainly.
    [[nodiscard]] ucs::CopyKind near_for(std::size_t message_bytes) const {
        return rule_.kind == ucs::CopyKind::kNonTemporal ? ucs::plain_kind_for(message_bytes)
                                                         : rule_.kind_for(message_bytes);
    }

    CopyRule rule_{};
    bool is_choosing_ = false;
    bool is_far_ = false;
    std::uint32_t number_ = 0;  // of messages
    // Times of a byte by non-temporal stores; 0: unknown.
    std::array<float, kClasses> past_caches_{};
    float ratio_ = 1;  // time of a plain copy over that
    float last_ = 1;   // the same of the last copy
};

}  // namespace tagwire::proto
