// SPDX-License-Identifier: BSD-3-Clause
// Each operation between two queue pairs on a fabric that loses nothing.
#include <algorithm>
#include <atomic>

#include "vhca/test/core/world.hpp"

namespace tagwire::vhca {

namespace {

TEST(VhcaRc, send_arrives_in_the_posted_receive) {
    World world;
    world.a.write(0, "hello");
    ASSERT_EQ(world.receive(7, 100, 64), 0);
    ASSERT_EQ(world.send(3, 0, 5), 0);

    const Completion received = world.b.wait();
    EXPECT_EQ(received.wc.wr_id, 7U);
    EXPECT_EQ(received.wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(received.wc.opcode, IBV_WC_RECV);
    EXPECT_EQ(received.wc.byte_len, 5U);
    EXPECT_EQ(received.wc.qp_num, world.qb->number());
    EXPECT_EQ(received.wc.src_qp, world.qa->number());
    EXPECT_EQ(received.from, world.a.route());
    EXPECT_EQ(world.b.text(100, 5), "hello");

    const Completion sent = world.a.wait();
    EXPECT_EQ(sent.wc.wr_id, 3U);
    EXPECT_EQ(sent.wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(sent.wc.opcode, IBV_WC_SEND);
}

TEST(VhcaRc, message_is_cut_into_packets_of_the_mtu) {
    World world;
    const std::string text(10'001, 'x');
    world.a.write(0, text);
    ASSERT_EQ(world.receive(7, 0, 20'000), 0);
    ASSERT_EQ(world.send(3, 0, text.size()), 0);
    EXPECT_EQ(world.b.wait().wc.byte_len, text.size());
    EXPECT_EQ(world.b.text(0, text.size()), text);
    EXPECT_EQ(world.a.device.counters().packets_sent, 10U);
}

TEST(VhcaRc, immediate_comes_with_the_completion) {
    World world;
    ASSERT_EQ(world.receive(7, 0, 64), 0);
    SendWork work{.opcode = IBV_WR_SEND_WITH_IMM, .imm = 0x01020304};
    ASSERT_EQ(world.send(3, 0, 0, work), 0);
    const Completion received = world.b.wait();
    EXPECT_EQ(received.wc.wc_flags, unsigned{IBV_WC_WITH_IMM});
    EXPECT_EQ(received.wc.imm_data, 0x01020304U);
    EXPECT_EQ(received.wc.byte_len, 0U);
}

TEST(VhcaRc, write_needs_no_receive_and_makes_no_completion_at_the_target) {
    World world;
    world.a.write(0, std::string(5000, 'w'));
    ASSERT_EQ(world.send(1, 0, 5000, world.remote(IBV_WR_RDMA_WRITE, 300)), 0);
    EXPECT_EQ(world.a.wait().wc.opcode, IBV_WC_RDMA_WRITE);
    EXPECT_EQ(world.b.text(300, 5000), std::string(5000, 'w'));
    EXPECT_EQ(world.b.text(299, 1)[0], '\0');
    EXPECT_EQ(world.b.text(5300, 1)[0], '\0');
    EXPECT_TRUE(world.b.cq->is_empty());
}

TEST(VhcaRc, who_polls_memory_sees_all_of_a_write_with_its_last_byte) {
    World world;
    world.a.write(0, std::string(3000, 'w'));
    ASSERT_EQ(world.send(1, 0, 3000, world.remote(IBV_WR_RDMA_WRITE, 0)), 0);
    const bool arrived = world.fabric.run([&] {
        // SYNC last_byte: what a program that polls on memory does.
        return std::atomic_ref(world.b.memory[2999]).load(std::memory_order_acquire) !=
               std::byte{0};
    });
    EXPECT_TRUE(arrived);
    EXPECT_EQ(world.b.text(0, 3000), std::string(3000, 'w'));
}

TEST(VhcaRc, write_with_immediate_consumes_a_receive) {
    World world;
    world.a.write(0, std::string(3000, 'w'));
    ASSERT_EQ(world.receive(9, 0, 0), 0);
    SendWork work = world.remote(IBV_WR_RDMA_WRITE_WITH_IMM, 300);
    work.imm = 77;
    ASSERT_EQ(world.send(1, 0, 3000, work), 0);
    const Completion received = world.b.wait();
    EXPECT_EQ(received.wc.wr_id, 9U);
    EXPECT_EQ(received.wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    EXPECT_EQ(received.wc.byte_len, 3000U);
    EXPECT_EQ(received.wc.imm_data, 77U);
    EXPECT_EQ(world.b.text(300, 3000), std::string(3000, 'w'));
}

TEST(VhcaRc, read_brings_the_data_of_the_target) {
    World world;
    world.b.write(40, std::string(5000, 'r'));
    ASSERT_EQ(world.send(1, 100, 5000, world.remote(IBV_WR_RDMA_READ, 40)), 0);
    const Completion done = world.a.wait();
    EXPECT_EQ(done.wc.opcode, IBV_WC_RDMA_READ);
    EXPECT_EQ(done.wc.byte_len, 5000U);
    EXPECT_EQ(world.a.text(100, 5000), std::string(5000, 'r'));
    EXPECT_TRUE(world.b.cq->is_empty());
}

TEST(VhcaRc, fetch_and_add_returns_the_old_value_in_host_order) {
    World world;
    world.b.word(64) = 40;
    SendWork work = world.remote(IBV_WR_ATOMIC_FETCH_AND_ADD, 64);
    work.compare_add = 2;
    ASSERT_EQ(world.send(1, 8, 8, work), 0);
    EXPECT_EQ(world.a.wait().wc.opcode, IBV_WC_FETCH_ADD);
    EXPECT_EQ(world.a.word(8), 40U);
    EXPECT_EQ(world.b.word(64), 42U);
}

TEST(VhcaRc, compare_and_swap_changes_only_what_compares_equal) {
    World world;
    world.b.word(64) = 40;
    SendWork work = world.remote(IBV_WR_ATOMIC_CMP_AND_SWP, 64);
    work.compare_add = 39;
    work.swap = 1;
    ASSERT_EQ(world.send(1, 8, 8, work), 0);
    EXPECT_EQ(world.a.wait().wc.opcode, IBV_WC_COMP_SWAP);
    EXPECT_EQ(world.a.word(8), 40U);
    EXPECT_EQ(world.b.word(64), 40U);
    work.compare_add = 40;
    ASSERT_EQ(world.send(1, 8, 8, work), 0);
    world.a.wait();
    EXPECT_EQ(world.b.word(64), 1U);
}

TEST(VhcaRc, empty_operations_complete_and_look_at_no_key) {
    World world;
    ASSERT_EQ(world.receive(1, 0, 0), 0);
    SendWork work = world.remote(IBV_WR_RDMA_WRITE, 0);
    work.rkey = 0;
    EXPECT_EQ(world.send(1, 0, 0, work), 0);
    work.opcode = IBV_WR_RDMA_READ;
    EXPECT_EQ(world.send(2, 0, 0, work), 0);
    EXPECT_EQ(world.send(3, 0, 0), 0);
    for (std::uint64_t id = 1; id <= 3; ++id) {
        const Completion done = world.a.wait();
        EXPECT_EQ(done.wc.wr_id, id);
        EXPECT_EQ(done.wc.status, IBV_WC_SUCCESS);
    }
    EXPECT_EQ(world.b.wait().wc.byte_len, 0U);
}

TEST(VhcaRc, scatter_and_gather_use_all_elements_in_order) {
    World world;
    world.a.write(0, "abc");
    world.a.write(50, "defg");
    const std::vector to = {world.b.sge(0, 2), world.b.sge(20, 0), world.b.sge(30, 10)};
    ASSERT_EQ(world.qb->post_recv({1, to}), 0);
    const std::vector from = {world.a.sge(0, 3), world.a.sge(50, 4)};
    SendWork work;
    work.sges = from;
    ASSERT_EQ(world.qa->post_send(work, world.fabric.now()), 0);
    EXPECT_EQ(world.b.wait().wc.byte_len, 7U);
    EXPECT_EQ(world.b.text(0, 2) + world.b.text(30, 5), "abcdefg");
}

TEST(VhcaRc, inline_data_is_copied_when_posted_and_its_key_ignored) {
    World world;
    std::string text = "inline";
    const ibv_sge sge{reinterpret_cast<std::uint64_t>(text.data()), 6, 0xbad};
    ASSERT_EQ(world.receive(1, 0, 64), 0);
    SendWork work{.flags = IBV_SEND_INLINE};
    work.sges = {&sge, 1};
    ASSERT_EQ(world.qa->enqueue_send(work), 0);
    text = "......";
    world.qa->ring(world.fabric.now());
    world.b.wait();
    EXPECT_EQ(world.b.text(0, 6), "inline");
}

TEST(VhcaRc, list_of_requests_leaves_with_the_doorbell) {
    World world;
    ASSERT_EQ(world.receive(1, 0, 64), 0);
    ASSERT_EQ(world.qa->enqueue_send({}), 0);
    world.settle();
    EXPECT_EQ(world.a.device.counters().packets_sent, 0U);
    world.qa->ring(world.fabric.now());
    EXPECT_EQ(world.b.wait().wc.status, IBV_WC_SUCCESS);
}

TEST(VhcaRc, acknowledgements_of_a_burst_are_one) {
    World world;
    for (std::uint64_t id = 0; id < 32; ++id) {
        ASSERT_EQ(world.receive(id, 0, 8), 0);
        ASSERT_EQ(world.send(id, 0, 8), 0);
    }
    world.settle();
    EXPECT_EQ(world.b.device.counters().packets_sent, 1U);
    EXPECT_EQ(world.a.device.counters().packets_sent, 32U);
}

TEST(VhcaRc, both_directions_at_once) {
    World world;
    world.a.write(0, "from a");
    world.b.write(0, "from b");
    const ibv_sge at_a = world.a.sge(100, 10), from_b = world.b.sge(0, 6);
    ASSERT_EQ(world.qa->post_recv({1, {&at_a, 1}}), 0);
    ASSERT_EQ(world.receive(1, 100, 10), 0);
    ASSERT_EQ(world.send(2, 0, 6), 0);
    SendWork back;
    back.sges = {&from_b, 1};
    ASSERT_EQ(world.qb->post_send(back, world.fabric.now()), 0);
    world.settle();
    EXPECT_EQ(world.b.text(100, 6), "from a");
    EXPECT_EQ(world.a.text(100, 6), "from b");
}

TEST(VhcaRc, loopback_within_one_device) {
    World world;
    Qp& first = world.a.create_qp({.cap = world.options.cap});
    Qp& second = world.a.create_qp({.cap = world.options.cap});
    world.connect(first, world.a.route(), second.number(), 5, 6);
    world.connect(second, world.a.route(), first.number(), 6, 5);
    world.a.write(0, "self");
    const ibv_sge to = world.a.sge(100, 4), from = world.a.sge(0, 4);
    ASSERT_EQ(second.post_recv({1, {&to, 1}}), 0);
    SendWork work;
    work.sges = {&from, 1};
    ASSERT_EQ(first.post_send(work, world.fabric.now()), 0);
    EXPECT_EQ(world.a.wait().wc.qp_num, second.number());
    EXPECT_EQ(world.a.text(100, 4), "self");
}

TEST(VhcaRc, packets_that_the_wire_refuses_are_continued) {
    WorldOptions options;
    options.fabric.room_packets = 2;
    World world(options);
    const std::string text(20'000, 't');
    world.a.write(0, text);
    ASSERT_EQ(world.receive(1, 0, text.size()), 0);
    ASSERT_EQ(world.send(1, 0, text.size()), 0);
    EXPECT_FALSE(world.a.device.is_drained());
    EXPECT_EQ(world.b.wait().wc.byte_len, text.size());
    EXPECT_EQ(world.b.text(0, text.size()), text);
    ASSERT_EQ(world.send(2, 0, text.size(), world.remote(IBV_WR_RDMA_READ, 0)), 0);
    world.settle();
    EXPECT_TRUE(world.a.device.is_drained());
    EXPECT_EQ(world.a.wait().wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(world.a.wait().wc.opcode, IBV_WC_RDMA_READ);
}

// The wire takes fewer packets at once than the first queue pair has to send.
TEST(VhcaRc, queue_pairs_take_turns_where_the_wire_is_narrow) {
    WorldOptions options;
    options.fabric.room_packets = 4;
    World world(options);
    Qp& sender = world.a.create_qp({.cap = world.options.cap});
    Qp& receiver = world.b.create_qp({.cap = world.options.cap});
    world.connect(receiver, world.a.route(), sender.number(), 1, 1);
    world.connect(sender, world.b.route(), receiver.number(), 1, 1);
    const std::string text(20'000, 't');
    world.a.write(0, text);
    ASSERT_EQ(world.send(1, 0, text.size(), world.remote(IBV_WR_RDMA_WRITE, 0)), 0);
    const ibv_sge from = world.a.sge(0, text.size());
    SendWork write = world.remote(IBV_WR_RDMA_WRITE, 30'000);
    write.wr_id = 2;
    write.flags = IBV_SEND_SIGNALED;
    write.sges = {&from, 1};
    ASSERT_EQ(sender.post_send(write, world.fabric.now()), 0);
    EXPECT_EQ(world.a.wait().wc.status, IBV_WC_SUCCESS);
    for (const std::size_t at : {std::size_t{0}, std::size_t{30'000}}) {
        const std::string arrived = world.b.text(at, text.size());
        EXPECT_GT(std::count(arrived.begin(), arrived.end(), 't'), 10'000) << "one waited";
    }
    EXPECT_EQ(world.a.wait().wc.status, IBV_WC_SUCCESS);
}

}  // namespace

}  // namespace tagwire::vhca
