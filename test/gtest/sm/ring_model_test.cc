// SPDX-License-Identifier: BSD-3-Clause
//
// The ring, the bell and the counters of a shared copy under the seeded scheduler: every order of
// their atomic operations that a machine with store buffers allows, and a death between any two.

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "common/det_atomic.hpp"
#include "common/det_scheduler.hpp"
#include "uct/sm/ring.hpp"
#include "uct/sm/transfer.hpp"

namespace tagwire::test {
namespace {

using sm::Claim;
using sm::Control;
using sm::Kind;
using testing::AssertionResult;

constexpr std::uint32_t kSlots = sm::kSlotCountMin;

// Switching fibers is dear to the sanitizers: there the scenarios are explored less.
constexpr std::size_t schedules(std::size_t wanted) {
#if defined(__SANITIZE_THREAD__)
    return wanted / 20;
#elif defined(__SANITIZE_ADDRESS__)
    return wanted / 4;
#else
    return wanted;
#endif
}

/** The sleeper runs the barrier for both sides. */
struct SleeperPays {
    void after_publish() const { DetFences::compiler(); }
    void before_recheck() const { DetFences::membarrier(); }
};

/** Each side pays for its own. */
struct BothPay {
    void after_publish() const { DetFences::store_load(); }
    void before_recheck() const { DetFences::store_load(); }
};

struct NobodyPays {
    void after_publish() const {}
    void before_recheck() const {}
};

struct SleeperPaysForItselfOnly {
    void after_publish() const {}
    void before_recheck() const { DetFences::store_load(); }
};

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

AssertionResult always_passes(const DetOptions& options,
                              const std::function<void(DetRun&)>& scenario) {
    const DetResult result = det_explore(options, scenario);
    if (result.ok())
        return testing::AssertionSuccess() << result.schedules << " schedules";
    return testing::AssertionFailure() << result.message;
}

AssertionResult fails_with(const std::string& what, const std::function<void(DetRun&)>& scenario) {
    const DetResult result = det_explore({.schedules = 50'000}, scenario);
    if (result.ok())
        return testing::AssertionFailure() << "no schedule failed";
    if (result.message.find(what) == std::string::npos)
        return testing::AssertionFailure() << result.message;
    return testing::AssertionSuccess() << result.message;
}

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
        for (Claim claim; (claim = sender.refresh(count)) != Claim::kOk;) {
            run.check(claim == Claim::kFull, "the receiver's position is possible");
            DetFences::pause();
        }
    }
    void send(std::uint64_t value, DetRun& run) {
        if (!sender.has_room())
            wait_for_room(1, run);
        write(0, value);
        sender.publish(Control::make(Kind::kAm, static_cast<std::uint8_t>(value), 8));
    }
    /** The number of the next message, or -1. */
    std::int64_t poll(DetRun& run) {
        const Control control = receiver.peek();
        if (control.word == 0)
            return -1;
        run.check(control.kind() == static_cast<std::uint8_t>(Kind::kAm) && control.length() == 8,
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

// ---- Order and reuse ---------------------------------------------------------------------------

class RingModelAt : public testing::TestWithParam<std::uint64_t> {};

TEST_P(RingModelAt, DeliversInOrderWhileSlotsAreReused) {
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

TEST_P(RingModelAt, FragmentsAreSeenAllOrNone) {
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

TEST_P(RingModelAt, AHeldSenderAsksAgainAndLosesNothing) {
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

TEST(RingModel, WithoutAcquireAndReleaseTheExplorerFindsARace) {
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

TEST(RingModel, ATailThatCannotBeIsFoundOut) {
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

TEST(RingModel, ADeadSenderLosesOnlyWhatItDidNotPublish) {
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
            while (!run.died(0) && from_dying < static_cast<std::int64_t>(kMessages)) {
                if (!poll_dying())
                    DetFences::pause();
            }
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

TEST(RingModel, ADeadSenderShowsNoPartOfAFragmentedMessage) {
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

TEST(WakeModel, EitherTheSleeperSeesTheMessageOrTheSenderRings) {
    EXPECT_TRUE(
        always_passes({.schedules = schedules(50'000)}, sleep_against_publish<SleeperPays>));
    EXPECT_TRUE(always_passes({.schedules = schedules(50'000)}, sleep_against_publish<BothPay>));
}

TEST(WakeModel, WithoutFencesTheExplorerFindsALostWakeUp) {
    EXPECT_TRUE(fails_with("nobody rang", sleep_against_publish<NobodyPays>));
}

TEST(WakeModel, AFenceOfTheSleeperAloneIsNotEnough) {
    EXPECT_TRUE(fails_with("nobody rang", sleep_against_publish<SleeperPaysForItselfOnly>));
}

TEST(WakeModel, NobodyRingsForAReceiverThatPolls) {
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

/** An interface with two rings as SmIface runs them: hot rings are polled, idle ones turn cold, and
 * when all is quiet it arms the bell and waits for its event fd. */
template <class Fences>
struct Sleeper {
    static constexpr std::size_t kRings = 2;
    Model<Fences> rings[kRings] = {Model<Fences>(0), Model<Fences>(std::uint64_t{0} - 2)};
    sm::Bell<DetAtomic> bell{};
    DetEvent event;
    bool is_hot[kRings] = {true, true};
    std::int64_t received[kRings] = {0, 0};

    void send(std::uint32_t ring, std::uint64_t value, DetRun& run) {
        rings[ring].send(value, run);
        // Bits in different words, so that both levels of the bell are used.
        if (rings[ring].sender.must_ring() && sm::ring_bell(bell, ring * 64 + ring))
            event.signal();
    }

    bool poll(DetRun& run) {
        sm::collect_bell(bell, [&](std::uint32_t bit) {
            const std::uint32_t ring = bit / 64;
            run.check(ring < kRings && bit == ring * 64 + ring, "the bit is one that was rung");
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
        return moved;
    }

    void cool() {
        for (std::size_t i = 0; i < kRings; ++i) {
            if (is_hot[i] && rings[i].receiver.try_sleep())
                is_hot[i] = false;
        }
    }

    void arm_and_wait() {
        for (std::size_t i = 0; i < kRings; ++i) {
            if (is_hot[i])
                rings[i].receiver.announce_sleep();
        }
        bool ready = !sm::arm_bell(bell);
        Fences{}.before_recheck();
        for (std::size_t i = 0; i < kRings; ++i)
            ready |= is_hot[i] && rings[i].receiver.peek().word != 0;
        if (ready) {
            for (std::size_t i = 0; i < kRings; ++i) {
                if (is_hot[i])
                    rings[i].receiver.wake();
            }
            bell.armed.store(0, std::memory_order_relaxed);
            return;
        }
        is_hot[0] = is_hot[1] = false;
        event.wait();
    }
};

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
            run.random(2) == 0 ? sleeper.cool() : sleeper.arm_and_wait();
        }
    });
    run.run();
}

TEST(WakeModel, ASleepingReceiverIsWokenForEveryMessage) {
    EXPECT_TRUE(
        always_passes({.schedules = schedules(20'000)}, two_senders_to_a_sleeper<SleeperPays>));
    EXPECT_TRUE(always_passes({.schedules = schedules(20'000)}, two_senders_to_a_sleeper<BothPay>));
}

TEST(WakeModel, WithoutFencesAReceiverSleepsForEver) {
    EXPECT_TRUE(fails_with("deadlock", two_senders_to_a_sleeper<NobodyPays>));
}

// ---- A copy that both sides share --------------------------------------------------------------

TEST(ChunkModel, EachChunkIsClaimedOnceAndCountedOnce) {
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

TEST(ChunkModel, WhoIsLateClaimsAndCountsNothingOfTheNextGeneration) {
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
