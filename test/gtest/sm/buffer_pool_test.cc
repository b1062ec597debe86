// SPDX-License-Identifier: BSD-3-Clause
//
// The pool of buffers by itself: runs go around the whole span, come back by their receivers, and
// are shared fairly. Receivers are BufferReturns in this process.

#include "uct/sm/buffer_pool.hpp"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "ucs/sys/process.hpp"
#include "ucs/topo/topology.hpp"

namespace tagwire::test {
namespace {

using sm::BufferPool;
using sm::BufferReturns;
using sm::kBlockBytes;
using sm::kReserveBit;
using sm::kReserveCount;
using sm::LentBuffers;
using sm::PoolSizes;
using sm::RingGeometry;

constexpr std::uint32_t kSegBytes = 2048;
constexpr std::uint32_t kRun = sm::run_of(kSegBytes);

/** A connection: its segment, the sender's buffers, and the receiver that returns them. */
struct Peer {
    RingGeometry geometry;
    ucs::Mapping segment;
    LentBuffers* lent = nullptr;
    BufferReturns returns;
    std::deque<std::uint32_t> out;

    explicit Peer(BufferPool& pool)
        : geometry{sm::kSlotCountMin, kSegBytes, pool.block_count(),
                   static_cast<std::uint32_t>(ucs::page_bytes())} {
        ucs::UniqueFd fd;
        EXPECT_EQ(ucs::memfd_create_sealed("peer", geometry.bytes(), &fd), UCS_OK);
        EXPECT_EQ(ucs::map_shared(fd.get(), geometry.bytes(), &segment), UCS_OK);
        lent = pool.add_user(geometry, segment.base());
        returns = BufferReturns(geometry, segment.base());
    }
    std::uint32_t take(std::size_t bytes) {
        const std::uint32_t seg = lent->take();
        lent->shrink(seg, bytes);
        out.push_back(seg);
        return seg;
    }
    /** Takes buffers until there are none. */
    std::size_t exhaust(std::size_t bytes = kSegBytes) {
        std::size_t count = 0;
        for (; lent->has(1); ++count)
            take(bytes);
        return count;
    }
    void give_back_all() {
        for (; !out.empty(); out.pop_front())
            returns.give_back(out.front());
    }
    std::size_t in_reserve() const {
        return static_cast<std::size_t>(
            std::ranges::count_if(out, [](std::uint32_t seg) { return (seg & kReserveBit) != 0; }));
    }
};

constexpr std::size_t kBytes = 256 * 1024;
constexpr std::uint32_t kBlocks = kBytes / kBlockBytes;

BufferPool& opened(BufferPool& pool, const PoolSizes& sizes = {kBytes, 0, kBytes}) {
    EXPECT_EQ(pool.open(sizes), UCS_OK);
    return pool;
}

/** Goes around, with time between, until all pages are touched. */
void warm_up(BufferPool& pool, Peer& peer) {
    while (pool.touched_bytes() < pool.span_bytes()) {
        ASSERT_TRUE(peer.lent->has(1));
        peer.take(kSegBytes);
        peer.give_back_all();
        pool.grow();
    }
}

TEST(BufferPool, goes_around_its_whole_span_before_a_buffer_is_used_again) {
    BufferPool pool;
    Peer peer(opened(pool));
    warm_up(pool, peer);
    for (const std::size_t bytes : {100U, 512U, 700U, 2048U}) {
        std::set<std::uint32_t> seen;
        for (;;) {
            ASSERT_TRUE(peer.lent->has(1));
            if (!seen.insert(peer.take(bytes)).second)
                break;
            peer.give_back_all();
        }
        peer.give_back_all();
        // A run does not wrap around the end.
        EXPECT_GE(seen.size() * sm::run_of(bytes) + kRun, kBlocks) << bytes;
    }
}

TEST(BufferPool, leaves_lines_unused_between_a_message_and_the_next) {
    BufferPool pool;
    Peer peer(opened(pool));
    for (const std::size_t bytes : {1U, 512U, 513U, kSegBytes}) {
        ASSERT_TRUE(peer.lent->has(2));
        const std::byte* const one = peer.lent->buffer(peer.take(bytes));
        const std::byte* const next = peer.lent->buffer(peer.take(bytes));
        EXPECT_GE(next, one + bytes + 16 * sm::kCacheLine);
        peer.give_back_all();
    }
}

TEST(BufferPool, touches_more_pages_only_for_those_who_use_what_there_is) {
    BufferPool pool;
    Peer peer(opened(pool, {8 * kBytes, 0, 8 * kBytes}));
    const std::size_t first = pool.touched_bytes();
    EXPECT_GT(first, 0U) << "for the first messages";
    EXPECT_LE(first, kBytes);
    const auto use = [&](std::size_t bytes) {
        for (std::size_t used = 0; used < bytes; used += kRun * kBlockBytes) {
            ASSERT_TRUE(peer.lent->has(1));
            const std::uint32_t seg = peer.take(kSegBytes);
            ASSERT_LE((seg + kRun) * kBlockBytes, pool.touched_bytes());
            peer.give_back_all();
        }
    };
    use(first / 2);
    EXPECT_FALSE(pool.grow()) << "it was not used";
    use(first);
    EXPECT_EQ(pool.touched_bytes(), first) << "there was no time";
    EXPECT_TRUE(pool.grow());
    EXPECT_TRUE(pool.grow()) << "there is time";
    const std::size_t grown = pool.touched_bytes();
    EXPECT_GT(grown, first);
    use(2 * grown);
    EXPECT_GT(pool.touched_bytes(), grown) << "there is no time, so it is for each turn";
    use(64 * kBytes);
    EXPECT_EQ(pool.touched_bytes(), pool.span_bytes());
    EXPECT_FALSE(pool.grow());
}

TEST(BufferPool, touches_more_where_all_is_in_use) {
    BufferPool pool;
    Peer peer(opened(pool, {8 * kBytes, 0, 8 * kBytes}));
    peer.exhaust();
    EXPECT_GE(pool.touched_bytes(), 4 * kBytes) << "half of the span may be out";
}

TEST(BufferPool, leaves_half_to_others_and_each_has_a_reserve) {
    BufferPool pool;
    opened(pool);
    Peer first(pool), second(pool), third(pool);
    EXPECT_NEAR(static_cast<double>(first.exhaust() - kReserveCount), kBlocks / kRun / 2.0, 1);
    EXPECT_EQ(first.in_reserve(), kReserveCount);
    EXPECT_NEAR(static_cast<double>(second.exhaust() - kReserveCount), kBlocks / kRun / 4.0, 1);
    EXPECT_NEAR(static_cast<double>(third.exhaust() - kReserveCount), kBlocks / kRun / 8.0, 1);
    third.give_back_all();
    EXPECT_TRUE(third.lent->has(kReserveCount));
    EXPECT_FALSE(first.lent->has(1));
}

TEST(BufferPool, serves_a_connection_by_its_reserve_however_many_others_keep_all) {
    BufferPool pool;
    opened(pool);
    std::vector<std::unique_ptr<Peer>> keepers;
    for (int i = 0; i < 100; ++i) {
        keepers.push_back(std::make_unique<Peer>(pool));
        keepers.back()->exhaust();
    }
    Peer peer(pool);
    for (int i = 0; i < 1000; ++i) {
        ASSERT_TRUE(peer.lent->has(kReserveCount));
        for (std::uint32_t k = 0; k < kReserveCount; ++k)
            std::memset(peer.lent->buffer(peer.take(kSegBytes)), 1, kSegBytes);
        peer.give_back_all();
    }
}

TEST(BufferPool, ignores_returns_of_what_is_not_lent) {
    BufferPool pool;
    opened(pool);
    Peer liar(pool), other(pool);
    ASSERT_TRUE(other.lent->has(1));
    const std::uint32_t others = other.take(kSegBytes);
    ASSERT_TRUE(liar.lent->has(1));
    const std::uint32_t own = liar.take(kSegBytes);
    liar.exhaust();
    const std::size_t out = liar.lent->out_count();
    for (const std::uint32_t seg : {others, own + 1, kBlocks, ~0U, kReserveBit | kReserveCount})
        liar.returns.give_back(seg);
    EXPECT_FALSE(liar.lent->has(1));
    EXPECT_EQ(liar.lent->out_count(), out);
    liar.returns.give_back(own);
    liar.returns.give_back(own);
    static_cast<void>(liar.lent->has(1));
    EXPECT_EQ(liar.lent->out_count(), out - 1);
    EXPECT_EQ(other.lent->out_count(), 1U);
    // More than can be out.
    reinterpret_cast<sm::RingHead*>(liar.segment.base())->returns.count.store(1U << 20);
    static_cast<void>(liar.lent->has(1));
    EXPECT_EQ(liar.lent->out_count(), out - 1);
}

TEST(BufferPool, has_back_what_was_not_used) {
    BufferPool pool;
    Peer peer(opened(pool));
    ASSERT_TRUE(peer.lent->has(1));
    const std::uint32_t seg = peer.lent->take();
    peer.lent->untake(seg);
    EXPECT_EQ(pool.lent_blocks(), 0U);
    EXPECT_EQ(peer.lent->out_count(), 0U);
    ASSERT_TRUE(peer.lent->has(1));
    EXPECT_EQ(peer.lent->take(), seg) << "the same place again";
}

TEST(BufferPool, keeps_buffers_of_a_connection_that_is_over_until_they_are_returned) {
    BufferPool pool;
    opened(pool);
    auto gone = std::make_unique<Peer>(pool);
    Peer stays(pool);
    gone->exhaust();
    std::set<std::uint32_t> kept(gone->out.begin(), gone->out.end());
    BufferReturns returns = gone->returns;
    pool.retire(*gone->lent, std::move(gone->segment), -1);
    for (int i = 0; i < 1000; ++i) {
        ASSERT_TRUE(stays.lent->has(1));
        const std::uint32_t seg = stays.take(kSegBytes);
        ASSERT_TRUE((seg & kReserveBit) != 0 || !kept.contains(seg));
        stays.give_back_all();
    }
    for (const std::uint32_t seg : kept)
        returns.give_back(seg);
    stays.exhaust();
    EXPECT_NEAR(static_cast<double>(stays.out.size() - kReserveCount), kBlocks / kRun / 2.0, 1);
}

TEST(BufferPool, has_back_the_buffers_of_a_process_that_is_dead) {
    BufferPool pool;
    opened(pool);
    Peer stays(pool);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        ::pause();
        ::_exit(0);
    }
    const ucs::UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
    ASSERT_TRUE(pidfd);
    auto dies = std::make_unique<Peer>(pool);
    dies->exhaust();
    pool.retire(*dies->lent, std::move(dies->segment), pidfd.get());
    EXPECT_NEAR(static_cast<double>(stays.exhaust() - kReserveCount), kBlocks / kRun / 4.0, 1);
    stays.give_back_all();
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    EXPECT_NEAR(static_cast<double>(stays.exhaust() - kReserveCount), kBlocks / kRun / 2.0, 1);
}

TEST(BufferPool, grows_with_its_connections_within_its_bounds) {
    BufferPool pool;
    opened(pool, {kBytes, kBytes / 8, 4 * kBytes});
    std::vector<std::unique_ptr<Peer>> peers;
    for (int i = 0; i < 100; ++i) {
        peers.push_back(std::make_unique<Peer>(pool));
        const std::size_t expected =
            std::clamp(peers.size() * kBytes / 8, std::size_t{kBytes}, 4 * std::size_t{kBytes});
        EXPECT_EQ(pool.span_bytes(), expected);
    }
}

// The budget of memory is stated in caches.
TEST(BufferPool, is_sized_by_the_cache) {
    const std::size_t cache = ucs::system_topology().second_level_cache_bytes();
    const PoolSizes sizes = PoolSizes::of_machine(0);
    EXPECT_GE(cache, std::size_t{64} << 10);
    EXPECT_LE(sizes.bytes_min, 3 * cache);
    EXPECT_GE(sizes.bytes_min, std::min(2 * cache, std::size_t{sm::kPoolBytesMax}));
    EXPECT_LE(64 * sizes.bytes_each, 4 * cache);
    EXPECT_LE(sizes.bytes_max, 8 * cache);
    const PoolSizes fixed = PoolSizes::of_machine(1 << 20);
    EXPECT_EQ(fixed.bytes_min, std::size_t{1} << 20);
    EXPECT_EQ(fixed.bytes_max, std::size_t{1} << 20);
}

/** Random traffic of several connections; no byte of a buffer changes while it is out. */
TEST(BufferPool, never_lends_a_byte_twice) {
    constexpr int kSteps = 200'000;
    struct Sent {
        std::uint32_t seg;
        std::uint32_t bytes;
        unsigned char fill;
    };
    for (std::uint32_t seed = 1; seed <= 3; ++seed) {
        std::mt19937 random(seed);
        BufferPool pool;
        opened(pool, {kBytes / 2, kBytes / 16, kBytes});
        std::vector<std::unique_ptr<Peer>> peers;
        std::vector<std::deque<Sent>> sent(12);
        for (std::size_t i = 0; i < sent.size(); ++i)
            peers.push_back(std::make_unique<Peer>(pool));
        for (int step = 0; step < kSteps; ++step) {
            const std::size_t i = random() % sent.size();
            Peer& peer = *peers[i];
            if (random() % 2 == 0 && peer.lent->has(1)) {
                const auto bytes = static_cast<std::uint32_t>(1 + random() % kSegBytes);
                const auto fill = static_cast<unsigned char>(random());
                const std::uint32_t seg = peer.lent->take();
                std::memset(peer.lent->buffer(seg), fill, bytes);
                peer.lent->shrink(seg, bytes);
                sent[i].push_back({seg, bytes, fill});
            } else if (!sent[i].empty()) {
                // Mostly in order; some are kept for long.
                const std::size_t at = random() % 8 == 0 ? random() % sent[i].size() : 0;
                const Sent message = sent[i][at];
                const auto* data = reinterpret_cast<unsigned char*>(peer.lent->buffer(message.seg));
                ASSERT_EQ(data[0], message.fill);
                ASSERT_EQ(std::memcmp(data, data + 1, message.bytes - 1), 0) << "step " << step;
                peer.returns.give_back(message.seg);
                sent[i].erase(sent[i].begin() + static_cast<std::ptrdiff_t>(at));
            }
        }
    }
}

/** Sends `count` messages of 256 bytes, of which the receiver returns each at once. */
void send_short(Peer& peer, int count) {
    for (int i = 0; i < count; ++i) {
        ASSERT_TRUE(peer.lent->has(1));
        const std::uint32_t seg = peer.take(256);
        peer.lent->prefetch_next(256);
        peer.returns.give_back(seg);
        peer.out.pop_back();
    }
}

TEST(BufferPool, the_next_buffer_is_fetched_only_where_that_was_asked_for) {
    BufferPool always, never;
    always.prefetch_from(0);
    for (BufferPool* pool : {&always, &never})
        ASSERT_EQ(pool->open({1 << 20, 0, 1 << 20}), UCS_OK);
    Peer with(always), without(never);
    EXPECT_FALSE(with.lent->prefetches()) << "before anything was measured";
    send_short(with, sm::LineWait::kInterval * 2);
    send_short(without, sm::LineWait::kInterval * 2);
    EXPECT_TRUE(with.lent->prefetches());
    EXPECT_FALSE(without.lent->prefetches());
}

TEST(BufferPool, measuring_and_fetching_change_no_buffer_that_is_lent) {
    BufferPool pool;
    pool.prefetch_from(0);
    ASSERT_EQ(pool.open({1 << 16, 0, 1 << 16}), UCS_OK);
    Peer peer(pool);
    std::mt19937 random(20);
    const auto pattern = [](std::uint32_t seg) { return static_cast<int>(seg % 251 + 1); };
    std::deque<std::pair<std::uint32_t, std::size_t>> lent;
    for (int i = 0; i < 20000; ++i) {
        const std::size_t bytes = 1 + random() % kSegBytes;
        while (!peer.lent->has(1) || lent.size() > 12 || (!lent.empty() && random() % 3 == 0)) {
            const auto [seg, length] = lent.front();
            lent.pop_front();
            const std::byte* const data = peer.lent->buffer(seg);
            const std::byte want{static_cast<unsigned char>(pattern(seg))};
            ASSERT_TRUE(std::all_of(data, data + length, [&](std::byte b) { return b == want; }))
                << "message " << i;
            peer.returns.give_back(seg);
        }
        const std::uint32_t seg = peer.lent->take();
        peer.lent->shrink(seg, bytes);
        std::memset(peer.lent->buffer(seg), pattern(seg), bytes);
        lent.emplace_back(seg, bytes);
        peer.lent->prefetch_next(bytes);
    }
}

TEST(LineWait, is_measured_often_at_first_and_rarely_then) {
    sm::LineWait wait;
    std::vector<int> due;
    for (int i = 1; due.size() < 10; ++i)
        if (wait.is_due()) {
            due.push_back(i);
            wait.add(100, 4096);
        }
    const auto first = static_cast<int>(sm::LineWait::kFirstInterval);
    const auto later = static_cast<int>(sm::LineWait::kInterval);
    EXPECT_EQ(due[0], first);
    EXPECT_EQ(due[7], 8 * first);
    EXPECT_EQ(due[8], 8 * first + later);
    EXPECT_EQ(due[9], 8 * first + 2 * later);
}

TEST(LineWait, follows_a_change_and_forgives_one_long_wait) {
    sm::LineWait wait;
    EXPECT_EQ(wait.ticks(), 0U);
    wait.add(40, 4096);
    EXPECT_EQ(wait.ticks(), 40U);
    for (int i = 0; i < 20; ++i)
        wait.add(400, 4096);
    EXPECT_NEAR(static_cast<double>(wait.ticks()), 400.0, 5.0);
    wait.add(1'000'000'000, 4096);
    EXPECT_LT(wait.ticks(), 1400U);
    for (int i = 0; i < 30; ++i)
        wait.add(0, 4096);
    EXPECT_LE(wait.ticks(), 1U);
}

}  // namespace
}  // namespace tagwire::test
