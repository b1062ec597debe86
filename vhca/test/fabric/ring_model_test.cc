// SPDX-License-Identifier: BSD-3-Clause
// The packet ring and its wake-up in every order of their atomic operations that a machine with
// store buffers allows.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "common/det_atomic.hpp"
#include "common/det_scheduler.hpp"
#include "common/model_fences.hpp"
#include "vhca/fabric/ring.hpp"

namespace tagwire::test {
namespace {

using vhca::Peek;

template <class Fences>
struct Model {
    vhca::Consumer<DetAtomic> consumer;
    vhca::Sleep<DetAtomic> sleep;
    std::vector<vhca::Slot<DetAtomic>> slots{vhca::kRingSlots};
    vhca::RingMemory<DetAtomic> memory{&consumer, &sleep, slots.data(), nullptr};
    vhca::RingSender<DetAtomic, Fences> sender{memory};
    vhca::RingReceiver<DetAtomic, Fences> receiver{memory};

    bool send(std::uint64_t value) {
        std::byte* place = sender.claim(sizeof value);
        if (place == nullptr)
            return false;
        det::plain_write(place, sizeof value);
        std::memcpy(place, &value, sizeof value);
        sender.publish(sizeof value);
        return true;
    }
    /** -1: empty. */
    std::int64_t receive(DetRun& run) {
        std::span<const std::byte> packet;
        receiver.begin_visit();
        const Peek seen = receiver.peek(&packet);
        if (seen == Peek::kEmpty)
            return -1;
        run.check(seen == Peek::kPacket && packet.size() == 8, "what came is what was sent");
        std::uint64_t value = 0;
        det::plain_read(packet.data(), sizeof value);
        std::memcpy(&value, packet.data(), sizeof value);
        receiver.advance();
        return static_cast<std::int64_t>(value);
    }
    bool try_sleep() {
        receiver.arm();
        receiver.fences().before_recheck();
        return receiver.is_empty();
    }
};

template <class Fences>
void sleep_against_publish(DetRun& run) {
    Model<Fences> ring;
    bool slept = false, rang = false;
    run.spawn([&] {
        ring.send(1);
        rang = ring.sender.must_ring();
    });
    run.spawn([&] { slept = ring.try_sleep(); });
    if (run.run())
        run.check(!slept || rang, "the receiver sleeps and nobody rang");
}

TEST(VhcaRingModel, either_the_sleeper_sees_the_packet_or_the_sender_rings) {
    EXPECT_TRUE(
        always_passes({.schedules = schedules(50'000)}, sleep_against_publish<SleeperPays>));
    EXPECT_TRUE(always_passes({.schedules = schedules(50'000)}, sleep_against_publish<BothPay>));
}

TEST(VhcaRingModel, without_barriers_the_explorer_finds_a_lost_wake_up) {
    EXPECT_TRUE(fails_with("nobody rang", sleep_against_publish<NobodyPays>));
    EXPECT_TRUE(fails_with("nobody rang", sleep_against_publish<SleeperPaysForItselfOnly>));
}

TEST(VhcaRingModel, packets_come_once_in_order_across_the_end_of_the_ring) {
    EXPECT_TRUE(always_passes({.schedules = schedules(200)}, [](DetRun& run) {
        constexpr std::uint64_t kPackets = 2 * vhca::kRingSlots + 3;
        Model<BothPay> ring;
        run.spawn([&] {
            for (std::uint64_t i = 0; i < kPackets; ++i)
                while (!ring.send(i))
                    DetFences::pause();
        });
        run.spawn([&] {
            for (std::uint64_t i = 0; i < kPackets;) {
                const std::int64_t got = ring.receive(run);
                if (got == -1) {
                    DetFences::pause();
                    continue;
                }
                run.check(got == static_cast<std::int64_t>(i++), "packets come in order");
            }
        });
        run.run();
    }));
}

TEST(VhcaRingModel, nobody_rings_for_a_receiver_that_polls) {
    EXPECT_TRUE(always_passes({.schedules = schedules(1'000)}, [](DetRun& run) {
        Model<SleeperPays> ring;
        run.spawn([&] {
            ring.send(1);
            run.check(!ring.sender.must_ring(), "rang for a receiver that is awake");
        });
        run.spawn([&] {
            while (ring.receive(run) == -1)
                DetFences::pause();
        });
        run.run();
    }));
}

}  // namespace
}  // namespace tagwire::test
