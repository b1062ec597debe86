// SPDX-License-Identifier: BSD-3-Clause
// Completion queues: announcing, overrunning, resizing, purging.
#include "vhca/test/core/world.hpp"

namespace tagwire::vhca {

namespace {

class VhcaCq : public testing::Test {
  protected:
    explicit VhcaCq(const WorldOptions& options = {}) : world(options) {}

    /// A message for b, with its completion.
    void deliver(bool is_solicited = false, std::uint64_t wr_id = 1) {
        ASSERT_EQ(world.receive(wr_id, 0, 64), 0);
        SendWork work{.flags = IBV_SEND_SIGNALED};
        work.flags |= is_solicited ? unsigned{IBV_SEND_SOLICITED} : 0U;
        ASSERT_EQ(world.send(1, 0, 8, work), 0);
        world.settle();
        while (world.a.poll()) {
        }
    }
    [[nodiscard]] std::size_t announced() const { return world.b.events.cqs.size(); }

    World world;
};

TEST_F(VhcaCq, event_comes_once_per_arming) {
    deliver();
    EXPECT_EQ(announced(), 0U) << "not armed";
    world.b.poll();
    world.b.cq->arm(false);
    deliver();
    EXPECT_EQ(announced(), 1U);
    deliver();
    EXPECT_EQ(announced(), 1U);
}

TEST_F(VhcaCq, arming_fires_at_once_for_what_came_before_and_was_not_announced) {
    deliver();
    world.b.cq->arm(false);
    EXPECT_EQ(announced(), 1U);
}

TEST_F(VhcaCq, arming_does_not_announce_a_second_time_what_was_announced_but_not_polled) {
    world.b.cq->arm(false);
    deliver();
    EXPECT_EQ(announced(), 1U);
    world.b.cq->arm(false);
    EXPECT_EQ(announced(), 1U);
    deliver();
    EXPECT_EQ(announced(), 2U);
}

TEST_F(VhcaCq, arming_does_not_fire_for_what_was_polled) {
    deliver();
    world.b.poll();
    world.b.cq->arm(false);
    EXPECT_EQ(announced(), 0U);
}

TEST_F(VhcaCq, arming_for_solicited_waits_for_a_solicited_one) {
    world.b.cq->arm(true);
    deliver();
    EXPECT_EQ(announced(), 0U);
    deliver(true);
    EXPECT_EQ(announced(), 1U);
}

TEST_F(VhcaCq, arming_for_solicited_fires_at_once_only_for_a_solicited_one) {
    deliver();
    world.b.cq->arm(true);
    EXPECT_EQ(announced(), 0U);
    world.b.poll();
    deliver(true);
    EXPECT_EQ(announced(), 1U);
    deliver(true);
    world.b.cq->arm(true);
    EXPECT_EQ(announced(), 2U);
}

TEST_F(VhcaCq, arming_for_all_is_not_weakened_by_arming_for_solicited) {
    world.b.cq->arm(false);
    world.b.cq->arm(true);
    deliver();
    EXPECT_EQ(announced(), 1U);
}

TEST_F(VhcaCq, errors_count_as_solicited) {
    ASSERT_EQ(world.receive(1, 0, 64), 0);
    world.b.cq->arm(true);
    ASSERT_EQ(world.to_state(*world.qb, IBV_QPS_ERR), 0);
    EXPECT_EQ(announced(), 1U);
}

TEST_F(VhcaCq, resizing_keeps_what_is_in_it) {
    for (int i = 0; i < 3; ++i)
        deliver();
    EXPECT_EQ(world.b.cq->resize(2), EINVAL);
    EXPECT_EQ(world.b.cq->resize(0), EINVAL);
    EXPECT_EQ(world.b.cq->resize(1U << 23), EINVAL);
    EXPECT_EQ(world.b.cq->resize(3), 0);
    EXPECT_GE(world.b.cq->cqe(), 3U);
    for (int i = 0; i < 3; ++i)
        EXPECT_TRUE(world.b.poll());
    EXPECT_FALSE(world.b.poll());
}

TEST_F(VhcaCq, order_is_kept_where_the_queue_was_empty_before_and_through_a_resize) {
    constexpr std::uint64_t kMessages = 40;  // more than once around
    std::uint64_t delivered = 0, polled = 0;
    const auto poll_next = [&] {
        const auto completion = world.b.poll();
        ASSERT_TRUE(completion);
        EXPECT_EQ(completion->wc.wr_id, ++polled);
    };
    while (delivered < kMessages) {
        for (std::uint64_t burst = delivered % 4; burst != UINT64_MAX; --burst)
            deliver(false, ++delivered);
        if (delivered % 3 == 0)
            poll_next();
        const std::uint32_t capacity = delivered % 2 == 0 ? 8 : 16;
        EXPECT_EQ(world.b.cq->resize(capacity), 0);
        while (polled < delivered)
            poll_next();
        EXPECT_FALSE(world.b.poll());
    }
}

TEST_F(VhcaCq, destroying_a_queue_pair_takes_only_its_completions_away) {
    Qp& other = world.b.create_qp({.cap = world.options.cap});
    ASSERT_EQ(world.to_init(other), 0);
    deliver();
    ASSERT_EQ(other.post_recv({8, {}}), 0);
    ASSERT_EQ(other.post_recv({9, {}}), 0);
    ASSERT_EQ(world.to_state(other, IBV_QPS_ERR), 0);
    deliver();
    ASSERT_EQ(world.b.device.destroy_qp(*world.qb), 0);
    EXPECT_EQ(world.b.poll()->wc.wr_id, 8U);
    EXPECT_EQ(world.b.poll()->wc.wr_id, 9U);
    EXPECT_FALSE(world.b.poll());
}

class VhcaCqOverrun : public VhcaCq {
  protected:
    static WorldOptions small() {
        WorldOptions options;
        options.node.cqe = 4;
        options.connection.timeout = 5;
        return options;
    }
    VhcaCqOverrun() : VhcaCq(small()) {}
};

TEST_F(VhcaCqOverrun, breaks_the_queue_and_takes_its_queue_pairs_along) {
    const std::uint32_t cqe = world.b.cq->cqe();
    for (std::uint32_t i = 0; i <= cqe; ++i) {
        EXPECT_EQ(world.qb->state(), IBV_QPS_RTS);
        deliver();
    }
    EXPECT_EQ(world.b.events.broken.size(), 1U);
    EXPECT_EQ(world.b.events.count(IBV_EVENT_QP_FATAL), 1U);
    EXPECT_EQ(world.qb->state(), IBV_QPS_ERR);
    for (std::uint32_t i = 0; i < cqe; ++i)
        EXPECT_TRUE(world.b.poll()) << "what was in it is there";
    EXPECT_FALSE(world.b.poll());
    EXPECT_EQ(world.qb->post_recv({1, {}}), 0);
    EXPECT_FALSE(world.b.poll()) << "a broken queue takes nothing";
}

TEST_F(VhcaCqOverrun, full_queue_is_no_error) {
    for (std::uint32_t i = 0; i < world.b.cq->cqe(); ++i)
        deliver();
    EXPECT_TRUE(world.b.events.broken.empty());
}

}  // namespace

}  // namespace tagwire::vhca
