// SPDX-License-Identifier: BSD-3-Clause
// Completions and events that come later than what they are about.
#include <algorithm>
#include <numeric>

#include "vhca/test/core/world.hpp"

namespace tagwire::vhca {

namespace {

constexpr Time kLate = 10'000;

WorldOptions late(std::uint64_t seed = 1) {
    WorldOptions options;
    options.node.device.late_ns_max = kLate;
    options.uses_srq = true;
    options.seed = seed;
    return options;
}

std::vector<std::uint64_t> poll_all(Host& host) {
    std::vector<std::uint64_t> ids;
    while (const std::optional<Completion> completion = host.poll())
        ids.push_back(completion->wc.wr_id);
    return ids;
}

/// b's two queue pairs with four sends each go to ERR, one after the other.
std::vector<std::uint64_t> flush_two(World& world) {
    Qp& other = world.b.create_qp({.srq = world.srq, .cap = world.options.cap});
    world.connect(other, world.a.route(), world.qa->number(), 1, 1);
    world.fabric.set_partitioned(0, 1, true);
    for (std::uint64_t id = 0; id < 8; ++id) {
        const SendWork work{.wr_id = id, .flags = IBV_SEND_SIGNALED};
        EXPECT_EQ((id < 4 ? world.qb : &other)->post_send(work, world.fabric.now()), 0);
    }
    EXPECT_EQ(world.to_state(*world.qb, IBV_QPS_ERR), 0);
    EXPECT_EQ(world.to_state(other, IBV_QPS_ERR), 0);
    EXPECT_TRUE(world.b.cq->is_empty());
    EXPECT_TRUE(world.b.events.qps.empty());
    world.settle();
    EXPECT_EQ(world.b.events.count(IBV_EVENT_QP_LAST_WQE_REACHED), 2U);
    return poll_all(world.b);
}

TEST(VhcaLate, completions_of_a_queue_pair_keep_their_order) {
    World world(late());
    for (std::uint64_t id = 0; id < 32; ++id) {
        EXPECT_EQ(world.receive(id, 0, 64), 0);
        EXPECT_EQ(world.send(id, 0, 8), 0);
    }
    world.settle();
    std::vector<std::uint64_t> in_order(32);
    std::iota(in_order.begin(), in_order.end(), 0U);
    EXPECT_EQ(poll_all(world.a), in_order);
    EXPECT_EQ(poll_all(world.b), in_order);
}

TEST(VhcaLate, flushes_and_events_of_two_queue_pairs_come_in_any_order) {
    std::size_t mixed = 0, events_swapped = 0;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        World world(late(seed));
        const std::vector<std::uint64_t> ids = flush_two(world);
        ASSERT_EQ(ids.size(), 8U) << "seed " << seed;
        const auto is_first = [](std::uint64_t id) { return id < 4; };
        mixed += std::is_partitioned(ids.begin(), ids.end(), is_first) ? 0U : 1U;
        events_swapped += world.b.events.qps[0].second == world.qb ? 0U : 1U;
        auto sorted = ids;
        std::stable_partition(sorted.begin(), sorted.end(), is_first);
        EXPECT_TRUE(std::is_sorted(sorted.begin(), sorted.end())) << "seed " << seed;
    }
    EXPECT_GT(mixed, 5U);
    EXPECT_GT(events_swapped, 2U);
}

TEST(VhcaLate, seed_decides_the_order) {
    World first(late(7)), second(late(7));
    EXPECT_EQ(flush_two(first), flush_two(second));
}

TEST(VhcaLate, nothing_comes_of_a_queue_pair_that_was_destroyed) {
    World world(late());
    world.fabric.set_partitioned(0, 1, true);
    EXPECT_EQ(world.b.events.qps.size(), 0U);
    EXPECT_EQ(world.qb->post_send({.flags = IBV_SEND_SIGNALED}, world.fabric.now()), 0);
    EXPECT_EQ(world.to_state(*world.qb, IBV_QPS_ERR), 0);
    EXPECT_EQ(world.b.device.destroy_qp(*world.qb), 0);
    world.settle();
    EXPECT_TRUE(world.b.cq->is_empty());
    EXPECT_TRUE(world.b.events.qps.empty());
    EXPECT_EQ(world.b.device.destroy_cq(*world.b.cq), 0);
}

TEST(VhcaLate, late_receive_of_a_reset_queue_pair_gives_its_place_back) {
    WorldOptions options = late();
    options.uses_srq = false;
    options.cap.max_recv_wr = 1;
    World world(options);
    EXPECT_EQ(world.receive(1, 0, 64), 0);
    EXPECT_EQ(world.send(1, 0, 8), 0);
    world.fabric.run_until(world.fabric.now() + 1000);  // it is there, its completion is not
    EXPECT_EQ(world.receive(2, 0, 64), ENOMEM);
    EXPECT_EQ(world.to_state(*world.qb, IBV_QPS_RESET), 0);
    EXPECT_EQ(world.to_init(*world.qb), 0);
    EXPECT_EQ(world.receive(2, 0, 64), 0);
    world.settle();
    EXPECT_TRUE(world.b.cq->is_empty());
}

TEST(VhcaLate, late_completions_have_their_places_in_the_queue) {
    WorldOptions options = late();
    options.type = IBV_QPT_UD;
    options.uses_srq = false;
    options.node.cqe = 4;
    World world(options);
    for (std::uint64_t id = 0; id < 4; ++id)
        EXPECT_EQ(world.send(id, 0, 8), 0);
    EXPECT_TRUE(world.a.events.broken.empty());
    EXPECT_EQ(world.a.cq->resize(3), EINVAL);
    EXPECT_EQ(world.a.cq->resize(8), 0);
    for (std::uint64_t id = 4; id < 8; ++id)
        EXPECT_EQ(world.send(id, 0, 8), 0);
    EXPECT_TRUE(world.a.events.broken.empty());
    EXPECT_EQ(world.send(8, 0, 8), 0);
    EXPECT_EQ(world.a.events.broken.size(), 1U);
}

TEST(VhcaLate, armed_queue_tells_when_the_completion_is_there_to_be_polled) {
    World world(late());
    world.a.cq->arm(false);
    world.a.events.at_cq_event = [&] { EXPECT_FALSE(world.a.cq->is_empty()); };
    EXPECT_EQ(world.receive(1, 0, 64), 0);
    EXPECT_EQ(world.send(1, 0, 8), 0);
    world.settle();
    EXPECT_EQ(world.a.events.cqs.size(), 1U);
}

TEST(VhcaLate, limit_of_a_shared_receive_queue_is_told_late) {
    World world(late());
    EXPECT_EQ(world.receive(1, 0, 64), 0);
    EXPECT_EQ(world.srq->modify({0, 0, 2}, IBV_SRQ_LIMIT), 0);
    EXPECT_TRUE(world.b.events.srqs.empty());
    world.settle();
    EXPECT_EQ(world.b.events.srqs.size(), 1U);
}

TEST(VhcaNumbers, number_of_a_destroyed_queue_pair_is_used_again_if_wanted) {
    for (const bool reuses : {false, true}) {
        WorldOptions options;
        options.node.device.reuses_numbers = reuses;
        World world(options);
        const std::uint32_t number = world.qb->number();
        EXPECT_EQ(world.b.device.destroy_qp(*world.qb), 0);
        EXPECT_EQ(world.b.create_qp({.cap = options.cap}).number() == number, reuses);
    }
}

}  // namespace

}  // namespace tagwire::vhca
