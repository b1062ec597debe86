// SPDX-License-Identifier: BSD-3-Clause
//
// Both ends of a ring as threads of one process, over a real segment, so that ThreadSanitizer sees
// both: the ring and its buffers by themselves. Both threads use one mapping, because the sanitizer
// knows memory by its address.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "common/skip.hpp"
#include "ucs/sys/process.hpp"
#include "ucs/sys/shm.hpp"
#include "uct/sm/fences.hpp"
#include "uct/sm/ring.hpp"
#include "uct/sm/segments.hpp"

namespace tagwire::test {
namespace {

using sm::Claim;
using sm::Control;
using sm::HostFences;
using sm::Kind;
using sm::RingGeometry;

#if defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kMessages = 20'000;
#else
constexpr std::uint64_t kMessages = 100'000;
#endif

/** A ring segment as make_tx() lays it out, and one end of each kind on it. */
struct Segment {
    RingGeometry geometry{sm::kSlotCountMin, sm::kSegCountMin, 512,
                          static_cast<std::uint32_t>(ucs::page_bytes())};
    ucs::UniqueFd fd;
    ucs::Mapping mapping;

    Segment() {
        EXPECT_TRUE(geometry.is_valid());
        EXPECT_EQ(ucs::memfd_create_sealed("ring-threads", geometry.bytes(), &fd), UCS_OK);
        EXPECT_EQ(ucs::memfd_check_sealed(fd.get(), geometry.bytes()), UCS_OK);
        EXPECT_EQ(ucs::map_shared(fd.get(), geometry.bytes(), &mapping), UCS_OK);
    }
    sm::RingHead& head() { return *reinterpret_cast<sm::RingHead*>(mapping.base()); }
    sm::Slot<>* slots() {
        return reinterpret_cast<sm::Slot<>*>(mapping.base() + geometry.slots_offset());
    }
    std::byte* buffer(std::uint32_t seg) {
        return mapping.base() + geometry.segs_offset() + std::size_t{seg} * geometry.seg_bytes;
    }
};

using Sender = sm::RingSender<std::atomic, HostFences>;
using Receiver = sm::RingReceiver<std::atomic, HostFences>;

struct Body {
    std::uint64_t number;
    std::uint32_t seg;
};

/** Odd messages travel in a buffer, even ones in their slot. */
void send_all(Segment& segment, Sender ring, const std::function<void()>& on_ring) {
    sm::SegmentPool pool(segment.geometry, segment.mapping.base());
    for (std::uint64_t i = 0; i < kMessages; ++i) {
        Claim claim;
        while ((claim = ring.refresh()) == Claim::kFull)
            std::this_thread::yield();
        ASSERT_EQ(claim, Claim::kOk);
        Body body{i, 0};
        if (i % 2 == 1) {
            while (!pool.has(1))
                std::this_thread::yield();
            body.seg = pool.take();
            std::memset(pool.buffer(body.seg), static_cast<int>(i & 0x7f),
                        segment.geometry.seg_bytes);
        }
        std::memcpy(ring.slot().body, &body, sizeof body);
        const Kind kind = i % 2 == 1 ? Kind::kAmSeg : Kind::kAm;
        ring.publish(Control::make(kind, static_cast<std::uint8_t>(i & 15), sizeof body));
        if (ring.must_ring())
            on_ring();
    }
}

void receive_all(Segment& segment, Receiver ring, const std::function<void(Receiver&)>& on_idle) {
    sm::SegmentReturns returns(segment.geometry, segment.mapping.base());
    for (std::uint64_t i = 0; i < kMessages;) {
        const Control control = ring.peek();
        if (control.word == 0) {
            on_idle(ring);
            continue;
        }
        Body body;
        std::memcpy(&body, ring.body(), sizeof body);
        ASSERT_EQ(body.number, i);
        ASSERT_EQ(control.id(), i & 15);
        ASSERT_EQ(control.length(), sizeof body);
        if (control.kind() == static_cast<std::uint8_t>(Kind::kAmSeg)) {
            ASSERT_LT(body.seg, segment.geometry.seg_count);
            const std::byte* data = segment.buffer(body.seg);
            for (std::uint32_t at = 0; at < segment.geometry.seg_bytes; at += 37)
                ASSERT_EQ(data[at], static_cast<std::byte>(i & 0x7f));
            returns.give_back(body.seg);
        }
        ring.advance();
        ++i;
    }
}

class RingThreads : public testing::TestWithParam<std::uint64_t> {};

TEST_P(RingThreads, messages_and_buffers_go_around_in_order) {
    Segment segment;
    const HostFences fences{true};
    segment.head().consumer.tail.store(GetParam(), std::memory_order_relaxed);
    const Sender sender(segment.slots(), &segment.head().consumer, segment.geometry.slot_count,
                        GetParam(), fences);
    const Receiver receiver(segment.slots(), &segment.head().consumer, segment.geometry.slot_count,
                            GetParam(), fences);
    std::thread thread(
        [&] { send_all(segment, sender, [] { FAIL() << "rang for a receiver that polls"; }); });
    receive_all(segment, receiver, [](Receiver&) { std::this_thread::yield(); });
    thread.join();
}

INSTANTIATE_TEST_SUITE_P(Starts, RingThreads,
                         testing::Values(0, (std::uint64_t{1} << 31) - 5000,
                                         (std::uint64_t{1} << 32) - 5000, std::uint64_t{0} - 5000));

/** The receiver sleeps whenever nothing is there, and only the sender's ring wakes it. */
void exchange_with_sleeps(HostFences fences) {
    Segment segment;
    const Sender sender(segment.slots(), &segment.head().consumer, segment.geometry.slot_count, 0,
                        fences);
    const Receiver receiver(segment.slots(), &segment.head().consumer, segment.geometry.slot_count,
                            0, fences);
    std::atomic<std::uint32_t> rings{0};
    std::atomic<bool> is_over{false};
    std::thread thread([&] {
        send_all(segment, sender, [&] {
            rings.fetch_add(1);
            rings.notify_one();
        });
        is_over = true;
    });
    std::uint32_t heard = 0;
    receive_all(segment, receiver, [&](Receiver& ring) {
        if (!ring.try_sleep())
            return;
        // A lost wake-up ends in the test's time limit. One too many is possible: when both sides
        // saw each other, the ring comes although nobody slept.
        rings.wait(heard);
        heard = rings.load();
        ring.wake();
    });
    thread.join();
    EXPECT_TRUE(is_over);
}

TEST(RingWake, a_sleeper_is_woken_where_the_sender_pays) {
    exchange_with_sleeps(HostFences{true});
}

TEST(RingWake, a_sleeper_is_woken_by_membarrier) {
    if (!ucs::register_global_barrier())
        TW_SKIP("membarrier(2) is not available");
    exchange_with_sleeps(HostFences{false});
}

TEST(SegmentThreads, what_a_peer_returns_wrongly_does_not_come_back) {
    Segment segment;
    sm::SegmentPool pool(segment.geometry, segment.mapping.base());
    sm::SegmentReturns returns(segment.geometry, segment.mapping.base());
    std::vector<std::uint32_t> taken;
    while (pool.has(1))
        taken.push_back(pool.take());
    EXPECT_EQ(taken.size(), segment.geometry.seg_count);

    returns.give_back(segment.geometry.seg_count);  // no such buffer
    returns.give_back(0xffffffffU);
    EXPECT_FALSE(pool.has(1));
    returns.give_back(3);
    returns.give_back(3);  // twice
    EXPECT_TRUE(pool.has(1));
    EXPECT_FALSE(pool.has(2));
    EXPECT_EQ(pool.take(), 3U);
    segment.head().returns.count.store(1000, std::memory_order_release);  // more than are out
    EXPECT_FALSE(pool.has(1));
    EXPECT_EQ(pool.out_count(), segment.geometry.seg_count);
}

}  // namespace
}  // namespace tagwire::test
