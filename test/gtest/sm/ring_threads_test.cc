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
#include <vector>

#include "common/skip.hpp"
#include "ucs/sys/process.hpp"
#include "ucs/sys/shm.hpp"
#include "uct/sm/buffer_pool.hpp"
#include "uct/sm/fences.hpp"
#include "uct/sm/ring.hpp"

namespace tagwire::test {
namespace {

using sm::Claim;
using sm::Control;
using sm::HostFences;
using sm::Kind;
using sm::RingGeometry;

#if defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kRingMessages = 20'000;
#else
constexpr std::uint64_t kRingMessages = 100'000;
#endif

/** A ring segment as make_tx() lays it out, and one end of each kind on it. */
struct Segment {
    static constexpr std::size_t kPoolBytes = 16 * 1024;

    RingGeometry geometry{sm::kSlotCountMin, 1024, kPoolBytes / sm::kBlockBytes,
                          static_cast<std::uint32_t>(ucs::page_bytes())};
    ucs::UniqueFd fd;
    ucs::Mapping mapping;
    sm::BufferPool pool;
    sm::LentBuffers* lent = nullptr;

    Segment() {
        EXPECT_TRUE(geometry.is_valid());
        EXPECT_EQ(ucs::memfd_create_sealed("ring-threads", geometry.bytes(), &fd), UCS_OK);
        EXPECT_EQ(ucs::memfd_check_sealed(fd.get(), geometry.bytes()), UCS_OK);
        EXPECT_EQ(ucs::map_shared(fd.get(), geometry.bytes(), &mapping), UCS_OK);
        EXPECT_EQ(pool.open({kPoolBytes, 0, kPoolBytes}), UCS_OK);
        EXPECT_EQ(pool.block_count(), geometry.pool_blocks);
        lent = pool.add_user(geometry, mapping.base());
    }
    sm::RingHead& head() { return *reinterpret_cast<sm::RingHead*>(mapping.base()); }
    sm::Slot<>* slots() {
        return reinterpret_cast<sm::Slot<>*>(mapping.base() + geometry.front_offset());
    }
};

using Sender = sm::RingSender<std::atomic, HostFences>;
using Receiver = sm::RingReceiver<std::atomic, HostFences>;

struct Body {
    std::uint64_t number;
    std::uint32_t seg;
    std::uint32_t bytes;
};

/** Odd messages travel in a buffer, even ones in their slot. */
void send_all(Segment& segment, Sender ring, const std::function<void()>& on_ring) {
    sm::LentBuffers& lent = *segment.lent;
    for (std::uint64_t i = 0; i < kRingMessages; ++i) {
        Claim claim;
        while ((claim = ring.refresh()) == Claim::kFull)
            std::this_thread::yield();
        ASSERT_EQ(claim, Claim::kOk);
        Body body{i, 0, 0};
        if (i % 2 == 1) {
            while (!lent.has(1))
                std::this_thread::yield();
            body.seg = lent.take();
            body.bytes = 1 + static_cast<std::uint32_t>(i * 7919 % segment.geometry.seg_bytes);
            std::memset(lent.buffer(body.seg), static_cast<int>(i & 0x7f), body.bytes);
            lent.shrink(body.seg, body.bytes);
        }
        std::memcpy(ring.slot().body, &body, sizeof body);
        const Kind kind = i % 2 == 1 ? Kind::kAmSeg : Kind::kAm;
        ring.publish(Control::make(kind, static_cast<std::uint8_t>(i & 15), sizeof body));
        if (ring.must_ring())
            on_ring();
    }
}

void receive_all(Segment& segment, Receiver ring, const std::function<void(Receiver&)>& on_idle) {
    sm::BufferReturns returns(segment.geometry, segment.mapping.base());
    for (std::uint64_t i = 0; i < kRingMessages;) {
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
            ASSERT_TRUE(segment.geometry.has_buffer(body.seg, body.bytes));
            const std::byte* data = segment.lent->buffer(body.seg);
            for (std::uint32_t at = 0; at < body.bytes; at += 37)
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
    segment.head().front.tail.store(GetParam(), std::memory_order_relaxed);
    const Sender sender(segment.slots(), &segment.head().front, segment.geometry.slot_count,
                        GetParam(), fences);
    const Receiver receiver(segment.slots(), &segment.head().front, segment.geometry.slot_count,
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
    const Sender sender(segment.slots(), &segment.head().front, segment.geometry.slot_count, 0,
                        fences);
    const Receiver receiver(segment.slots(), &segment.head().front, segment.geometry.slot_count, 0,
                            fences);
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

}  // namespace
}  // namespace tagwire::test
