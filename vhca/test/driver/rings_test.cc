// SPDX-License-Identifier: BSD-3-Clause
// Messages from entry to entry: posted as libmlx5 does, carried out by the device, polled.
#include "vhca/test/core/dc_world.hpp"
#include "vhca/test/core/tag_world.hpp"
#include "vhca/test/driver/machine.hpp"

namespace tagwire::vhca::driver {

namespace {

std::uint8_t kind_of(std::optional<mlx5_cqe64> cqe) {
    return cqe ? mlx5dv_get_cqe_opcode(&*cqe) : std::uint8_t{MLX5_CQE_INVALID};
}
std::uint8_t syndrome_of(const mlx5_cqe64& cqe) {
    mlx5_err_cqe error;
    std::memcpy(&error, &cqe, sizeof error);
    return error.syndrome;
}

class VhcaRcRings : public testing::Test {
  protected:
    explicit VhcaRcRings(ibv_qp_type type = IBV_QPT_RC, const MachineOptions& options = {},
                         const WorldOptions& world_options = {}, DataInCqe data = {})
        : world(world_options),
          at_a(world.a),
          at_b(world.b),
          a(world.a, at_a, {.type = type, .data_in_cqe = data}, 0xa, options),
          b(world.b, at_b, {.type = type, .data_in_cqe = data}, 0xb, options) {
        world.connect(*a.qp, world.b.route(), b.qp->number(), 5, 9);
        world.connect(*b.qp, world.a.route(), a.qp->number(), 9, 5);
    }
    void run() {
        do {
            world.settle();
        } while (a.ring->poll(*a.qp, world.fabric.now()));
    }
    /// The completion of the oldest request.
    void expect_done(std::uint16_t counter, std::uint8_t opcode) {
        const auto cqe = at_a.polled.poll();
        ASSERT_EQ(kind_of(cqe), MLX5_CQE_REQ);
        EXPECT_EQ(be16toh(cqe->wqe_counter), counter);
        EXPECT_EQ(be32toh(cqe->sop_drop_qpn) >> 24, opcode);
        EXPECT_EQ(be32toh(cqe->srqn_uidx), 0xaU);
    }

