// SPDX-License-Identifier: BSD-3-Clause
//
// Order and reuse of the ring's slots in every order of their atomic operations that a machine with
// store buffers allows, and a death between any two.

#include "sm/ring_model.hpp"

namespace tagwire::test {
namespace {

using sm::Claim;
using sm::Control;
using sm::Kind;

// ---- Order and reuse ---------------------------------------------------------------------------

class RingModelAt : public testing::TestWithParam<std::uint64_t> {};

TEST_P(RingModelAt, delivers_in_order_while_slots_are_reused) {
    constexpr std::int64_t kMessages = 2 * kSlots + 5;
    EXPECT_TRUE(always_passes({.schedules = schedules(4'000)}, [](DetRun& run) {
        Model<> ring(GetParam());
        run.spawn([&] {
            for (std::int64_t i = 0; i < kMessages; ++i)
                ring.send(static_cast<std::uint64_t>(i), run);
        });
        run.spawn([&] {
            for (std::int64_t next = 0; next < kMessages;) {
                const std::int64_t got = ring.poll(run);
                run.check(got == -1 || got == next, "messages come in order, each once");
                got == -1 ? DetFences::pause() : void(++next);
            }
        });
        if (run.run())
            run.check(ring.poll(run) == -1, "nothing is left");
    }));
}

TEST_P(RingModelAt, fragments_are_seen_all_or_none) {
    constexpr std::uint64_t kFragments = 5;
    constexpr std::uint64_t kMessages = 5;
    EXPECT_TRUE(always_passes({.schedules = schedules(4'000)}, [](DetRun& run) {
        Model<> ring(GetParam());
        run.spawn([&] {
            for (std::uint64_t m = 0; m < kMessages; ++m) {
                ring.wait_for_room(kFragments, run);
                for (std::uint64_t f = 0; f < kFragments; ++f)
                    ring.write(f, m * kFragments + f);
                for (std::uint64_t f = kFragments; f-- > 0;) {
                    const auto id = static_cast<std::uint8_t>(m * kFragments + f);
                    ring.sender.publish_ahead(f, Control::make(Kind::kAm, id, 8));
                }
                ring.sender.advance(kFragments);
            }
        });
        run.spawn([&] {
            for (std::uint64_t m = 0; m < kMessages; ++m) {
                std::int64_t got = -1;
                while ((got = ring.poll(run)) == -1)
                    DetFences::pause();
                for (std::uint64_t f = 0; f < kFragments; ++f) {
                    run.check(got == static_cast<std::int64_t>(m * kFragments + f),
                              "with the first fragment come all others");
                    if (f + 1 < kFragments)
                        got = ring.poll(run);
                }
            }
        });
        run.run();
    }));
}

TEST_P(RingModelAt, a_held_sender_asks_again_and_loses_nothing) {
    EXPECT_TRUE(always_passes({.schedules = schedules(500)}, [](DetRun& run) {
        Model<> ring(GetParam());
        run.spawn([&] {
            for (std::uint64_t i = 0; i < kSlots + 3; ++i) {
                if (run.random(3) == 0)
                    ring.sender.hold();
                ring.send(i, run);
            }
        });
        run.spawn([&] {
            for (std::int64_t next = 0; next < kSlots + 3;)
                ring.poll(run) == next ? void(++next) : DetFences::pause();
        });
        run.run();
    }));
}

// Where positions, sequence numbers or their sums change sign or wrap around.
INSTANTIATE_TEST_SUITE_P(Starts, RingModelAt,
                         testing::Values(0, (std::uint64_t{1} << 31) - 8,
                                         (std::uint64_t{1} << 32) - 8, std::uint64_t{0} - 8));

TEST(RingModel, without_acquire_and_release_the_explorer_finds_a_race) {
    EXPECT_TRUE(fails_with("race", [](DetRun& run) {
        Channel<RelaxedAtomic, BothPay> ring(0);
        run.spawn([&] { ring.send(1, run); });
        run.spawn([&] {
            while (ring.poll(run) == -1)
                DetFences::pause();
        });
        run.run();
    }));
}

TEST(RingModel, a_tail_that_cannot_be_is_found_out) {
    Model<> ring(100);
    ring.consumer.tail.store(101, std::memory_order_relaxed);
    EXPECT_EQ(ring.sender.refresh(), Claim::kCorrupt);
    ring.consumer.tail.store(100 - kSlots - 1, std::memory_order_relaxed);
    EXPECT_EQ(ring.sender.refresh(), Claim::kCorrupt);
    ring.consumer.tail.store(100 - kSlots, std::memory_order_relaxed);
    EXPECT_EQ(ring.sender.refresh(), Claim::kFull);
    ring.consumer.tail.store(100, std::memory_order_relaxed);
    EXPECT_EQ(ring.sender.refresh(kSlots), Claim::kOk);
}

// ---- Death -------------------------------------------------------------------------------------

TEST(RingModel, a_dead_sender_loses_only_what_it_did_not_publish) {
    constexpr std::uint64_t kMessages = kSlots + 4;
    EXPECT_TRUE(always_passes({.schedules = schedules(20'000)}, [](DetRun& run) {
        Model<> dying(std::uint64_t{0} - 3), living(7);
        std::uint64_t returned = 0;  // sends of the dying one that came back
        std::int64_t from_dying = 0;
        const auto poll_dying = [&] {
            const std::int64_t got = dying.poll(run);
            run.check(got == -1 || got == from_dying, "the dead one's messages are in order");
            from_dying += got != -1 ? 1 : 0;
            return got != -1;
        };
        run.spawn_mortal(
            [&] {
                for (; returned < kMessages; ++returned)
                    dying.send(returned, run);
            },
            80);
        run.spawn([&] {
            for (std::uint64_t i = 0; i < kMessages; ++i)
                living.send(i, run);
        });
        run.spawn([&] {
            for (std::int64_t next = 0; next < static_cast<std::int64_t>(kMessages);) {
                const std::int64_t got = living.poll(run);
                run.check(got == -1 || got == next, "the other sender is not disturbed");
                next += got != -1 ? 1 : 0;
                if (!poll_dying() && got == -1)
                    DetFences::pause();
            }
            while (!run.died(0) && from_dying < static_cast<std::int64_t>(kMessages))
                if (!poll_dying())
                    DetFences::pause();
        });
        if (!run.run())
            return;
        while (poll_dying()) {
        }
        const auto got = static_cast<std::uint64_t>(from_dying);
        run.check(got == returned || got == returned + 1, "what was published arrives");
        run.check(run.died(0) || got == kMessages, "who lives delivers all");
    }));
}

TEST(RingModel, a_dead_sender_shows_no_part_of_a_fragmented_message) {
    constexpr std::uint64_t kFragments = 4;
    EXPECT_TRUE(always_passes({.schedules = schedules(20'000)}, [](DetRun& run) {
        Model<> ring(std::uint64_t{0} - 2);
        run.spawn_mortal(
            [&] {
                ring.wait_for_room(kFragments, run);
                for (std::uint64_t f = 0; f < kFragments; ++f)
                    ring.write(f, f);
                for (std::uint64_t f = kFragments; f-- > 0;) {
                    ring.sender.publish_ahead(
                        f, Control::make(Kind::kAm, static_cast<std::uint8_t>(f), 8));
                }
                ring.sender.advance(kFragments);
            },
            16);
        if (!run.run())
            return;
        std::uint64_t seen = 0;
        while (ring.poll(run) != -1)
            ++seen;
        run.check(seen == 0 || seen == kFragments, "all fragments or none");
    }));
}

}  // namespace
}  // namespace tagwire::test
