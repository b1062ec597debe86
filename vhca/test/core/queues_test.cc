// SPDX-License-Identifier: BSD-3-Clause
// Send, receive and shared receive queues: posting, room, order.
#include "vhca/test/core/world.hpp"

namespace tagwire::vhca {

namespace {

WorldOptions with_send_places(std::uint32_t places) {
    WorldOptions options;
    options.cap.max_send_wr = places;
    return options;
}

SendWork unsignaled(World& world) {
    SendWork work = world.remote(IBV_WR_RDMA_WRITE, 0);
    work.flags = IBV_SEND_FENCE;  // any flag but SIGNALED
    return work;
}

TEST(VhcaSendQueue, who_never_signals_runs_out_of_places) {
    World world(with_send_places(4));
    for (std::uint64_t id = 0; id < 4; ++id) {
        ASSERT_EQ(world.send(id, 0, 8, unsignaled(world)), 0);
        world.settle();
    }
    EXPECT_EQ(world.send(4, 0, 8, unsignaled(world)), ENOMEM);
    EXPECT_TRUE(world.a.cq->is_empty());
}

TEST(VhcaSendQueue, place_comes_back_when_a_later_completion_is_polled) {
    World world(with_send_places(4));
    for (std::uint64_t id = 0; id < 3; ++id)
        ASSERT_EQ(world.send(id, 0, 8, unsignaled(world)), 0);
    ASSERT_EQ(world.send(3, 0, 8, world.remote(IBV_WR_RDMA_WRITE, 0)), 0);
    world.settle();
    EXPECT_EQ(world.send(4, 0, 8, unsignaled(world)), ENOMEM) << "completed but not polled";
    EXPECT_EQ(world.a.poll()->wc.wr_id, 3U);
    for (std::uint64_t id = 4; id < 8; ++id)
        EXPECT_EQ(world.send(id, 0, 8, unsignaled(world)), 0);
    EXPECT_EQ(world.send(8, 0, 8, unsignaled(world)), ENOMEM);
}

TEST(VhcaSendQueue, lenient_device_gives_places_back_when_requests_are_done) {
    WorldOptions options = with_send_places(4);
    options.node.device.frees_when_completed = true;
    World world(options);
    for (std::uint64_t id = 0; id < 20; ++id) {
        const SendWork work = id % 4 == 3 ? world.remote(IBV_WR_RDMA_WRITE, 0) : unsignaled(world);
        ASSERT_EQ(world.send(id, 0, 8, work), 0) << id;
        world.settle();
    }
    for (std::uint64_t id = 3; id < 20; id += 4)
        EXPECT_EQ(world.a.poll()->wc.wr_id, id);
    for (std::uint64_t id = 0; id < 4; ++id)
        EXPECT_EQ(world.send(id, 0, 8, unsignaled(world)), 0);
}

TEST(VhcaSendQueue, requests_taken_back_before_the_doorbell_never_were) {
    World world(with_send_places(4));
    ASSERT_EQ(world.receive(1, 0, 64), 0);
    ASSERT_EQ(world.send(1, 0, 8), 0);
    SendWork work = world.remote(IBV_WR_RDMA_WRITE, 1024);
    const ibv_sge sge = world.a.sge(0, 4096);  // four packets
    work.sges = {&sge, 1};
    ASSERT_EQ(world.qa->enqueue_send(work), 0);
    ASSERT_EQ(world.qa->enqueue_send(work), 0);
    world.qa->cancel_enqueued();
    world.qa->cancel_enqueued();
    world.qa->ring(world.fabric.now());
    EXPECT_EQ(world.a.wait().wc.wr_id, 1U);
    EXPECT_EQ(world.b.wait().wc.wr_id, 1U);
    for (std::uint64_t id = 2; id < 6; ++id)
        ASSERT_EQ(world.send(id, 0, 8, world.remote(IBV_WR_RDMA_WRITE, 0)), 0);
    for (std::uint64_t id = 2; id < 6; ++id) {
        const Completion completion = world.a.wait();
        EXPECT_EQ(completion.wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(completion.wc.wr_id, id);
    }
}

TEST(VhcaSendQueue, queue_pair_that_signals_all_needs_no_flag) {
    WorldOptions options;
    options.signals_all = true;
    World world(options);
    ASSERT_EQ(world.send(1, 0, 8, unsignaled(world)), 0);
    EXPECT_EQ(world.a.wait().wc.wr_id, 1U);
}

TEST(VhcaSendQueue, posting_is_legal_from_ready_to_send_on) {
    World world;
    Qp& qp = world.a.create_qp({.cap = world.options.cap});
    EXPECT_EQ(qp.post_send({}, 1), EINVAL);
    ASSERT_EQ(world.to_init(qp), 0);
    EXPECT_EQ(qp.post_send({}, 1), EINVAL);
    ASSERT_EQ(world.to_rtr(qp, world.b.route(), 1, 1), 0);
    EXPECT_EQ(qp.post_send({}, 1), EINVAL);
    ASSERT_EQ(world.to_rts(qp, 1), 0);
    EXPECT_EQ(qp.post_send({}, 1), 0);
}

TEST(VhcaSendQueue, impossible_requests_are_refused) {
    World world;
    const std::vector<ibv_sge> five(5, world.a.sge(0, 1));
    SendWork work;
    work.sges = five;
    EXPECT_EQ(world.qa->post_send(work, 1), EINVAL) << "too many elements";
    work.sges = {};
    for (const ibv_wr_opcode opcode :
         {IBV_WR_LOCAL_INV, IBV_WR_BIND_MW, IBV_WR_TSO, IBV_WR_DRIVER1}) {
        work.opcode = opcode;
        EXPECT_EQ(world.qa->post_send(work, 1), EINVAL) << opcode;
    }
    SendWork inlined{.flags = IBV_SEND_INLINE};
    EXPECT_EQ(world.send(1, 0, 65, inlined), ENOMEM);
    inlined.opcode = IBV_WR_RDMA_READ;
    EXPECT_EQ(world.send(1, 0, 8, inlined), EINVAL);
    EXPECT_EQ(world.a.device.counters().packets_sent, 0U);
}

TEST(VhcaSendQueue, fence_waits_for_reads) {
    World world;
    world.b.write(0, std::string(4000, 'o'));
    world.a.write(8000, std::string(4000, 'n'));
    ASSERT_EQ(world.send(1, 0, 4000, world.remote(IBV_WR_RDMA_READ, 0)), 0);
    SendWork fenced = world.remote(IBV_WR_RDMA_WRITE, 0);
    fenced.flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE;
    ASSERT_EQ(world.send(2, 8000, 4000, fenced), 0);
    EXPECT_EQ(world.a.device.counters().packets_sent, 1U) << "the read only";
    EXPECT_EQ(world.a.wait().wc.wr_id, 1U);
    EXPECT_EQ(world.a.wait().wc.wr_id, 2U);
    EXPECT_EQ(world.a.text(0, 4000), std::string(4000, 'o'));
    EXPECT_EQ(world.b.text(0, 4000), std::string(4000, 'n'));
}

TEST(VhcaSendQueue, request_without_fence_overtakes_the_data_of_a_read_but_not_its_completion) {
    World world;
    ASSERT_EQ(world.send(1, 0, 4000, world.remote(IBV_WR_RDMA_READ, 0)), 0);
    ASSERT_EQ(world.send(2, 0, 8, world.remote(IBV_WR_RDMA_WRITE, 0)), 0);
    EXPECT_EQ(world.a.device.counters().packets_sent, 2U);
    EXPECT_EQ(world.a.wait().wc.wr_id, 1U);
    EXPECT_EQ(world.a.wait().wc.wr_id, 2U);
}

TEST(VhcaSendQueue, no_more_reads_are_outstanding_than_allowed) {
    WorldOptions options;
    options.connection.rd_atomic = 2;
    World world(options);
    for (std::uint64_t id = 0; id < 6; ++id)
        ASSERT_EQ(world.send(id, 0, 8, world.remote(IBV_WR_RDMA_READ, 0)), 0);
    EXPECT_EQ(world.a.device.counters().packets_sent, 2U);
    for (std::uint64_t id = 0; id < 6; ++id)
        EXPECT_EQ(world.a.wait().wc.wr_id, id);
}

TEST(VhcaSendQueue, queue_pair_that_may_not_read_fails_a_read) {
    WorldOptions options;
    options.connection.rd_atomic = 0;
    World world(options);
    ASSERT_EQ(world.send(1, 0, 8, world.remote(IBV_WR_RDMA_READ, 0)), 0);
    EXPECT_EQ(world.a.wait().wc.status, IBV_WC_LOC_QP_OP_ERR);
}

TEST(VhcaSendQueue, sequence_numbers_wrap) {
    WorldOptions options;
    options.connection.psn = 0xfffffa;
    World world(options);
    world.a.write(0, std::string(20'000, 'z'));
    for (std::uint64_t id = 0; id < 3; ++id) {
        ASSERT_EQ(world.receive(id, 20'000 * id, 20'000), 0);
        ASSERT_EQ(world.send(id, 0, 20'000), 0);
        ASSERT_EQ(world.send(id, 0, 8'000, world.remote(IBV_WR_RDMA_READ, 0)), 0);
        EXPECT_EQ(world.b.wait().wc.byte_len, 20'000U);
        EXPECT_EQ(world.a.wait().wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(world.a.wait().wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(world.b.text(20'000 * id, 20'000), std::string(20'000, 'z'));
    }
}

TEST(VhcaReceiveQueue, posting_is_legal_from_init_on_and_within_the_limits) {
    WorldOptions options;
    options.cap.max_recv_wr = 2;
    World world(options);
    Qp& qp = world.a.create_qp({.cap = options.cap});
    EXPECT_EQ(qp.post_recv({}), EINVAL) << "RESET";
    ASSERT_EQ(world.to_init(qp), 0);
    const std::vector<ibv_sge> five(5, world.a.sge(0, 1));
    EXPECT_EQ(qp.post_recv({1, five}), EINVAL);
    EXPECT_EQ(qp.post_recv({1, {}}), 0);
    EXPECT_EQ(qp.post_recv({2, {}}), 0);
    EXPECT_EQ(qp.post_recv({3, {}}), ENOMEM);
}

TEST(VhcaReceiveQueue, place_comes_back_when_its_completion_is_polled) {
    WorldOptions options;
    options.cap.max_recv_wr = 1;
    World world(options);
    ASSERT_EQ(world.receive(1, 0, 8), 0);
    ASSERT_EQ(world.send(1, 0, 8), 0);
    world.settle();
    EXPECT_EQ(world.receive(2, 0, 8), ENOMEM);
    EXPECT_TRUE(world.b.poll());
    EXPECT_EQ(world.receive(2, 0, 8), 0);
}

class VhcaSrq : public testing::Test {
  protected:
    static WorldOptions shared() {
        WorldOptions options;
        options.uses_srq = true;
        return options;
    }
    World world{shared()};
};

TEST_F(VhcaSrq, receives_go_to_whoever_gets_a_message) {
    EXPECT_EQ(world.qb->post_recv({1, {}}), EINVAL);
    EXPECT_EQ(world.qb->cap().max_recv_wr, 0U);
    ASSERT_EQ(world.receive(4, 0, 64), 0);
    ASSERT_EQ(world.send(1, 0, 8), 0);
    const Completion received = world.b.wait();
    EXPECT_EQ(received.wc.wr_id, 4U);
    EXPECT_EQ(received.wc.qp_num, world.qb->number());
}

TEST_F(VhcaSrq, limit_event_comes_once_when_fewer_are_left) {
    for (std::uint64_t id = 0; id < 4; ++id)
        ASSERT_EQ(world.receive(id, 0, 64), 0);
    ibv_srq_attr attr{};
    attr.srq_limit = 3;
    ASSERT_EQ(world.srq->modify(attr, IBV_SRQ_LIMIT), 0);
    for (std::uint64_t id = 0; id < 3; ++id) {
        ASSERT_EQ(world.send(id, 0, 8), 0);
        world.settle();
        EXPECT_EQ(world.b.events.srqs.size(), id == 0 ? 0U : 1U);
    }
    EXPECT_EQ(world.b.events.srqs[0].first, IBV_EVENT_SRQ_LIMIT_REACHED);
    world.srq->query(&attr);
    EXPECT_EQ(attr.srq_limit, 0U);
    EXPECT_EQ(attr.max_wr, 64U);
}

TEST_F(VhcaSrq, limit_that_is_undercut_already_fires_at_once) {
    ibv_srq_attr attr{};
    attr.srq_limit = 1;
    ASSERT_EQ(world.srq->modify(attr, IBV_SRQ_LIMIT), 0);
    EXPECT_EQ(world.b.events.srqs.size(), 1U);
    attr.srq_limit = 65;
    EXPECT_EQ(world.srq->modify(attr, IBV_SRQ_LIMIT), EINVAL);
    EXPECT_EQ(world.srq->modify(attr, IBV_SRQ_MAX_WR), EINVAL) << "no resizing";
}

TEST_F(VhcaSrq, queue_pair_in_error_tells_its_last_and_leaves_the_receives_alone) {
    ASSERT_EQ(world.receive(4, 0, 64), 0);
    ASSERT_EQ(world.to_state(*world.qb, IBV_QPS_ERR), 0);
    EXPECT_EQ(world.b.events.count(IBV_EVENT_QP_LAST_WQE_REACHED), 1U);
    EXPECT_TRUE(world.b.cq->is_empty());
    Qp& other = world.b.create_qp({.srq = world.srq, .cap = world.options.cap});
    Qp& sender = world.a.create_qp({.cap = world.options.cap});
    world.connect(other, world.a.route(), sender.number(), 1, 1);
    world.connect(sender, world.b.route(), other.number(), 1, 1);
    ASSERT_EQ(sender.post_send({}, world.fabric.now()), 0);
    EXPECT_EQ(world.b.wait().wc.wr_id, 4U);
}

TEST_F(VhcaSrq, receive_that_was_being_filled_is_flushed) {
    world.fabric.config().room_packets = 1;
    ASSERT_EQ(world.receive(4, 0, 4096), 0);
    ASSERT_EQ(world.send(1, 0, 4096), 0);
    ASSERT_TRUE(world.fabric.run([&] { return world.b.device.counters().packets_received == 2; }));
    ASSERT_EQ(world.to_state(*world.qb, IBV_QPS_ERR), 0);
    const auto flushed = world.b.poll();
    ASSERT_TRUE(flushed);
    EXPECT_EQ(flushed->wc.wr_id, 4U);
    EXPECT_EQ(flushed->wc.status, IBV_WC_WR_FLUSH_ERR);
}

}  // namespace

}  // namespace tagwire::vhca
