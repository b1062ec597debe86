// SPDX-License-Identifier: BSD-3-Clause
// RDMA reads whose data is placed in any order.
#include <algorithm>

#include "vhca/test/core/world.hpp"

namespace tagwire::vhca {

namespace {

constexpr std::size_t kReadBytes = 50'000;

WorldOptions shuffled(std::uint64_t seed) {
    WorldOptions options;
    options.node.device.shuffles_reads = true;
    options.fabric.room_packets = 1;  // one response at a time
    options.seed = seed;
    return options;
}

std::string letters(std::size_t count) {
    std::string text(count, ' ');
    for (std::size_t i = 0; i < count; ++i)
        text[i] = static_cast<char>('a' + i * 31 % 26);
    return text;
}

/// Steps until the read has completed. Returns the number of steps after which a byte was there
/// while one before it was missing.
std::size_t gaps_of_a_read(World& world) {
    std::size_t gaps = 0;
    while (world.a.cq->is_empty()) {
        EXPECT_TRUE(world.fabric.step());
        const std::string seen = world.a.text(0, kReadBytes);
        const std::size_t missing = seen.find('\0');
        const bool has_gap = missing != std::string::npos &&
                             std::any_of(seen.begin() + static_cast<std::ptrdiff_t>(missing),
                                         seen.end(), [](char byte) { return byte != '\0'; });
        gaps += has_gap ? 1U : 0U;
    }
    return gaps;
}

TEST(VhcaReads, data_of_a_read_are_placed_in_any_order_before_it_completes) {
    const std::string text = letters(kReadBytes);
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
        World world(shuffled(seed));
        world.b.write(100, text);
        ASSERT_EQ(world.send(1, 0, kReadBytes, world.remote(IBV_WR_RDMA_READ, 100)), 0);
        EXPECT_GT(gaps_of_a_read(world), 0U) << "seed " << seed;
        EXPECT_EQ(world.a.poll()->wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(world.a.text(0, kReadBytes), text) << "seed " << seed;
    }
}

TEST(VhcaReads, nothing_is_placed_of_a_read_that_has_failed) {
    World world(shuffled(1));
    world.b.write(0, letters(kReadBytes));
    ASSERT_EQ(world.send(1, 0, kReadBytes, world.remote(IBV_WR_RDMA_READ, 0)), 0);
    while (world.a.text(0, kReadBytes) == std::string(kReadBytes, '\0'))
        ASSERT_TRUE(world.fabric.step());
    ASSERT_EQ(world.to_state(*world.qa, IBV_QPS_ERR), 0);
    EXPECT_EQ(world.a.wait().wc.status, IBV_WC_WR_FLUSH_ERR);
    const std::string then = world.a.text(0, kReadBytes);
    world.settle();
    EXPECT_EQ(world.a.text(0, kReadBytes), then);
    // The next one on this queue pair has its own data only.
    ASSERT_EQ(world.to_state(*world.qa, IBV_QPS_RESET), 0);
    ASSERT_EQ(world.to_state(*world.qb, IBV_QPS_RESET), 0);
    world.connect(*world.qa, world.b.route(), world.qb->number(), 1, 2);
    world.connect(*world.qb, world.a.route(), world.qa->number(), 2, 1);
    ASSERT_EQ(world.send(2, 60'000, 3, world.remote(IBV_WR_RDMA_READ, 0)), 0);
    EXPECT_EQ(world.a.wait().wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(world.a.text(60'000, 3), letters(3));
    EXPECT_EQ(world.a.text(0, kReadBytes), then);
}

TEST(VhcaReads, data_that_no_longer_fit_their_memory_fail_the_read) {
    World world(shuffled(1));
    ASSERT_EQ(world.send(1, 0, kReadBytes, world.remote(IBV_WR_RDMA_READ, 0)), 0);
    for (int step = 0; step < 8; ++step)
        world.fabric.step();
    ASSERT_EQ(world.a.device.destroy_mr(*world.a.mr), 0);
    EXPECT_EQ(world.a.wait().wc.status, IBV_WC_LOC_PROT_ERR);
}

}  // namespace

}  // namespace tagwire::vhca
