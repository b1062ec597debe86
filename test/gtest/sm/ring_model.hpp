// SPDX-License-Identifier: BSD-3-Clause
//
// One ring with both its ends under the seeded scheduler (det_scheduler.hpp).

#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "common/det_atomic.hpp"
#include "common/det_scheduler.hpp"
#include "common/model_fences.hpp"
#include "uct/sm/ring.hpp"

namespace tagwire::test {

inline constexpr std::uint32_t kSlots = sm::kSlotCountMin;

/** An atomic that orders nothing: what the ring would be without acquire and release. */
template <class T>
class RelaxedAtomic {
  public:
    T load(std::memory_order) const { return value_.load(std::memory_order_relaxed); }
    void store(T value, std::memory_order) { value_.store(value, std::memory_order_relaxed); }
    T exchange(T value, std::memory_order) {
        return value_.exchange(value, std::memory_order_relaxed);
    }

  private:
    DetAtomic<T> value_;
};

/** One ring and both its ends, with messages that carry a number. */
template <template <class> class Atom, class Fences>
struct Channel {
    std::array<sm::Slot<Atom>, kSlots> slots{};
    sm::Consumer<Atom> consumer{};
    sm::RingSender<Atom, Fences> sender;
    sm::RingReceiver<Atom, Fences> receiver;

    explicit Channel(std::uint64_t start) {
        consumer.tail.store(start, std::memory_order_relaxed);
        sender = {slots.data(), &consumer, kSlots, start, Fences{}};
        receiver = {slots.data(), &consumer, kSlots, start, Fences{}};
    }

    void write(std::uint64_t ahead, std::uint64_t value) {
        std::byte* body = sender.slot(ahead).body;
        det::plain_write(body, sizeof value);
        std::memcpy(body, &value, sizeof value);
    }
    void wait_for_room(std::uint64_t count, DetRun& run) {
        for (sm::Claim claim; (claim = sender.refresh(count)) != sm::Claim::kOk;) {
            run.check(claim == sm::Claim::kFull, "the receiver's position is possible");
            DetFences::pause();
        }
    }
    void send(std::uint64_t value, DetRun& run) {
        if (!sender.has_room())
            wait_for_room(1, run);
        write(0, value);
        sender.publish(sm::Control::make(sm::Kind::kAm, static_cast<std::uint8_t>(value), 8));
    }
    /** The number of the next message, or -1. */
    std::int64_t poll(DetRun& run) {
        const sm::Control control = receiver.peek();
        if (control.word == 0)
            return -1;
        run.check(
            control.kind() == static_cast<std::uint8_t>(sm::Kind::kAm) && control.length() == 8,
            "the control word is the sender's");
        std::uint64_t value = 0;
        det::plain_read(receiver.body(), sizeof value);
        std::memcpy(&value, receiver.body(), sizeof value);
        run.check(control.id() == static_cast<std::uint8_t>(value),
                  "the body belongs to the control word");
        receiver.advance();
        return static_cast<std::int64_t>(value);
    }
};

template <class Fences = BothPay>
using Model = Channel<DetAtomic, Fences>;

}  // namespace tagwire::test
