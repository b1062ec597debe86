// SPDX-License-Identifier: BSD-3-Clause
// DC sessions between DCIs and a DCT: how they are opened, closed and forgotten; streams.
#include "vhca/test/core/dc_world.hpp"

namespace tagwire::vhca {

namespace {

// ---- Sessions ----------------------------------------------------------------------------------

Packet from_dci(const Qp& dci, const Qp& dct, Opcode opcode, std::uint32_t session) {
    Packet packet;
    packet.opcode = opcode;
    packet.qpn = dct.number();
    packet.source_qpn = dci.number();
    packet.qkey = session;
    packet.address = kDcKey;
    packet.length = connect_word(IBV_MTU_1024, 4);
    return packet;
}

void inject(DcWorld& world, const Packet& packet, Route from) {
    std::byte bytes[kHeaderBytesMax];
    const std::byte* end = put_headers(bytes, packet, 0);
    world.fabric.inject(from, world.target(0).route(),
                        {bytes, static_cast<std::size_t>(end - bytes)});
    world.settle();
}

void inject(DcWorld& world, const Packet& packet) {
    inject(world, packet, world.a().route());
}

TEST(VhcaDcSessions, repeated_session_that_was_closed_is_not_opened_again) {
    DcWorld world;
    for (std::uint64_t i = 0; i < 4; ++i)
        EXPECT_EQ(world.receive(0, i, 0, 64), 0);
    for (const Opcode opcode : {Opcode::kDcConnect, static_cast<Opcode>(0xc4)})
        inject(world, from_dci(*world.dci, *world.dcts[0], opcode, 1000));
    EXPECT_TRUE(world.target(0).poll().has_value());
    for (const Opcode opcode :
         {Opcode::kDcDisconnect, Opcode::kDcConnect, static_cast<Opcode>(0xc4)}) {
        inject(world, from_dci(*world.dci, *world.dcts[0], opcode, 1000));
    }
    EXPECT_FALSE(world.target(0).poll().has_value());
    for (const Opcode opcode : {Opcode::kDcConnect, static_cast<Opcode>(0xc4)})
        inject(world, from_dci(*world.dci, *world.dcts[0], opcode, 999));
    EXPECT_FALSE(world.target(0).poll().has_value()) << "an older one";
    for (const Opcode opcode : {Opcode::kDcConnect, static_cast<Opcode>(0xc4)})
        inject(world, from_dci(*world.dci, *world.dcts[0], opcode, 1001));
    EXPECT_TRUE(world.target(0).poll().has_value());
}

TEST(VhcaDcSessions, request_without_session_is_refused_and_changes_nothing) {
    DcWorld world;
    EXPECT_EQ(world.receive(0, 1, 0, 64), 0);
    const std::uint64_t before = world.target(0).device.counters().packets_sent;
    inject(world, from_dci(*world.dci, *world.dcts[0], static_cast<Opcode>(0xc4), 1000));
    EXPECT_FALSE(world.target(0).poll().has_value());
    EXPECT_EQ(world.target(0).device.counters().packets_sent, before + 1);
}

TEST(VhcaDcSessions, idle_initiators_make_room_for_others) {
    DcOptions options;
    options.targets = 1;
    options.node.device.dc_contexts_max = 2;
    DcWorld world(options);
    for (std::uint64_t i = 0; i < 10; ++i) {
        EXPECT_EQ(world.receive(0, i, 0, 64), 0);
        world.dci = &world.make_dci(world.a());
        EXPECT_EQ(world.send(0, i, 0, 8), 0);
        EXPECT_EQ(world.a().wait().wc.status, IBV_WC_SUCCESS);
    }
}

TEST(VhcaDcSessions, destroyed_initiators_make_room_for_others) {
    DcOptions options;
    options.targets = 1;
    options.node.device.dc_contexts_max = 1;
    DcWorld world(options);
    for (std::uint64_t i = 0; i < 4; ++i) {
        EXPECT_EQ(world.receive(0, i, 0, 64), 0);
        world.dci = &world.make_dci(world.a());
        EXPECT_EQ(world.send(0, i, 0, 8), 0);
        EXPECT_EQ(world.a().wait().wc.status, IBV_WC_SUCCESS);
        world.fabric.set_partitioned(0, 1, true);  // the disconnect is lost
        EXPECT_EQ(world.a().device.destroy_qp(*world.dci), 0);
        world.settle();
        world.fabric.set_partitioned(0, 1, false);
    }
}

TEST(VhcaDcSessions, crashed_initiators_lose_their_places) {
    DcOptions options;
    options.node.device.dc_contexts_max = 1;
    options.connection.min_rnr_timer = 20;  // 10 ms: time passes quickly
    DcWorld world(options);
    // The host of the second target has an initiator, too, and crashes.
    Qp& crashing = world.make_dci(world.target(1));
    EXPECT_EQ(world.receive(0, 1, 0, 64), 0);
    const SendWork work{.flags = IBV_SEND_SIGNALED,
                        .route = world.target(0).route(),
                        .remote_qpn = world.dcts[0]->number(),
                        .dc_key = kDcKey};
    EXPECT_EQ(crashing.post_send(work, world.fabric.now()), 0);
    EXPECT_EQ(world.target(1).wait().wc.status, IBV_WC_SUCCESS);
    world.fabric.crash(2);
    EXPECT_EQ(world.receive(0, 2, 0, 64), 0);
    EXPECT_EQ(world.send(0, 2, 0, 8), 0);
    EXPECT_EQ(world.a().wait().wc.status, IBV_WC_SUCCESS);
    EXPECT_GE(world.fabric.now(), DcTarget::kSilence);
}

TEST(VhcaDcSessions, initiator_that_comes_back_when_no_closed_session_is_older_is_served) {
    DcOptions options;
    options.node.device.dc_contexts_max = 1;
    DcWorld world(options);
    const Route crashed = world.target(1).route();
    const Packet first = from_dci(*world.dci, *world.dcts[0], Opcode::kDcConnect, 1000);
    world.fabric.crash(2);
    const auto connect = [&](Route from, std::uint32_t source, Opcode opcode) {
        Packet packet = first;
        packet.opcode = opcode;
        packet.source_qpn = source;
        inject(world, packet, from);
    };
    const auto close_one = [&](std::uint32_t source) {
        connect(world.a().route(), source, Opcode::kDcConnect);
        connect(world.a().route(), source, Opcode::kDcDisconnect);
    };
    close_one(first.source_qpn);
    for (std::uint32_t other = 1; other < DcTarget::kClosedMax; ++other)
        close_one(first.source_qpn + other);
    connect(crashed, 1, Opcode::kDcConnect);  // has the only place, and is silent
    EXPECT_EQ(world.receive(0, 1, 0, 64), 0);
    const auto come_back = [&](Opcode opcode) {
        inject(world, from_dci(*world.dci, *world.dcts[0], opcode, 1001));
    };
    come_back(Opcode::kDcConnect);
    world.fabric.run_until(world.fabric.now() + DcTarget::kSilence);
    come_back(Opcode::kDcConnect);
    come_back(static_cast<Opcode>(0xc4));
    EXPECT_TRUE(world.target(0).poll().has_value());
}

TEST(VhcaDcSessions, many_initiators_are_served_at_once) {
    DcOptions options;
    options.targets = 1;
    options.receives = 512;
    DcWorld world(options);
    for (std::uint64_t i = 0; i < 300; ++i)
        EXPECT_EQ(world.receive(0, i, 0, 64), 0);
    for (std::uint64_t i = 0; i < 300; ++i) {
        world.dci = &world.make_dci(world.a());
        EXPECT_EQ(world.send(0, i, 0, 8), 0);
    }
    for (int i = 0; i < 300; ++i) {
        ASSERT_EQ(world.a().wait().wc.status, IBV_WC_SUCCESS);
        ASSERT_EQ(world.target(0).wait().wc.status, IBV_WC_SUCCESS);
    }
}

// ---- Streams -----------------------------------------------------------------------------------

DcOptions with_streams() {
    DcOptions options;
    options.dci = {.has_streams = true, .streams_log = 1, .errored_log = 1};
    return options;
}

TEST(VhcaDcStreams, streams_talk_to_several_targets_at_once) {
    DcWorld world(with_streams());
    for (std::size_t target = 0; target < 2; ++target)
        EXPECT_EQ(world.receive(target, 1, 0, 64), 0);
    const Time posted = world.fabric.now();
    EXPECT_EQ(world.send(0, 1, 0, 8, {.stream = 1}), 0);
    EXPECT_EQ(world.send(1, 2, 0, 8, {.stream = 2}), 0);
    world.target(1).wait();
    EXPECT_EQ(world.fabric.now() - posted, world.options.fabric.delay_max);
    world.a().wait();
    EXPECT_EQ(world.a().wait().wc.qp_num, world.dci->number());
}

int send_bad(DcWorld& world, std::uint16_t stream) {
    SendWork write = world.remote(0, IBV_WR_RDMA_WRITE, 0);
    write.rkey ^= 0x100;
    write.stream = stream;
    return world.send(0, stream, 0, 8, write);
}

TEST(VhcaDcStreams, failure_of_one_leaves_the_others_alone) {
    DcWorld world(with_streams());
    EXPECT_EQ(send_bad(world, 1), 0);
    EXPECT_EQ(world.a().wait().wc.status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(world.dci->state(), IBV_QPS_RTS);
    EXPECT_EQ(world.send(0, 5, 0, 8, {.stream = 1}), 0);
    EXPECT_EQ(world.a().wait().wc.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(world.receive(0, 1, 0, 64), 0);
    EXPECT_EQ(world.send(0, 6, 0, 8, {.stream = 2}), 0);
    EXPECT_EQ(world.a().wait().wc.status, IBV_WC_SUCCESS);
}

TEST(VhcaDcStreams, reset_makes_a_failed_one_work_again) {
    DcWorld world(with_streams());
    EXPECT_EQ(send_bad(world, 1), 0);
    EXPECT_EQ(world.a().wait().wc.status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(world.dci->reset_stream(2), EINVAL) << "it did not fail";
    EXPECT_EQ(world.dci->reset_stream(1), 0);
    EXPECT_EQ(world.receive(0, 1, 0, 64), 0);
    EXPECT_EQ(world.send(0, 6, 0, 8, {.stream = 1}), 0);
    EXPECT_EQ(world.a().wait().wc.status, IBV_WC_SUCCESS);
}

TEST(VhcaDcStreams, too_many_failed_ones_end_the_dci) {
    DcWorld world(with_streams());
    EXPECT_EQ(send_bad(world, 1), 0);
    world.a().wait();
    EXPECT_EQ(world.dci->state(), IBV_QPS_RTS);
    EXPECT_EQ(send_bad(world, 2), 0);
    EXPECT_EQ(world.a().wait().wc.status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(world.dci->state(), IBV_QPS_ERR);
    EXPECT_EQ(world.dci->reset_stream(1), EINVAL);
    EXPECT_EQ(world.send(0, 6, 0, 8, {.stream = 3}), 0);
    EXPECT_EQ(world.a().wait().wc.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(world.modify(*world.dci, IBV_QPS_RESET, 0), 0);
    world.to_rts(*world.dci);
    EXPECT_EQ(world.receive(0, 1, 0, 64), 0);
    EXPECT_EQ(world.send(0, 6, 0, 8, {.stream = 1}), 0);
    EXPECT_EQ(world.a().wait().wc.status, IBV_WC_SUCCESS);
}

TEST(VhcaDcStreams, share_the_places_of_the_send_queue) {
    DcOptions options = with_streams();
    options.cap.max_send_wr = 4;
    DcWorld world(options);
    for (std::uint16_t i = 0; i < 4; ++i)
        EXPECT_EQ(world.send(0, i, 0, 8, {.stream = i}), 0);
    EXPECT_EQ(world.send(0, 9, 0, 8, {.stream = 9}), ENOMEM);
}

// libmlx5's ring has one tail: one past the request whose completion was polled last.
DcOptions with_a_ring_of(std::uint32_t size) {
    DcOptions options = with_streams();
    options.cap.max_send_wr = size;
    return options;
}

TEST(VhcaDcStreams, a_completion_of_an_older_request_moves_the_tail_back) {
    DcWorld world(with_a_ring_of(4));
    EXPECT_EQ(world.send(0, 1, 0, 8, {.stream = 1}), 0);  // its target has no buffer yet
    EXPECT_EQ(world.receive(1, 1, 0, 64), 0);
    EXPECT_EQ(world.send(1, 2, 0, 8, {.stream = 2}), 0);
    EXPECT_EQ(world.a().wait().wc.wr_id, 2U);
    EXPECT_EQ(world.receive(0, 1, 0, 64), 0);
    EXPECT_EQ(world.a().wait().wc.wr_id, 1U);
    // All have ended, and still one place is taken: that of the request behind the last polled one.
    for (std::uint16_t i = 0; i < 3; ++i)
        EXPECT_EQ(world.send(0, i, 0, 8, {.stream = 3}), 0);
    EXPECT_EQ(world.send(0, 9, 0, 8, {.stream = 3}), ENOMEM);
}

TEST(VhcaDcStreams, what_is_posted_beyond_a_request_that_waits_overwrites_it) {
    DcWorld world(with_a_ring_of(4));
    EXPECT_EQ(world.send(0, 1, 0, 8, {.stream = 1}), 0);  // its target has no buffer
    for (std::uint32_t i = 0; i < 3; ++i) {
        EXPECT_EQ(world.receive(1, i, 0, 64), 0);
        EXPECT_EQ(world.send(1, 10 + i, 0, 8, {.stream = 2}), 0);
        EXPECT_EQ(world.a().wait().wc.wr_id, 10 + i);
    }
    EXPECT_EQ(world.send(1, 20, 0, 8, {.stream = 2}), 0) << "the tail is behind it";
    const Completion failed = world.a().wait();
    EXPECT_EQ(failed.wc.wr_id, 1U);
    EXPECT_EQ(failed.wc.status, IBV_WC_LOC_QP_OP_ERR);
}

TEST(VhcaDcStreams, more_numbers_than_streams_take_the_places_of_idle_ones) {
    DcWorld world(with_streams());
    for (std::uint32_t i = 0; i < 2 * DcInitiator::kStreamsMax; ++i) {
        ASSERT_EQ(world.receive(0, i, 0, 64), 0);
        ASSERT_EQ(world.send(0, i, 0, 8, {.stream = static_cast<std::uint16_t>(i)}), 0);
        ASSERT_EQ(world.a().wait().wc.status, IBV_WC_SUCCESS);
        ASSERT_EQ(world.target(0).wait().wc.status, IBV_WC_SUCCESS);
    }
}

TEST(VhcaDcStreams, limits_are_checked) {
    DcWorld world;
    Qp* qp = nullptr;
    const QpConfig config{
        .type = IBV_QPT_DRIVER,
        .pd = world.a().pd,
        .send_cq = world.a().cq,
        .dc = {.kind = DcKind::kInitiator, .has_streams = true, .streams_log = 7}};
    EXPECT_EQ(world.a().device.create_qp(config, &qp), EINVAL);
    EXPECT_EQ(world.dci->reset_stream(0), EINVAL) << "it has none";
}

}  // namespace

}  // namespace tagwire::vhca
