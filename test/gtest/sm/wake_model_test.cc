// SPDX-License-Identifier: BSD-3-Clause
//
// The bell, and the counters of a copy that both sides share, in every order of their atomic
// operations that a machine with store buffers allows.

#include "sm/sleeper_model.hpp"
#include "uct/sm/transfer.hpp"

namespace tagwire::test {
namespace {

// ---- Sleep and bell ----------------------------------------------------------------------------

template <class Fences>
void sleep_against_publish(DetRun& run) {
    Model<Fences> ring(std::uint64_t{0} - 1);
    bool slept = false, rang = false;
    run.spawn([&] {
        ring.send(1, run);
        rang = ring.sender.must_ring();
    });
    run.spawn([&] { slept = ring.receiver.try_sleep(); });
    if (run.run())
        run.check(!slept || rang, "the receiver sleeps and nobody rang");
}

TEST(WakeModel, either_the_sleeper_sees_the_message_or_the_sender_rings) {
    EXPECT_TRUE(
        always_passes({.schedules = schedules(50'000)}, sleep_against_publish<SleeperPays>));
    EXPECT_TRUE(always_passes({.schedules = schedules(50'000)}, sleep_against_publish<BothPay>));
}

TEST(WakeModel, without_fences_the_explorer_finds_a_lost_wake_up) {
    EXPECT_TRUE(fails_with("nobody rang", sleep_against_publish<NobodyPays>));
}

TEST(WakeModel, a_fence_of_the_sleeper_alone_is_not_enough) {
    EXPECT_TRUE(fails_with("nobody rang", sleep_against_publish<SleeperPaysForItselfOnly>));
}

TEST(WakeModel, nobody_rings_for_a_receiver_that_polls) {
    EXPECT_TRUE(always_passes({.schedules = schedules(1'000)}, [](DetRun& run) {
        Model<SleeperPays> ring(0);
        run.spawn([&] {
            for (std::uint64_t i = 0; i < 5; ++i) {
                ring.send(i, run);
                run.check(!ring.sender.must_ring(), "rang for a receiver that is awake");
            }
        });
        run.spawn([&] {
            for (int got = 0; got < 5;)
                ring.poll(run) != -1 ? void(++got) : DetFences::pause();
        });
        run.run();
    }));
}

template <class Fences>
void watch_by_bell_against_publish(DetRun& run) {
    Model<Fences> ring(std::uint64_t{0} - 1);
    bool watched = false;
    int rung = 0;
    run.spawn([&] {
        for (std::uint64_t i = 0; i < 2; ++i) {
            ring.send(i, run);
            rung += ring.sender.must_ring() ? 1 : 0;
        }
    });
    run.spawn([&] {
        watched = ring.receiver.try_sleep(sm::kByBell);
        run.check(!watched || ring.consumer.sleep.load() == sm::kByBell, "it stays by bell");
    });
    if (run.run())
        run.check(!watched || rung == 2, "nobody rang for a message of a ring watched by the bell");
}

TEST(WakeModel, every_message_of_a_ring_watched_by_the_bell_rings) {
    EXPECT_TRUE(always_passes({.schedules = schedules(50'000)},
                              watch_by_bell_against_publish<SleeperPays>));
    EXPECT_TRUE(
        always_passes({.schedules = schedules(50'000)}, watch_by_bell_against_publish<BothPay>));
}

TEST(WakeModel, without_fences_the_explorer_finds_a_message_that_no_bell_tells_of) {
    EXPECT_TRUE(fails_with("nobody rang", watch_by_bell_against_publish<NobodyPays>));
}

/** A sender that takes away whatever `sleep` is by now. */
template <class Fences>
bool must_ring_carelessly(Model<Fences>& ring) {
    Fences{}.after_publish();
    return ring.consumer.sleep.load(std::memory_order_relaxed) != sm::kAwake &&
           ring.consumer.sleep.exchange(sm::kAwake, std::memory_order_relaxed) != sm::kAwake;
}

/** The receiver wakes up by itself while the sender is about to ring, and then watches the ring by
 * the bell. */
template <bool kCareless>
void sleep_then_watch(DetRun& run) {
    Model<SleeperPays> ring(0);
    bool watched = false;
    run.spawn([&] {
        ring.send(0, run);
        kCareless ? must_ring_carelessly(ring) : ring.sender.must_ring();
    });
    run.spawn([&] {
        ring.receiver.announce_sleep();
        ring.receiver.barrier();
        ring.receiver.wake();
        ring.poll(run);
        watched = ring.receiver.try_sleep(sm::kByBell);
    });
    if (run.run())
        run.check(!watched || ring.consumer.sleep.load() == sm::kByBell,
                  "the watch was taken away");
}

TEST(WakeModel, a_late_sender_does_not_take_the_watch_away) {
    EXPECT_TRUE(always_passes({.schedules = schedules(50'000)}, sleep_then_watch<false>));
    EXPECT_TRUE(fails_with("the watch was taken away", sleep_then_watch<true>));
}

template <class Fences>
void two_senders_to_a_sleeper(DetRun& run) {
    constexpr std::int64_t kMessages = 3;
    Sleeper<Fences> sleeper;
    for (std::uint32_t ring = 0; ring < 2; ++ring) {
        run.spawn([&, ring] {
            for (std::uint64_t i = 0; i < kMessages; ++i)
                sleeper.send(ring, i, run);
        });
    }
    run.spawn([&] {
        while (sleeper.received[0] < kMessages || sleeper.received[1] < kMessages) {
            if (sleeper.poll(run))
                continue;
            switch (run.random(3)) {
                case 0:
                    sleeper.cool(run);
                    break;
                case 1:
                    sleeper.arm_and_wait();
                    break;
                default:
                    sleeper.nap();
                    break;
            }
        }
    });
    run.run();
}

TEST(WakeModel, a_sleeping_receiver_is_woken_for_every_message) {
    EXPECT_TRUE(
        always_passes({.schedules = schedules(20'000)}, two_senders_to_a_sleeper<SleeperPays>));
    EXPECT_TRUE(always_passes({.schedules = schedules(20'000)}, two_senders_to_a_sleeper<BothPay>));
}

TEST(WakeModel, without_fences_a_receiver_sleeps_for_ever) {
    EXPECT_TRUE(fails_with("deadlock", two_senders_to_a_sleeper<NobodyPays>));
}

// ---- A copy that both sides share --------------------------------------------------------------

TEST(ChunkModel, each_chunk_is_claimed_once_and_counted_once) {
    constexpr std::uint32_t kChunks = 6;
    constexpr std::uint32_t kGeneration = 0xffffffffU;
    EXPECT_TRUE(always_passes({.schedules = schedules(20'000)}, [](DetRun& run) {
        DetAtomic<std::uint64_t> next{sm::rndv_word(kGeneration, 0)};
        DetAtomic<std::uint64_t> done{sm::rndv_word(kGeneration, 0)};
        std::array<DetPlain<int>, kChunks> data{};
        for (int side = 0; side < 2; ++side) {
            run.spawn([&] {
                for (std::uint32_t chunk = 0;
                     sm::claim_chunk(next, kGeneration, kChunks, &chunk);) {
                    run.check(chunk < kChunks, "a chunk that exists");
                    data[chunk] = data[chunk] + 1;  // a second claim would be a data race
                    sm::count_chunk(done, kGeneration);
                }
            });
        }
        run.spawn([&] {
            while (done.load(std::memory_order_acquire) != sm::rndv_word(kGeneration, kChunks))
                DetFences::pause();
            for (const auto& chunk : data)
                run.check(chunk == 1, "what was counted was copied, once");
        });
        run.run();
    }));
}

TEST(ChunkModel, who_is_late_claims_and_counts_nothing_of_the_next_generation) {
    constexpr std::uint32_t kChunks = 4;
    EXPECT_TRUE(always_passes({.schedules = schedules(20'000)}, [](DetRun& run) {
        DetAtomic<std::uint64_t> next{sm::rndv_word(1, 0)}, done{sm::rndv_word(1, 0)};
        std::vector<std::uint32_t> claimed;
        run.spawn([&] {
            for (std::uint32_t chunk = 0; sm::claim_chunk(next, 1, kChunks, &chunk);)
                sm::count_chunk(done, 1);
        });
        run.spawn([&] {
            next.store(sm::rndv_word(2, 0), std::memory_order_relaxed);
            done.store(sm::rndv_word(2, 0), std::memory_order_relaxed);
            for (std::uint32_t chunk = 0; sm::claim_chunk(next, 2, kChunks, &chunk);) {
                claimed.push_back(chunk);
                sm::count_chunk(done, 2);
            }
        });
        if (!run.run())
            return;
        run.check(claimed == std::vector<std::uint32_t>{0, 1, 2, 3},
                  "all chunks are the new one's");
        run.check(done.load() == sm::rndv_word(2, kChunks), "and so is the count");
    }));
}

}  // namespace
}  // namespace tagwire::test
