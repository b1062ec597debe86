// SPDX-License-Identifier: BSD-3-Clause
// Unreliable connections and datagrams: lost packets are lost silently.
#include "vhca/core/packet.hpp"
#include "vhca/test/core/world.hpp"

namespace tagwire::vhca {

namespace {

WorldOptions of_type(ibv_qp_type type) {
    WorldOptions options;
    options.type = type;
    return options;
}

class VhcaUc : public testing::Test {
  protected:
    World world{of_type(IBV_QPT_UC)};
};

TEST_F(VhcaUc, sends_and_writes_arrive_and_complete_when_sent) {
    world.a.write(0, std::string(5000, 'u'));
    SendWork imm = world.remote(IBV_WR_RDMA_WRITE_WITH_IMM, 20'000);
    imm.imm = 5;
    ASSERT_EQ(world.receive(1, 0, 8000), 0);
    ASSERT_EQ(world.receive(2, 0, 0), 0);
    ASSERT_EQ(world.send(1, 0, 5000), 0);
    EXPECT_EQ(world.a.poll()->wc.wr_id, 1U) << "nobody acknowledges";
    ASSERT_EQ(world.send(2, 0, 5000, world.remote(IBV_WR_RDMA_WRITE, 10'000)), 0);
    ASSERT_EQ(world.send(3, 0, 5000, imm), 0);
    EXPECT_EQ(world.b.wait().wc.byte_len, 5000U);
    EXPECT_EQ(world.b.wait().wc.imm_data, 5U);
    for (const std::size_t at : {0U, 10'000U, 20'000U})
        EXPECT_EQ(world.b.text(at, 5000), std::string(5000, 'u'));
    EXPECT_EQ(world.b.device.counters().packets_sent, 0U);
}

TEST_F(VhcaUc, reads_and_atomics_do_not_exist) {
    EXPECT_EQ(world.send(1, 0, 8, world.remote(IBV_WR_RDMA_READ, 0)), EINVAL);
    EXPECT_EQ(world.send(1, 0, 8, world.remote(IBV_WR_ATOMIC_FETCH_AND_ADD, 0)), EINVAL);
}

TEST_F(VhcaUc, lost_packet_loses_its_message_and_the_receive_serves_the_next) {
    world.fabric.config().room_packets = 1;
    ASSERT_EQ(world.receive(1, 0, 8000), 0);
    world.a.write(0, std::string(5000, 'x') + std::string(3000, 'y'));
    ASSERT_EQ(world.send(1, 0, 5000), 0);
    world.fabric.run([&] { return world.a.device.counters().packets_sent == 2; });
    world.fabric.set_partitioned(0, 1, true);
    world.fabric.run([&] { return world.a.device.counters().packets_sent == 4; });
    world.fabric.set_partitioned(0, 1, false);
    world.settle();
    EXPECT_TRUE(world.b.cq->is_empty());
    ASSERT_EQ(world.send(2, 5000, 3000), 0);
    const Completion received = world.b.wait();
    EXPECT_EQ(received.wc.wr_id, 1U);
    EXPECT_EQ(received.wc.byte_len, 3000U);
    EXPECT_EQ(world.b.text(0, 3000), std::string(3000, 'y'));
}

TEST_F(VhcaUc, message_without_a_receive_or_a_key_is_dropped) {
    ASSERT_EQ(world.send(1, 0, 8), 0);
    SendWork work = world.remote(IBV_WR_RDMA_WRITE, 0);
    work.rkey = 0;
    world.a.write(0, "garbage!");
    ASSERT_EQ(world.send(2, 0, 8, work), 0);
    world.settle();
    EXPECT_TRUE(world.b.cq->is_empty());
    EXPECT_EQ(world.qb->state(), IBV_QPS_RTS);
    EXPECT_EQ(world.b.text(0, 8), std::string(8, '\0'));
    ASSERT_EQ(world.receive(1, 0, 8), 0);
    ASSERT_EQ(world.send(3, 0, 8), 0);
    EXPECT_EQ(world.b.wait().wc.status, IBV_WC_SUCCESS);
}

TEST_F(VhcaUc, receive_too_small_is_a_length_error) {
    ASSERT_EQ(world.receive(1, 0, 7), 0);
    ASSERT_EQ(world.send(1, 0, 8), 0);
    EXPECT_EQ(world.b.wait().wc.status, IBV_WC_LOC_LEN_ERR);
    EXPECT_EQ(world.qb->state(), IBV_QPS_ERR);
    EXPECT_EQ(world.a.wait().wc.status, IBV_WC_SUCCESS);
}

TEST_F(VhcaUc, failed_send_stops_sending_until_the_state_is_mended) {
    ibv_sge sge = world.a.sge(0, 8);
    sge.lkey ^= 1;
    SendWork work;
    work.wr_id = 1;
    work.sges = {&sge, 1};
    ASSERT_EQ(world.qa->post_send(work, world.fabric.now()), 0);
    EXPECT_EQ(world.a.poll()->wc.status, IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(world.qa->state(), IBV_QPS_SQE);
    ASSERT_EQ(world.send(2, 0, 8), 0);
    EXPECT_EQ(world.a.poll()->wc.status, IBV_WC_WR_FLUSH_ERR);
    ASSERT_EQ(world.to_state(*world.qa, IBV_QPS_RTS), 0);
    ASSERT_EQ(world.receive(1, 0, 8), 0);
    ASSERT_EQ(world.send(3, 0, 8), 0);
    EXPECT_EQ(world.a.wait().wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(world.b.wait().wc.status, IBV_WC_SUCCESS);
}

class VhcaUd : public testing::Test {
  protected:
    World world{of_type(IBV_QPT_UD)};
};

TEST_F(VhcaUd, datagram_arrives_behind_the_space_for_a_route_header) {
    world.a.write(0, "datagram");
    ASSERT_EQ(world.receive(1, 0, 100), 0);
    SendWork work{.opcode = IBV_WR_SEND_WITH_IMM, .imm = 6};
    ASSERT_EQ(world.send(1, 0, 8, work), 0);
    const Completion received = world.b.wait();
    EXPECT_EQ(received.wc.byte_len, 48U);
    EXPECT_EQ(received.wc.src_qp, world.qa->number());
    EXPECT_EQ(received.wc.slid, 0);
    EXPECT_EQ(received.from, world.a.route());
    EXPECT_EQ(received.wc.imm_data, 6U);
    EXPECT_EQ(world.b.text(40, 8), "datagram");
    EXPECT_EQ(world.a.wait().wc.opcode, IBV_WC_SEND);
}

TEST_F(VhcaUd, one_queue_pair_reaches_many) {
    Qp& other = world.b.create_qp({.type = IBV_QPT_UD, .cap = world.options.cap});
    world.connect(other, {}, 0, 1, 1);
    const ibv_sge to = world.b.sge(500, 100);
    ASSERT_EQ(other.post_recv({2, {&to, 1}}), 0);
    ASSERT_EQ(world.receive(1, 0, 100), 0);
    ASSERT_EQ(world.send(1, 0, 8), 0);
    SendWork work;
    work.remote_qpn = other.number();
    ASSERT_EQ(world.send(2, 0, 8, work), 0);
    EXPECT_EQ(world.b.wait().wc.qp_num, world.qb->number());
    EXPECT_EQ(world.b.wait().wc.qp_num, other.number());
}

TEST_F(VhcaUd, wrong_qkey_is_dropped) {
    ASSERT_EQ(world.receive(1, 0, 100), 0);
    SendWork work;
    work.remote_qkey = kQkey + 1;
    ASSERT_EQ(world.send(1, 0, 8, work), 0);
    world.settle();
    EXPECT_TRUE(world.b.cq->is_empty());
    EXPECT_EQ(world.b.device.counters().misaddressed, 1U);
}

TEST_F(VhcaUd, controlled_qkey_stands_for_that_of_the_queue_pair) {
    ASSERT_EQ(world.receive(1, 0, 100), 0);
    SendWork work;
    work.remote_qkey = 0x80000000;
    ASSERT_EQ(world.send(1, 0, 8, work), 0);
    EXPECT_EQ(world.b.wait().wc.status, IBV_WC_SUCCESS);
}

TEST_F(VhcaUd, without_a_receive_it_is_dropped_silently) {
    ASSERT_EQ(world.send(1, 0, 8), 0);
    EXPECT_EQ(world.a.wait().wc.status, IBV_WC_SUCCESS);
    world.settle();
    EXPECT_EQ(world.b.device.counters().packets_sent, 0U);
    EXPECT_EQ(world.qb->state(), IBV_QPS_RTS);
}

TEST_F(VhcaUd, longer_than_the_mtu_is_a_length_error) {
    ASSERT_EQ(world.receive(1, 0, 8000), 0);
    ASSERT_EQ(world.send(1, 0, 4096), 0);
    EXPECT_EQ(world.b.wait().wc.byte_len, 4136U);
    EXPECT_EQ(world.a.wait().wc.status, IBV_WC_SUCCESS);
    ASSERT_EQ(world.send(2, 0, 4097), 0);
    EXPECT_EQ(world.a.wait().wc.status, IBV_WC_LOC_LEN_ERR);
    EXPECT_EQ(world.qa->state(), IBV_QPS_SQE);
}

TEST_F(VhcaUd, receive_without_space_for_the_header_is_a_length_error) {
    ASSERT_EQ(world.receive(1, 0, 47), 0);
    ASSERT_EQ(world.send(1, 0, 8), 0);
    EXPECT_EQ(world.b.wait().wc.status, IBV_WC_LOC_LEN_ERR);
}

TEST_F(VhcaUd, writes_do_not_exist) {
    EXPECT_EQ(world.send(1, 0, 8, world.remote(IBV_WR_RDMA_WRITE, 0)), EINVAL);
}

/// Packets that no virtual HCA sends.
class VhcaForeign : public testing::Test {
  protected:
    void inject(Packet packet, std::size_t payload, Route from) {
        std::vector<std::byte> bytes(packet_bytes(packet.opcode, payload));
        std::byte* end = put_headers(bytes.data(), packet, payload) + payload;
        put_padding(end, payload);
        world.fabric.inject(from, world.b.route(), bytes);
        world.settle();
    }
    Packet expected(Opcode opcode) {
        Packet packet;
        packet.opcode = opcode;
        packet.qpn = world.qb->number();
        packet.psn = 0x1000;
        return packet;
    }
    [[nodiscard]] const DeviceCounters& counters() { return world.b.device.counters(); }

    World world;
};

TEST_F(VhcaForeign, wrong_number_sender_key_or_transport_is_counted_and_dropped) {
    ASSERT_EQ(world.receive(1, 0, 64), 0);
    Packet packet = expected(Opcode::kRcSendOnly);
    ++packet.qpn;
    inject(packet, 8, world.a.route());
    inject(expected(Opcode::kRcSendOnly), 8, world.b.route());
    packet = expected(Opcode::kRcSendOnly);
    packet.pkey = 1;
    inject(packet, 8, world.a.route());
    inject(expected(Opcode::kUcSendFirst), 1024, world.a.route());
    EXPECT_EQ(counters().misaddressed, 4U);
    EXPECT_TRUE(world.b.cq->is_empty());
    EXPECT_EQ(world.qb->state(), IBV_QPS_RTS);
}

TEST_F(VhcaForeign, impossible_sequences_and_sizes_are_invalid_requests) {
    struct Case {
        Opcode opcode;
        std::size_t payload;
        std::uint32_t length;
    };
    for (const Case& wrong : {Case{Opcode::kRcSendMiddle, 1024, 0},
                              {Opcode::kRcSendLast, 8, 0},
                              {Opcode::kRcWriteLast, 8, 0},
                              {Opcode::kRcSendFirst, 1000, 0},
                              {Opcode::kRcSendOnly, 1028, 0},
                              {Opcode::kRcWriteOnly, 8, 4},
                              {Opcode::kRcWriteFirst, 1024, 8},
                              {Opcode::kRcReadRequest, 0, 0x80000000}}) {
        World other;
        ASSERT_EQ(other.receive(1, 0, 4096), 0);
        std::vector<std::byte> bytes(packet_bytes(wrong.opcode, wrong.payload));
        Packet packet;
        packet.opcode = wrong.opcode;
        packet.qpn = other.qb->number();
        packet.psn = 0x1000;
        packet.address = other.b.address(0);
        packet.rkey = other.b.mr->key;
        packet.length = wrong.length;
        put_headers(bytes.data(), packet, wrong.payload);
        other.fabric.inject(other.a.route(), other.b.route(), bytes);
        other.settle();
        EXPECT_EQ(other.qb->state(), IBV_QPS_ERR) << static_cast<int>(wrong.opcode);
        EXPECT_EQ(other.b.events.count(IBV_EVENT_QP_REQ_ERR), 1U);
    }
}

TEST_F(VhcaForeign, responses_to_nothing_are_ignored) {
    for (const Opcode opcode : {Opcode::kRcAck, Opcode::kRcAtomicAck, Opcode::kRcReadOnly}) {
        for (std::uint32_t psn = 0x10f0; psn < 0x1110; ++psn) {
            Packet packet = expected(opcode);
            packet.psn = psn;
            packet.syndrome = static_cast<std::uint8_t>(psn);
            inject(packet, 0, world.a.route());
        }
    }
    EXPECT_EQ(world.qb->state(), IBV_QPS_RTS);
    EXPECT_TRUE(world.b.cq->is_empty());
}

TEST_F(VhcaForeign, garbage_is_counted_and_harms_nothing) {
    SimRandom random(3);
    std::vector<std::byte> bytes(1100);
    for (int round = 0; round < 20'000; ++round) {
        const std::size_t size = random.below(bytes.size());
        for (std::size_t i = 0; i < std::min<std::size_t>(size, 60); ++i)
            bytes[i] = static_cast<std::byte>(random.next());
        if (round % 2 == 0 && size > 12) {  // as far as a valid header
            Packet packet = expected(static_cast<Opcode>(random.below(0x18)));
            packet.psn += static_cast<std::uint32_t>(random.below(8));
            packet.rkey = world.b.mr->key;
            packet.address = world.b.address(random.below(1 << 17));
            packet.length = static_cast<std::uint32_t>(random.next());
            std::vector<std::byte> head(128);
            put_headers(head.data(), packet, 0);
            std::copy_n(head.begin(), 12 + random.below(50), bytes.begin());
        }
        world.b.device.receive(world.a.route(), {bytes.data(), size}, world.fabric.now());
        if (world.qb->state() == IBV_QPS_ERR) {
            ASSERT_EQ(world.to_state(*world.qb, IBV_QPS_RESET), 0);
            world.connect(*world.qb, world.a.route(), world.qa->number(), 0x1100, 0x1000);
        }
        if (round % 100 == 0) {
            world.receive(1, 0, 4096);
            world.settle();
        }
        while (world.b.poll()) {
        }
    }
    EXPECT_GT(counters().malformed, 1000U);
    EXPECT_TRUE(world.b.events.broken.empty());
}

}  // namespace

}  // namespace tagwire::vhca
