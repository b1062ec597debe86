// SPDX-License-Identifier: BSD-3-Clause
// Both ends of a packet ring as threads of one process, so that ThreadSanitizer sees both; and what
// the ends do with nonsense.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "ucs/sys/shm.hpp"
#include "vhca/fabric/fences.hpp"
#include "vhca/fabric/ring.hpp"

namespace tagwire::test {
namespace {

using vhca::HostFences;
using vhca::Peek;
using Sender = vhca::RingSender<std::atomic, HostFences>;
using Receiver = vhca::RingReceiver<std::atomic, HostFences>;

#if defined(__SANITIZE_THREAD__)
constexpr std::uint32_t kPackets = 20'000;
#else
constexpr std::uint32_t kPackets = 300'000;
#endif

struct Segment {
    ucs::UniqueFd fd;
    ucs::Mapping mapping;
    vhca::RingMemory<> ring;

    Segment() {
        EXPECT_EQ(ucs::memfd_create_sealed("ring-test", vhca::kSegmentBytes, &fd), UCS_OK);
        EXPECT_EQ(ucs::map_shared(fd.get(), vhca::kSegmentBytes, &mapping), UCS_OK);
        ring = vhca::ring_in(mapping.base());
    }
};

std::size_t size_of(std::uint32_t number) {
    constexpr std::size_t kSizes[] = {4,   20,  vhca::kSlotBodyBytes, vhca::kSlotBodyBytes + 1,
                                      600, 100, vhca::kPacketBytesMax};
    return kSizes[number % 7];
}

void fill(std::byte* at, std::uint32_t number) {
    std::memset(at, static_cast<int>(number & 0xff), size_of(number));
    std::memcpy(at, &number, sizeof number);
}

bool is_intact(std::span<const std::byte> packet, std::uint32_t number) {
    std::uint32_t found = 0;
    std::memcpy(&found, packet.data(), sizeof found);
    return found == number && packet.size() == size_of(number) &&
           (packet.size() == 4 || packet.back() == static_cast<std::byte>(number & 0xff));
}

TEST(VhcaRingThreads, packets_of_all_sizes_arrive_intact_and_in_order) {
    Segment segment;
    std::thread sending([&] {
        Sender sender(segment.ring);
        for (std::uint32_t i = 0; i < kPackets; ++i) {
            std::byte* place = nullptr;
            while ((place = sender.claim(size_of(i))) == nullptr)
                std::this_thread::yield();
            fill(place, i);
            sender.publish(size_of(i));
        }
    });
    Receiver receiver(segment.ring);
    std::uint32_t intact = 0;
    for (std::uint32_t i = 0; i < kPackets;) {
        std::span<const std::byte> packet;
        receiver.begin_visit();
        const Peek seen = receiver.peek(&packet);
        if (seen == Peek::kEmpty) {
            std::this_thread::yield();
            continue;
        }
        ASSERT_EQ(seen, Peek::kPacket);
        intact += is_intact(packet, i++) ? 1U : 0U;
        receiver.advance();
    }
    sending.join();
    EXPECT_EQ(intact, kPackets);
}

// A lost wake-up would make this wait for ever.
TEST(VhcaRingThreads, a_sleeper_is_woken_for_every_packet) {
    Segment segment;
    const HostFences fences{ucs::register_global_barrier()};
    constexpr std::uint32_t kTimes = 3'000;
    std::atomic<std::uint32_t> bell{0}, received{0};
    std::thread sending([&] {
        Sender sender(segment.ring, fences);
        for (std::uint32_t i = 0; i < kTimes; ++i) {
            while (received.load(std::memory_order_relaxed) < i)
                std::this_thread::yield();
            std::byte* place = sender.claim(20);
            if (place == nullptr)
                return;
            fill(place, 1);
            sender.publish(20);
            if (sender.must_ring())
                bell.store(1, std::memory_order_relaxed);
        }
    });
    Receiver receiver(segment.ring, fences);
    if (fences.has_membarrier)
        receiver.spare_sender();
    for (std::uint32_t got = 0; got < kTimes;) {
        std::span<const std::byte> packet;
        if (receiver.peek(&packet) == Peek::kPacket) {
            receiver.advance();
            received.store(++got, std::memory_order_relaxed);
            continue;
        }
        receiver.arm();
        receiver.fences().before_recheck();
        if (!receiver.is_empty()) {
            receiver.disarm();
            continue;
        }
        while (bell.exchange(0, std::memory_order_relaxed) == 0)
            std::this_thread::yield();
    }
    sending.join();
}

TEST(VhcaRing, a_full_ring_refuses_and_takes_more_when_the_receiver_moved) {
    Segment segment;
    Sender sender(segment.ring);
    for (std::uint32_t i = 0; i < vhca::kRingSlots; ++i) {
        ASSERT_NE(sender.claim(8), nullptr);
        sender.publish(8);
    }
    EXPECT_EQ(sender.claim(8), nullptr);
    EXPECT_EQ(sender.unconsumed(), vhca::kRingSlots);
    Receiver receiver(segment.ring);
    std::span<const std::byte> packet;
    for (std::uint32_t i = 0; i < vhca::kRingSlots; ++i) {
        ASSERT_EQ(receiver.peek(&packet), Peek::kPacket);
        receiver.advance();
    }
    receiver.begin_visit();
    EXPECT_EQ(receiver.peek(&packet), Peek::kEmpty);
    EXPECT_NE(sender.claim(8), nullptr);
    EXPECT_EQ(sender.unconsumed(), 0U);
}

// A receiver that is interrupted behind its visit has not answered what it took.
TEST(VhcaRing, packets_of_a_visit_are_consumed_when_the_next_one_begins) {
    Segment segment;
    Sender sender(segment.ring);
    for (unsigned i = 0; i < 3; ++i) {
        ASSERT_NE(sender.claim(8), nullptr);
        sender.publish(8);
    }
    Receiver receiver(segment.ring);
    std::span<const std::byte> packet;
    for (unsigned i = 0; i < 2; ++i) {
        receiver.begin_visit();
        while (receiver.peek(&packet) == Peek::kPacket)
            receiver.advance();
        EXPECT_EQ(sender.unconsumed(), i == 0 ? 3U : 0U);
    }
    ASSERT_NE(sender.claim(8), nullptr);
    sender.publish(8);
    ASSERT_EQ(receiver.peek(&packet), Peek::kPacket);
    receiver.advance();
    EXPECT_EQ(sender.unconsumed(), 1U);
    receiver.arm();
    EXPECT_EQ(sender.unconsumed(), 0U);
}

TEST(VhcaRing, a_claim_that_is_not_published_never_happened) {
    Segment segment;
    Sender sender(segment.ring);
    ASSERT_NE(sender.claim(4000), nullptr);
    std::byte* place = sender.claim(8);
    ASSERT_NE(place, nullptr);
    std::memset(place, 7, 8);
    sender.publish(8);
    Receiver receiver(segment.ring);
    std::span<const std::byte> packet;
    ASSERT_EQ(receiver.peek(&packet), Peek::kPacket);
    EXPECT_EQ(packet.size(), 8U);
    EXPECT_EQ(packet[7], std::byte{7});
    receiver.advance();
    EXPECT_EQ(receiver.peek(&packet), Peek::kEmpty);
}

TEST(VhcaRing, impossible_sizes_and_positions_are_corrupt) {
    constexpr std::uint64_t kInChunk = std::uint64_t{1} << 63;
    const std::uint64_t sizes[] = {0, vhca::kSlotBodyBytes + 1,
                                   kInChunk >> 32 | (vhca::kPacketBytesMax + 1),
                                   kInChunk >> 32 | 0x7fffffff};
    for (const std::uint64_t size : sizes) {
        Segment segment;
        segment.ring.slots[0].control.store(1 | size << 32, std::memory_order_relaxed);
        Receiver receiver(segment.ring);
        std::span<const std::byte> packet;
        EXPECT_EQ(receiver.peek(&packet), Peek::kCorrupt) << size;
    }
    Segment segment;
    Sender sender(segment.ring);
    segment.ring.consumer->tail.store(5, std::memory_order_relaxed);
    EXPECT_EQ(sender.claim(8), nullptr);
    EXPECT_TRUE(sender.is_corrupt());
}

}  // namespace
}  // namespace tagwire::test
