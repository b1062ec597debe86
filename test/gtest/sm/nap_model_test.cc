// SPDX-License-Identifier: BSD-3-Clause
//
// The hand-shake of a nap (uct/worker.cc) in every order of its atomic operations that a machine
// with store buffers allows. The receiver looks, arms, and sleeps; the sender publishes, sees that
// it is to ring, and wakes it. Naps have no bound here unless a case gives them one: a message that
// does not end the nap is a deadlock, which the scheduler finds.

#include "sm/sleeper_model.hpp"

namespace tagwire::test {
namespace {

constexpr std::int64_t kMessagesEach = 3;  // by each ring

/** When a sender looks whether it is to ring. All but the first are flaws. */
enum class RingOrder { kBehindPublish, kBeforePublish };

template <RingOrder kOrder, class Fences>
void send(Sleeper<Fences>& to, std::uint64_t value, DetRun& run) {
    if (kOrder == RingOrder::kBehindPublish)
        return to.send(0, value, run);
    const bool must_ring = to.rings[0].sender.must_ring();
    to.rings[0].send(value, run);
    if (must_ring)
        to.ring_bell(0);
}

/** Armed, and its bound ends it before a message comes, or while one does: the rings stay cold. */
template <class Fences>
void nap_until_bound(Sleeper<Fences>& sleeper, DetRun& run) {
    if (!sleeper.arm())
        return;
    for (std::uint64_t left = run.random(3); left > 0 && !sleeper.event.try_wait(); --left)
        DetFences::pause();
}

// ---- Two who wait for each other

/** Each answers the other by `send_to` and waits meanwhile by `wait`. */
template <class Fences, ArmOrder kArm, class Wait, class SendTo>
void two_who_wait_for_each_other(DetRun& run, const Wait& wait, const SendTo& send_to) {
    Sleeper<Fences> sides[2] = {Sleeper<Fences>(kArm), Sleeper<Fences>(kArm)};
    for (std::uint32_t side = 0; side < 2; ++side) {
        run.spawn([&, side] {
            Sleeper<Fences>& self = sides[side];
            for (std::int64_t i = 0; i < kMessagesEach; ++i) {
                const std::int64_t wanted = side == 0 ? i : i + 1;
                while (self.received[0] < wanted)
                    if (!self.poll(run))
                        wait(self);
                send_to(sides[1 - side], static_cast<std::uint64_t>(i));
            }
        });
    }
    run.run();
}

/** By naps, as two ranks do beside strangers. */
template <class Fences, ArmOrder kArm = ArmOrder::kLooksBehind,
          RingOrder kRing = RingOrder::kBehindPublish>
void two_who_nap_for_each_other(DetRun& run) {
    two_who_wait_for_each_other<Fences, kArm>(
        run, [](Sleeper<Fences>& self) { self.arm_and_wait(); },
        [&run](Sleeper<Fences>& other, std::uint64_t i) { send<kRing>(other, i, run); });
}

TEST(NapModel, a_message_ends_the_nap_of_who_waits_for_it) {
    EXPECT_TRUE(
        always_passes({.schedules = schedules(30'000)}, two_who_nap_for_each_other<SleeperPays>));
    EXPECT_TRUE(
        always_passes({.schedules = schedules(30'000)}, two_who_nap_for_each_other<BothPay>));
}

TEST(NapModel, a_last_look_before_it_arms_would_lose_the_message) {
    constexpr ArmOrder kFlaw = ArmOrder::kLooksBefore;
    EXPECT_TRUE(fails_with("deadlock", two_who_nap_for_each_other<SleeperPays, kFlaw>));
    EXPECT_TRUE(fails_with("deadlock", two_who_nap_for_each_other<BothPay, kFlaw>));
}

TEST(NapModel, arming_without_a_last_look_would_lose_the_message) {
    EXPECT_TRUE(
        fails_with("deadlock", two_who_nap_for_each_other<BothPay, ArmOrder::kDoesNotLook>));
}

TEST(NapModel, a_sender_that_looks_before_it_publishes_would_not_wake) {
    EXPECT_TRUE(fails_with(
        "deadlock",
        two_who_nap_for_each_other<BothPay, ArmOrder::kLooksBehind, RingOrder::kBeforePublish>));
}

TEST(NapModel, without_barriers_the_explorer_finds_a_nap_that_nobody_ends) {
    EXPECT_TRUE(fails_with("deadlock", two_who_nap_for_each_other<NobodyPays>));
    EXPECT_TRUE(fails_with("deadlock", two_who_nap_for_each_other<SleeperPaysForItselfOnly>));
}

/** As two_who_nap_for_each_other(), on the word of the bell. */
template <class Fences, ArmOrder kArm>
void two_who_nap_on_a_word(DetRun& run) {
    two_who_wait_for_each_other<Fences, kArm>(
        run, [](Sleeper<Fences>& self) { self.nap(); },
        [&run](Sleeper<Fences>& other, std::uint64_t i) { other.send(0, i, run); });
}

TEST(NapModel, a_message_ends_a_nap_on_the_word_of_the_bell) {
    EXPECT_TRUE(always_passes({.schedules = schedules(30'000)},
                              two_who_nap_on_a_word<SleeperPays, ArmOrder::kLooksBehind>));
    EXPECT_TRUE(fails_with("deadlock", two_who_nap_on_a_word<SleeperPays, ArmOrder::kDoesNotLook>));
}

// ---- Naps that their bound ends

/** The last naps have no bound, so a wake-up that an earlier one took away is missed. */
template <class Fences>
void naps_with_and_without_a_bound(DetRun& run) {
    Sleeper<Fences> sleeper;
    for (std::uint32_t ring = 0; ring < 2; ++ring) {
        run.spawn([&, ring] {
            for (std::uint64_t i = 0; i < kMessagesEach; ++i)
                sleeper.send(ring, i, run);
        });
    }
    run.spawn([&] {
        while (sleeper.received[0] < kMessagesEach || sleeper.received[1] < kMessagesEach) {
            if (sleeper.poll(run))
                continue;
            run.random(2) == 0 ? nap_until_bound(sleeper, run) : sleeper.arm_and_wait();
        }
    });
    run.run();
}

TEST(NapModel, a_nap_that_its_bound_ended_loses_nothing) {
    EXPECT_TRUE(always_passes({.schedules = schedules(20'000)},
                              naps_with_and_without_a_bound<SleeperPays>));
    EXPECT_TRUE(
        always_passes({.schedules = schedules(20'000)}, naps_with_and_without_a_bound<BothPay>));
}

TEST(NapModel, who_has_napped_needs_no_event_to_find_a_message) {
    EXPECT_TRUE(always_passes({.schedules = schedules(20'000)}, [](DetRun& run) {
        Sleeper<SleeperPays> sleeper;
        run.spawn([&] {
            for (std::uint64_t i = 0; i < kMessagesEach; ++i)
                sleeper.send(1, i, run);
        });
        run.spawn([&] {
            while (sleeper.received[1] < kMessagesEach) {
                if (sleeper.poll(run))
                    continue;
                nap_until_bound(sleeper, run);
                DetFences::pause();
            }
        });
        run.run();
    }));
}

// ---- A worker with two interfaces

/** Arms one after the other, and sleeps on the events of both. */
template <bool kSleepsOnBoth>
void a_worker_with_two_interfaces(DetRun& run) {
    Sleeper<SleeperPays> ifaces[2];
    for (Sleeper<SleeperPays>& iface : ifaces) {
        run.spawn([&] {
            for (std::uint64_t i = 0; i < kMessagesEach; ++i)
                iface.send(0, i, run);
        });
    }
    run.spawn([&] {
        const auto nap = [&] {
            if (!ifaces[0].arm() || !ifaces[1].arm())
                return;  // what was armed before stays armed
            const auto is_awake = [&] {
                return ifaces[1].event.is_signalled() ||
                       (kSleepsOnBoth && ifaces[0].event.is_signalled());
            };
            det::block_until([&is_awake] { return is_awake(); });
            for (Sleeper<SleeperPays>& iface : ifaces)
                iface.event.try_wait();
        };
        while (ifaces[0].received[0] < kMessagesEach || ifaces[1].received[0] < kMessagesEach) {
            const bool moved = ifaces[0].poll(run);
            if (!ifaces[1].poll(run) && !moved)
                nap();
        }
    });
    run.run();
}

TEST(NapModel, a_message_to_an_interface_that_was_armed_first_ends_the_nap) {
    EXPECT_TRUE(
        always_passes({.schedules = schedules(20'000)}, a_worker_with_two_interfaces<true>));
}

TEST(NapModel, a_nap_on_the_event_of_one_interface_would_miss_the_other) {
    EXPECT_TRUE(fails_with("deadlock", a_worker_with_two_interfaces<false>));
}

}  // namespace
}  // namespace tagwire::test
