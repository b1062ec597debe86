// SPDX-License-Identifier: BSD-3-Clause
//
// An interface that sleeps, with its rings and its bell, under the seeded scheduler
// (det_scheduler.hpp).

#pragma once

#include <cstddef>
#include <cstdint>

#include "sm/ring_model.hpp"

namespace tagwire::test {

/** When a receiver that is about to sleep looks for a message for the last time. All but the first
 * are flaws, for tests that show that the model would find them. */
enum class ArmOrder { kLooksBehind, kLooksBefore, kDoesNotLook };

/** An interface with two rings as SmIface runs them: hot rings are polled, idle ones turn cold, by
 * bell or until the next message, and when all is quiet it arms the bell and waits for its event
 * fd, or naps on the bell's word. A ring by bell that was rung is a guest: polled until it is
 * empty. */
template <class Fences>
class Sleeper {
  public:
    static constexpr std::size_t kRings = 2;

    explicit Sleeper(ArmOrder how = ArmOrder::kLooksBehind) : order(how) {}

    const ArmOrder order;
    Model<Fences> rings[kRings] = {Model<Fences>(0), Model<Fences>(std::uint64_t{0} - 2)};
    sm::Bell<DetAtomic> bell{};
    DetEvent event;
    DetEvent word;  // bell.armed, as futex(2) has it
    bool is_hot[kRings] = {true, true};
    bool is_by_bell[kRings] = {false, false};
    std::int64_t received[kRings] = {0, 0};

    void send(std::uint32_t ring, std::uint64_t value, DetRun& run) {
        rings[ring].send(value, run);
        // Bits in different words, so that both levels of the bell are used.
        if (rings[ring].sender.must_ring())
            ring_bell(ring);
    }

    void ring_bell(std::uint32_t ring) {
        const std::uint32_t sleeps = sm::ring_bell(bell, ring * 64 + ring);
        if ((sleeps & sm::kArmedPacket) != 0)
            event.signal();
        if ((sleeps & sm::kArmedNap) != 0)
            word.signal();
    }

    bool poll(DetRun& run) {
        sm::collect_bell(bell, [&](std::uint32_t bit) {
            const std::uint32_t ring = bit / 64;
            run.check(ring < kRings && bit == ring * 64 + ring, "the bit is one that was rung");
            if (!is_by_bell[ring])
                rings[ring].receiver.wake();
            is_hot[ring] = true;
        });
        bool moved = false;
        for (std::size_t i = 0; i < kRings; ++i) {
            if (!is_hot[i])
                continue;
            const std::int64_t got = rings[i].poll(run);
            run.check(got == -1 || got == received[i], "messages come in order");
            received[i] += got != -1 ? 1 : 0;
            moved |= got != -1;
        }
        let_guests_go(run);
        return moved;
    }

    void let_guests_go(DetRun& run) {
        for (std::size_t i = 0; i < kRings; ++i) {
            if (!is_hot[i] || !is_by_bell[i])
                continue;
            if (run.random(4) == 0 || rings[i].receiver.peek().word != 0) {
                rings[i].receiver.wake();
                is_by_bell[i] = false;
            } else {
                is_hot[i] = false;
            }
        }
    }

    void cool(DetRun& run) {
        for (std::size_t i = 0; i < kRings; ++i) {
            const auto how = run.random(2) == 0 ? sm::kUntilNext : sm::kByBell;
            if (!is_hot[i] || !rings[i].receiver.try_sleep(how))
                continue;
            is_hot[i] = false;
            is_by_bell[i] = how == sm::kByBell;
        }
    }

    /// Asks for the event, as SmIface::event_arm() does. False: a message is there.
    bool arm() {
        if (order == ArmOrder::kLooksBefore && !has_nothing())
            return false;
        for (std::size_t i = 0; i < kRings; ++i)
            if (is_hot[i])
                rings[i].receiver.announce_sleep();
        bool ready = !sm::arm_bell(bell, sm::kArmedPacket);
        if (order == ArmOrder::kLooksBehind) {
            Fences{}.before_recheck();
            ready |= !has_nothing();
        }
        if (ready) {
            for (std::size_t i = 0; i < kRings; ++i)
                if (is_hot[i])
                    rings[i].receiver.wake();
            sm::disarm_bell(bell, sm::kArmedPacket);
            return false;
        }
        is_hot[0] = is_hot[1] = false;
        return true;
    }

    void arm_and_wait() {
        if (arm())
            event.wait();
    }

    /// As HotRings::try_nap(): rings are watched by the bell first, and its read-modify-writes are
    /// the only barriers of the nap. It has no bound.
    void nap() {
        for (std::size_t i = 0; i < kRings; ++i) {
            if (is_hot[i] && !rings[i].receiver.try_sleep(sm::kByBell))
                return;
            is_by_bell[i] |= is_hot[i];
            is_hot[i] = false;
        }
        if (sm::arm_bell(bell, sm::kArmedNap) || order == ArmOrder::kDoesNotLook)
            word.wait();
        sm::disarm_bell(bell, sm::kArmedNap);
    }

  private:
    bool has_nothing() {
        for (std::size_t i = 0; i < kRings; ++i)
            if (is_hot[i] && rings[i].receiver.peek().word != 0)
                return false;
        return true;
    }
};

}  // namespace tagwire::test