    World world;
    Completions at_a, at_b;
    Machine a, b;
};

class VhcaUdRings : public VhcaRcRings {
  protected:
    VhcaUdRings() : VhcaRcRings(IBV_QPT_UD, {.context = {.type = IBV_QPT_UD}}) {}
};

class VhcaFewRings : public VhcaRcRings {
  protected:
    VhcaFewRings() : VhcaRcRings(IBV_QPT_RC, {.blocks = 16, .requests = 2}) {}
};

/// Short data within the entries, which come late.
class VhcaShortLateRings : public VhcaRcRings {
  protected:
    VhcaShortLateRings() : VhcaRcRings(IBV_QPT_RC, {}, late(), {.received = 32, .read = 32}) {}
    static WorldOptions late() {
        WorldOptions options;
        options.node.device.late_ns_max = 10'000;
        return options;
    }
    static std::string data_of(const mlx5_cqe64& cqe, std::size_t bytes) {
        EXPECT_EQ(cqe.op_own & 0xc, MLX5_INLINE_SCATTER_32);
        return {reinterpret_cast<const char*>(&cqe), bytes};
    }
};

TEST_F(VhcaShortLateRings, data_that_fit_are_in_the_entry_and_nowhere_else) {
    for (std::uint32_t bytes = 1; bytes != 34; ++bytes) {
        const std::string text(bytes, static_cast<char>('a' + bytes % 26));
        world.b.write(4096, std::string(64, '.'));
        b.receive(4096, 1024);
        a.sends.post(Entry(MLX5_OPCODE_SEND).text(text));
        run();
        ASSERT_EQ(kind_of(at_a.polled.poll()), MLX5_CQE_REQ);
        const auto cqe = at_b.polled.poll();
        ASSERT_EQ(kind_of(cqe), MLX5_CQE_RESP_SEND);
        EXPECT_EQ(be32toh(cqe->byte_cnt), bytes);
        if (bytes <= 32) {
            EXPECT_EQ(data_of(*cqe, bytes), text);
            EXPECT_EQ(world.b.text(4096, bytes), std::string(bytes, '.'));
        } else {
            EXPECT_EQ(cqe->op_own & 0xc, 0);
            EXPECT_EQ(world.b.text(4096, bytes), text);
        }
    }
}

TEST_F(VhcaShortLateRings, what_was_read_is_in_the_entry_if_there_is_one) {
    world.b.write(512, "readable");
    world.a.write(64, "........");
    const auto read = [this](std::uint8_t flags) {
        return Entry(MLX5_OPCODE_RDMA_READ, flags)
            .remote(world.b.address(512), world.b.mr->key)
            .data(world.a.sge(64, 8));
    };
    a.sends.post(read(MLX5_WQE_CTRL_CQ_UPDATE));
    run();
    const auto cqe = at_a.polled.poll();
    ASSERT_EQ(kind_of(cqe), MLX5_CQE_REQ);
    EXPECT_EQ(data_of(*cqe, 8), "readable");
    EXPECT_EQ(world.a.text(64, 8), "........");
    a.sends.post(read(0));
    run();
    EXPECT_EQ(world.a.text(64, 8), "readable");
}

TEST_F(VhcaShortLateRings, an_atomic_tells_the_value_before_in_the_entry) {
    world.b.word(1024) = 40;
    a.sends.post(Entry(MLX5_OPCODE_ATOMIC_FA)
                     .remote(world.b.address(1024), world.b.mr->key)
                     .atomic(2, 0)
                     .data(world.a.sge(128, 8)));
    run();
    const auto cqe = at_a.polled.poll();
    ASSERT_EQ(kind_of(cqe), MLX5_CQE_REQ);
    const std::string told = data_of(*cqe, 8);
    std::uint64_t before = 0;
    std::memcpy(&before, told.data(), sizeof before);
    EXPECT_EQ(before, 40U);
    EXPECT_EQ(world.b.word(1024), 42U);
}

TEST_F(VhcaRcRings, messages_of_inline_data_and_pointers_arrive) {
    world.a.write(0, "from the memory of the program");
    std::uint16_t received = 0;
    for (std::uint32_t bytes = 1; bytes != 300; ++bytes) {
        const std::string header(bytes, static_cast<char>('a' + bytes % 26));
        b.receive(4096, 1024);
        const std::uint16_t at = a.sends.post(Entry(MLX5_OPCODE_SEND_IMM)
                                                  .immediate(htobe32(bytes))
                                                  .text(header)
                                                  .data(world.a.sge(5, 10)));
        run();
        expect_done(at, MLX5_OPCODE_SEND_IMM);
        const auto cqe = at_b.polled.poll();
        ASSERT_EQ(kind_of(cqe), MLX5_CQE_RESP_SEND_IMM);
        EXPECT_EQ(be32toh(cqe->byte_cnt), bytes + 10);
        EXPECT_EQ(be32toh(cqe->imm_inval_pkey), bytes);
        EXPECT_EQ(be16toh(cqe->wqe_counter), received++);
        EXPECT_EQ(be32toh(cqe->srqn_uidx), 0xbU);
        ASSERT_EQ(world.b.text(4096, bytes + 10), header + "the memory");
    }
}

TEST_F(VhcaRcRings, remote_memory_is_written_read_and_counted) {
    world.a.write(0, "written!");
    world.b.write(512, "readable");
    world.b.word(1024) = 40;
    const auto remote = [this](std::uint8_t opcode, std::size_t offset) {
        return Entry(opcode).remote(world.b.address(offset), world.b.mr->key);
    };
    const auto write = a.sends.post(remote(MLX5_OPCODE_RDMA_WRITE, 0).data(world.a.sge(0, 8)));
    const auto read = a.sends.post(remote(MLX5_OPCODE_RDMA_READ, 512).data(world.a.sge(64, 8)));
    const auto add =
        a.sends.post(remote(MLX5_OPCODE_ATOMIC_FA, 1024).atomic(2, 0).data(world.a.sge(128, 8)));
    const auto swap =
        a.sends.post(remote(MLX5_OPCODE_ATOMIC_CS, 1024).atomic(77, 42).data(world.a.sge(136, 8)));
    a.sends.post(Entry(MLX5_OPCODE_NOP, 0));
    const auto nop = a.sends.post(Entry(MLX5_OPCODE_NOP));
    run();
    expect_done(write, MLX5_OPCODE_RDMA_WRITE);
    expect_done(read, MLX5_OPCODE_RDMA_READ);
    expect_done(add, MLX5_OPCODE_ATOMIC_FA);
    expect_done(swap, MLX5_OPCODE_ATOMIC_CS);
    expect_done(nop, MLX5_OPCODE_NOP);
    EXPECT_FALSE(at_a.polled.poll().has_value());
    EXPECT_EQ(world.b.text(0, 8), "written!");
    EXPECT_EQ(world.a.text(64, 8), "readable");
    EXPECT_EQ(world.a.word(128), 40U);
    EXPECT_EQ(world.a.word(136), 42U);
    EXPECT_EQ(world.b.word(1024), 77U);
}

TEST_F(VhcaRcRings, what_is_no_request_fails_in_its_turn) {
    b.receive(0, 64);
    const auto good = a.sends.post(Entry(MLX5_OPCODE_SEND).text("good"));
    const auto bad = a.sends.post(Entry(MLX5_OPCODE_UMR, 0));
    const auto late = a.sends.post(Entry(MLX5_OPCODE_SEND, 0).text("late"));
    run();
    expect_done(good, MLX5_OPCODE_SEND);
    auto cqe = at_a.polled.poll();
    ASSERT_EQ(kind_of(cqe), MLX5_CQE_REQ_ERR);
    EXPECT_EQ(be16toh(cqe->wqe_counter), bad);
    EXPECT_EQ(syndrome_of(*cqe), MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
    cqe = at_a.polled.poll();
    ASSERT_EQ(kind_of(cqe), MLX5_CQE_REQ_ERR);
    EXPECT_EQ(be16toh(cqe->wqe_counter), late);
    EXPECT_EQ(syndrome_of(*cqe), MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
    EXPECT_EQ(a.qp->state(), IBV_QPS_ERR);
    // Posted in the error state.
    const auto dead = a.sends.post(Entry(MLX5_OPCODE_SEND).text("dead"));
    run();
    cqe = at_a.polled.poll();
    ASSERT_EQ(kind_of(cqe), MLX5_CQE_REQ_ERR);
    EXPECT_EQ(be16toh(cqe->wqe_counter), dead);
}

TEST_F(VhcaRcRings, more_pieces_than_the_device_takes_are_refused) {
    Entry entry(MLX5_OPCODE_SEND);
    for (unsigned i = 0; i != 31; ++i)
        entry.data(world.a.sge(i, 1));
    a.sends.post(entry);
    run();
    const auto cqe = at_a.polled.poll();
    ASSERT_EQ(kind_of(cqe), MLX5_CQE_REQ_ERR);
    EXPECT_EQ(syndrome_of(*cqe), MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
}

TEST_F(VhcaRcRings, a_counter_beyond_the_ring_is_one_failure) {
    a.sends.record.set(1, 9);  // of 8 blocks
    run();
    EXPECT_EQ(kind_of(at_a.polled.poll()), MLX5_CQE_REQ_ERR);
    EXPECT_FALSE(at_a.polled.poll().has_value());
    EXPECT_EQ(a.qp->state(), IBV_QPS_ERR);
    run();
    EXPECT_FALSE(at_a.polled.poll().has_value());
}

TEST_F(VhcaRcRings, an_entry_that_ends_beyond_the_counter_is_none) {
    const auto bytes = Entry(MLX5_OPCODE_SEND).text(std::string(200, 'x')).finish(0);
    a.sends.memory.write(0, bytes);
    a.sends.record.set(1, 2);  // of 4 blocks
    run();
    const auto cqe = at_a.polled.poll();
    ASSERT_EQ(kind_of(cqe), MLX5_CQE_REQ_ERR);
    EXPECT_EQ(syndrome_of(*cqe), MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
}

TEST_F(VhcaRcRings, nothing_is_taken_before_the_queue_pair_may_send) {
    ASSERT_EQ(world.to_state(*a.qp, IBV_QPS_RESET), 0);
    a.ring->reset();
    a.sends.posted = 0;
    a.sends.post(Entry(MLX5_OPCODE_NOP));
    EXPECT_FALSE(a.ring->poll(*a.qp, 0));
    world.connect(*a.qp, world.b.route(), b.qp->number(), 5, 9);
    run();
    expect_done(0, MLX5_OPCODE_NOP);
}

TEST_F(VhcaRcRings, a_record_from_before_a_reset_posts_nothing) {
    a.sends.post(Entry(MLX5_OPCODE_NOP, 0));
    const auto before = a.sends.post(Entry(MLX5_OPCODE_NOP));
    run();
    expect_done(before, MLX5_OPCODE_NOP);
    ASSERT_EQ(world.to_state(*a.qp, IBV_QPS_RESET), 0);
    a.ring->reset();
    a.sends.posted = 0;  // the program's own counter; it leaves the record alone
    world.connect(*a.qp, world.b.route(), b.qp->number(), 5, 9);
    run();
    EXPECT_FALSE(at_a.polled.poll().has_value());
    EXPECT_EQ(a.qp->state(), IBV_QPS_RTS);
    const auto after = a.sends.post(Entry(MLX5_OPCODE_NOP));
    run();
    expect_done(after, MLX5_OPCODE_NOP);
}

TEST_F(VhcaFewRings, entries_stay_in_the_ring_while_the_device_has_no_room) {
    for (unsigned i = 0; i != 6; ++i)
        a.sends.post(Entry(MLX5_OPCODE_SEND).text(std::string(1, static_cast<char>('0' + i))));
    EXPECT_TRUE(a.ring->poll(*a.qp, world.fabric.now()));
    EXPECT_FALSE(a.ring->poll(*a.qp, world.fabric.now()));
    for (unsigned i = 0; i != 6; ++i)
        b.receive(i, 1);
    run();
    for (std::uint16_t i = 0; i != 6; ++i)
        expect_done(i, MLX5_OPCODE_SEND);
    EXPECT_EQ(world.b.text(0, 6), "012345");
}

TEST_F(VhcaUdRings, datagrams_arrive_where_their_address_leads) {
    mlx5_wqe_av av = address_vector(b.qp->number() | MLX5_EXTENDED_UD_AV, 0, 1);
    av.key.qkey = {htobe32(kQkey), 0};
    b.receive(0, 256);
    // The address vector ends where the ring does.
    for (unsigned i = 0; i != 7; ++i)
        a.sends.post(Entry(MLX5_OPCODE_NOP, 0));
    run();
    const auto at = a.sends.post(Entry(MLX5_OPCODE_SEND).add(av).text("datagram"));
    run();
    expect_done(at, MLX5_OPCODE_SEND);
    const auto cqe = at_b.polled.poll();
    ASSERT_EQ(kind_of(cqe), MLX5_CQE_RESP_SEND);
    EXPECT_EQ(be32toh(cqe->flags_rqpn) & 0xffffff, a.qp->number());
    EXPECT_EQ(be32toh(cqe->byte_cnt), kGrhBytes + 8);
    EXPECT_EQ(world.b.text(kGrhBytes, 8), "datagram");
}

TEST(VhcaDcRings, an_initiator_reaches_a_target_with_a_shared_list) {
    DcWorld world({.targets = 1});
    Host &here = world.a(), &there = world.target(0);
    Completions at_a(here), at_b(there);
    Machine dci(here, at_a, {.type = IBV_QPT_DRIVER, .dc = {.kind = DcKind::kInitiator}}, 7,
                {.context = {.type = IBV_QPT_DRIVER, .dc = DcKind::kInitiator}});
    world.to_rts(*dci.qp);
    PostedList posted(8);
    ReceiveList list(posted.memory.ring(), posted.record.address());
    std::uint32_t target_index = 8;
    Srq* srq = nullptr;
    ASSERT_EQ(
        there.device.create_srq({.pd = there.pd, .wr_max = 8, .sge_max = 1, .source = &list}, &srq),
        0);
    Qp& dct = there.create_qp({.type = IBV_QPT_DRIVER,
                               .send_cq = at_b.cq,
                               .recv_cq = at_b.cq,
                               .srq = srq,
                               .dc = {.kind = DcKind::kTarget, .key = kDcKey},
                               .user = &target_index});
    ASSERT_EQ(world.modify(dct, IBV_QPS_INIT, DcWorld::kDctInit), 0);
    ASSERT_EQ(world.modify(dct, IBV_QPS_RTR, DcWorld::kDctRtr), 0);
    const auto run = [&] {
        do {
            world.settle();
        } while (dci.ring->poll(*dci.qp, world.fabric.now()));
    };
    const auto small = address_vector(dct.number(), kDcKey, 1);
    const auto big = address_vector(dct.number() | MLX5_EXTENDED_UD_AV, kDcKey, 1);
    for (unsigned i = 0; i != 20; ++i) {
        const std::uint32_t index = posted.post(there.sge(0, 64));
        const std::string text(16 + i, static_cast<char>('a' + i));
        Entry entry(MLX5_OPCODE_SEND);
        const auto at =
            dci.sends.post((i % 2 == 0 ? entry.add(small, 16) : entry.add(big)).text(text));
        dci.sends.post(Entry(MLX5_OPCODE_NOP, 0).add(small, 16).text(""));
        run();
        const auto done = at_a.polled.poll();
        ASSERT_EQ(kind_of(done), MLX5_CQE_REQ);
        EXPECT_EQ(be16toh(done->wqe_counter), at);
        const auto cqe = at_b.polled.poll();
        ASSERT_EQ(kind_of(cqe), MLX5_CQE_RESP_SEND);
        EXPECT_EQ(be16toh(cqe->wqe_counter), index);
        EXPECT_EQ(be32toh(cqe->srqn_uidx), target_index);
        EXPECT_EQ(there.text(0, text.size()), text);
        posted.release(index);
    }
}

/// a sends to a tag-matching SRQ of b, that a queue pair of b commands.
class VhcaTagRings : public testing::Test {
  protected:
    VhcaTagRings()
        : world(with_tags()),
          at_a(world.a),
          at_b(world.b),
          a(world.a, at_a, {}, 0xa),
          list(posted.memory.ring(), posted.record.address()) {
        SrqConfig config{.pd = world.b.pd, .wr_max = 8, .sge_max = 1};
        config.tm = {.tags_max = 4,
                     .ops_max = 4,
                     .cq = at_b.cq,
                     .keeps_places = true,
                     .source = &commanders};
        config.user = &list_index;
        config.source = &list;
        EXPECT_EQ(world.b.device.create_srq(config, &srq), 0);
        command = &create();
        receiver = &create();
        world.connect(*command, world.b.route(), command->number(), 1, 1);
        world.connect(*receiver, world.a.route(), a.qp->number(), 9, 5);
        world.connect(*a.qp, world.b.route(), receiver->number(), 5, 9);
        SendRing::Config ring{.ring = commands.memory.ring(),
                              .record = commands.record.address(),
                              .context = {.commands_tags = true}};
        tags = std::make_unique<TagRing>(std::move(ring), indices);
        commanders.add(*command, *tags);
    }
    static WorldOptions with_tags() {
        WorldOptions options;
        options.node.device.tm_tags_max = 4;
        return options;
    }
    Qp& create() {
        return world.b.create_qp(
            {.send_cq = at_b.cq, .recv_cq = at_b.cq, .srq = srq, .user = &qp_index});
    }
    void run() {
        bool is_busy = true;
        while (is_busy) {
            world.settle();
            is_busy = tags->poll(*command, *srq, world.fabric.now());
            is_busy = a.ring->poll(*a.qp, world.fabric.now()) || is_busy;
        }
    }
    /// `flags`: of the segment; APPEND names the next index.
    void operate(std::uint8_t opcode, std::uint16_t index, std::uint64_t tag = 0,
                 const ibv_sge& sge = {0, 0, kEndOfList}) {
        mlx5_wqe_tm_seg segment{};
        segment.opcode = static_cast<std::uint8_t>(opcode << 4);
        segment.flags = 0x80 | 0x40;
        segment.index = htobe16(index);
        segment.sw_cnt = htobe16(dealt_with);
        segment.append_tag = htobe64(tag);
        segment.append_mask = htobe64(~std::uint64_t{0});
        Entry entry(MLX5_OPCODE_TAG_MATCHING, 0);
        entry.add(segment);
        commands.post(opcode == kAppend ? entry.data(sge) : entry);
    }
    void send(std::uint64_t tag, const std::string& text) {
        a.sends.post(
            Entry(MLX5_OPCODE_SEND, 0).text(TagWorld::header(TagOpcode::kEager, tag) + text));
    }
    void expect_operation(std::uint8_t app_op, bool is_done = true) {
        const auto cqe = at_b.polled.poll();
        ASSERT_EQ(kind_of(cqe), MLX5_CQE_NO_PACKET);
        EXPECT_EQ(cqe->app_op, app_op);
        EXPECT_EQ(be32toh(cqe->srqn_uidx), list_index);
        EXPECT_EQ(be32toh(cqe->tm_cqe.success), is_done ? unsigned{MLX5_TMC_SUCCESS} : 0U);
        EXPECT_EQ(be16toh(cqe->tm_cqe.hw_phase_cnt), unexpected);
    }

    static constexpr std::uint8_t kNop = 0, kAppend = 1, kRemove = 2;
    World world;
    Completions at_a, at_b;
    Machine a;
    PostedList posted{8};
    ReceiveList list;
    PostedSends commands{4};
    TagIndices indices;
    TagCommanders commanders;
    std::uint32_t list_index = 0x11, qp_index = 0x22;
    std::uint16_t dealt_with = 0, unexpected = 0;
    Srq* srq = nullptr;
    Qp *command = nullptr, *receiver = nullptr;
    std::unique_ptr<TagRing> tags;
};

TEST_F(VhcaTagRings, a_message_goes_to_the_receive_with_its_tag) {
    for (std::uint16_t round = 0; round != 12; ++round) {
        const std::uint64_t tag = 100 + round;
        operate(kAppend, static_cast<std::uint16_t>((round + 1) % 3), tag, world.b.sge(0, 64));
        run();
        expect_operation(5);
        send(tag, "expected");
        run();
        const auto cqe = at_b.polled.poll();
        ASSERT_EQ(kind_of(cqe), MLX5_CQE_RESP_SEND);
        EXPECT_EQ(cqe->app, 1);
        EXPECT_EQ(cqe->app_op, 0xa);
        EXPECT_EQ(be16toh(cqe->app_info), round % 3);
        EXPECT_EQ(be32toh(cqe->byte_cnt), 8U);
        EXPECT_EQ(be64toh(cqe->tmh.tag), tag);
        EXPECT_EQ(be32toh(cqe->tmh.app_ctx), kContext);
        EXPECT_EQ(be32toh(cqe->srqn_uidx), list_index);
        EXPECT_EQ(world.b.text(0, 8), "expected");
    }
}

// The device's thread may lose its processor between its look at the ring and the message.
TEST_F(VhcaTagRings, a_receive_that_was_posted_before_the_message_matches_without_a_poll) {
    operate(kAppend, 1, 40, world.b.sge(0, 64));
    send(40, "in time");
    a.ring->poll(*a.qp, world.fabric.now());
    world.settle();
    expect_operation(5);
    const auto cqe = at_b.polled.poll();
    ASSERT_EQ(kind_of(cqe), MLX5_CQE_RESP_SEND);
    EXPECT_EQ(cqe->app_op, 0xa);
    EXPECT_EQ(world.b.text(0, 7), "in time");
    EXPECT_FALSE(tags->poll(*command, *srq, world.fabric.now()));
}

TEST_F(VhcaTagRings, a_message_that_nothing_matches_goes_to_the_list) {
    const std::uint32_t index = posted.post(world.b.sge(1024, 256));
    send(5, "unexpected");
    run();
    const auto cqe = at_b.polled.poll();
    ASSERT_EQ(kind_of(cqe), MLX5_CQE_RESP_SEND);
    EXPECT_EQ(cqe->app_op, 3);
    EXPECT_EQ(be16toh(cqe->wqe_counter), index);
    EXPECT_EQ(world.b.text(1024 + kTagHeaderBytes, 10), "unexpected");
    unexpected = 1;
    dealt_with = 1;
    operate(kNop, 0);
    run();
    expect_operation(7);
}

TEST_F(VhcaTagRings, a_receive_is_removed_once) {
    operate(kAppend, 1, 5, world.b.sge(0, 64));
    operate(kAppend, 2, 6);
    operate(kRemove, 0);
    run();
    operate(kRemove, 0);
    operate(kRemove, 3);
    run();
    expect_operation(5);
    expect_operation(5);
    expect_operation(6);
    expect_operation(6, false);
    expect_operation(6, false);
    send(6, "");
    run();
    const auto cqe = at_b.polled.poll();
    ASSERT_EQ(kind_of(cqe), MLX5_CQE_RESP_SEND);
    EXPECT_EQ(be16toh(cqe->app_info), 1);
    EXPECT_EQ(be32toh(cqe->byte_cnt), 0U);
}

TEST_F(VhcaTagRings, what_is_no_operation_ends_the_ring) {
    operate(kAppend, 1, 5, world.b.sge(0, 64));
    commands.post(Entry(MLX5_OPCODE_SEND).text("data"));
    operate(kNop, 0);
    run();
    expect_operation(5);
    EXPECT_TRUE(tags->is_gone());
    EXPECT_FALSE(at_b.polled.poll().has_value());
}

TEST_F(VhcaTagRings, receives_beyond_the_list_end_the_ring) {
    for (std::uint16_t i = 0; i != 5; ++i) {
        operate(kAppend, static_cast<std::uint16_t>(i + 1), i);
        run();
    }
    EXPECT_TRUE(tags->is_gone());
}

}  // namespace

}  // namespace tagwire::vhca::driver
