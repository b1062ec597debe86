// SPDX-License-Identifier: BSD-3-Clause
// The receiving end of a connection: which packet is next, which are early or duplicate, and which
// acknowledgements are owed to the sender. No clock and no wire; messages are opaque.
//
//   delivered | next: awaited | held: arrived too early | beyond next + ahead_max: dropped
//
// Threads: owner of the interface.
// Invariants
//  (1) A packet is delivered once, in the order of the numbers.
//  (2) A held packet lies in [next + 1, next + ahead_max).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "ucs/memory/reserve.hpp"

namespace tagwire::ud {

class Receiver {
  public:
    enum class Verdict : std::uint8_t { kNext, kEarly, kKnown, kBeyond };
    struct Held {
        void* message = nullptr;  // null: nothing is held
        std::uint32_t bytes = 0;
    };

    Receiver(std::uint32_t first_psn, std::uint32_t ahead_max)
        : next_(first_psn), ahead_max_(ahead_max) {}

    [[nodiscard]] Verdict judge(std::uint32_t psn) const {
        const std::uint32_t distance = psn - next_;
        if (distance == 0) [[likely]]
            return Verdict::kNext;
        if (distance >= ahead_max_)
            return static_cast<std::int32_t>(distance) < 0 ? Verdict::kKnown : Verdict::kBeyond;
        return !early_.empty() && slot(psn).message != nullptr ? Verdict::kKnown : Verdict::kEarly;
    }
    /// The awaited packet has come (before it is delivered, so that an answer tells it already).
    void took_next() {
        ++next_;
        ++untold_;
    }
    /// A packet that judge() found early.
    void hold(std::uint32_t psn, Held held) {
        if (early_.empty())
            early_.resize(std::bit_ceil(ahead_max_));
        slot(psn) = held;
        ++held_;
    }
    /// The awaited packet, if it is held; took_next() has been called for it then.
    Held take_held() {
        if (held_ == 0) [[likely]]
            return {};
        const Held held = std::exchange(slot(next_), {});
        if (held.message != nullptr) {
            --held_;
            took_next();
        }
        return held;
    }
    /// Gives all held messages back.
    template <class Drop>
    void drop_all(Drop&& drop) {
        for (Held& held : early_)
            if (held.message != nullptr)
                drop(std::exchange(held, {}).message);
        held_ = 0;
    }

    /// The packet number that an acknowledgement carries.
    [[nodiscard]] std::uint32_t next() const { return next_; }
    [[nodiscard]] bool has_gap() const { return held_ != 0; }
    [[nodiscard]] std::uint32_t held() const { return held_; }
    /// Packets that no acknowledgement has told.
    [[nodiscard]] std::uint32_t untold() const { return untold_; }
    void told() { untold_ = 0; }

  private:
    Held& slot(std::uint32_t psn) { return early_[psn & (early_.size() - 1)]; }
    [[nodiscard]] const Held& slot(std::uint32_t psn) const {
        return early_[psn & (early_.size() - 1)];
    }

    std::uint32_t next_;
    std::uint32_t ahead_max_;
    std::uint32_t untold_ = 0;
    std::uint32_t held_ = 0;
    ucs::ReserveVector<Held> early_;  // a power of two; empty until the first comes too early
};

}  // namespace tagwire::ud
