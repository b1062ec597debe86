// SPDX-License-Identifier: BSD-3-Clause
// Errors on a reliable connection, and how they are reported to either side.
#include "vhca/core/packet.hpp"
#include "vhca/test/core/world.hpp"

namespace tagwire::vhca {

namespace {

/// The failing request of a is 1; 2 is flushed after it.
class VhcaErrors : public testing::Test {
  protected:
    void expect_failure(ibv_wc_status status) {
        const Completion failed = world().a.wait();
        EXPECT_EQ(failed.wc.wr_id, 1U);
        EXPECT_EQ(failed.wc.status, status);
        EXPECT_EQ(world().qa->state(), IBV_QPS_ERR);
        EXPECT_EQ(world().send(2, 0, 8), 0);
        const Completion flushed = world().a.wait();
        EXPECT_EQ(flushed.wc.wr_id, 2U);
        EXPECT_EQ(flushed.wc.status, IBV_WC_WR_FLUSH_ERR);
    }
    void expect_receive(std::uint64_t wr_id, ibv_wc_status status) {
        const Completion received = world().b.wait();
        EXPECT_EQ(received.wc.wr_id, wr_id);
        EXPECT_EQ(received.wc.status, status);
    }
    void expect_target(ibv_qp_state state, std::size_t access_errors, std::size_t request_errors) {
        EXPECT_EQ(world().qb->state(), state);
        EXPECT_EQ(world().b.events.count(IBV_EVENT_QP_ACCESS_ERR), access_errors);
        EXPECT_EQ(world().b.events.count(IBV_EVENT_QP_REQ_ERR), request_errors);
    }
    World& world() {
        if (world_ == nullptr)
            world_ = std::make_unique<World>(options);
        return *world_;
    }

    WorldOptions options;

  private:
    std::unique_ptr<World> world_;
};

TEST_F(VhcaErrors, receive_too_small_is_a_length_error_here_and_an_invalid_request_there) {
    world().receive(1, 0, 7);
    world().receive(2, 0, 64);
    ASSERT_EQ(world().send(1, 0, 8), 0);
    expect_failure(IBV_WC_REM_INV_REQ_ERR);
    expect_receive(1, IBV_WC_LOC_LEN_ERR);
    expect_receive(2, IBV_WC_WR_FLUSH_ERR);
    expect_target(IBV_QPS_ERR, 0, 0);
}

TEST_F(VhcaErrors, receive_with_a_bad_key_is_a_protection_error_here_and_an_operation_error_there) {
    ibv_sge sge = world().b.sge(0, 64);
    sge.lkey ^= 1;
    ASSERT_EQ(world().qb->post_recv({1, {&sge, 1}}), 0);
    ASSERT_EQ(world().send(1, 0, 8), 0);
    expect_failure(IBV_WC_REM_OP_ERR);
    expect_receive(1, IBV_WC_LOC_PROT_ERR);
    expect_target(IBV_QPS_ERR, 0, 0);
}

TEST_F(VhcaErrors, receive_into_memory_that_is_not_writable) {
    Mr* mr = nullptr;
    ASSERT_EQ(world().b.device.create_mr(*world().b.pd, world().b.memory.data(), 64,
                                         world().b.address(0), IBV_ACCESS_REMOTE_READ, &mr),
              0);
    const ibv_sge sge{world().b.address(0), 64, mr->key};
    ASSERT_EQ(world().qb->post_recv({1, {&sge, 1}}), 0);
    ASSERT_EQ(world().send(1, 0, 8), 0);
    expect_failure(IBV_WC_REM_OP_ERR);
    expect_receive(1, IBV_WC_LOC_PROT_ERR);
}

struct RemoteFault {
    const char* name;
    ibv_wr_opcode opcode;
    std::size_t bytes;
    void (*spoil)(SendWork& work);
};

std::ostream& operator<<(std::ostream& out, const RemoteFault& fault) {
    return out << fault.name;
}

constexpr std::size_t kRegion = 1 << 16;
const RemoteFault kRemoteFaults[] = {
    {"write_bad_key", IBV_WR_RDMA_WRITE, 8, [](SendWork& w) { w.rkey ^= 0x10; }},
    {"read_bad_key", IBV_WR_RDMA_READ, 8, [](SendWork& w) { w.rkey ^= 0x10; }},
    {"atomic_bad_key", IBV_WR_ATOMIC_FETCH_AND_ADD, 8, [](SendWork& w) { w.rkey += 0x100; }},
    {"write_beyond", IBV_WR_RDMA_WRITE, 9, [](SendWork& w) { w.remote_addr += kRegion - 8; }},
    {"write_before", IBV_WR_RDMA_WRITE, 8, [](SendWork& w) { --w.remote_addr; }},
    {"read_beyond", IBV_WR_RDMA_READ, 3000, [](SendWork& w) { w.remote_addr += kRegion - 2999; }},
    {"write_wraps", IBV_WR_RDMA_WRITE, 8, [](SendWork& w) { w.remote_addr = ~0ULL - 3; }},
    {"write_imm_bad_key", IBV_WR_RDMA_WRITE_WITH_IMM, 8, [](SendWork& w) { w.rkey = 0; }},
};

class RemoteFaults : public VhcaErrors, public testing::WithParamInterface<RemoteFault> {};

TEST_P(RemoteFaults, end_as_remote_access_errors_and_touch_nothing) {
    SendWork work = world().remote(GetParam().opcode, 0);
    GetParam().spoil(work);
    const std::string before = world().b.text(0, kRegion);
    world().a.write(0, std::string(16, 'w'));
    ASSERT_EQ(world().send(1, 0, GetParam().bytes, work), 0);
    expect_failure(IBV_WC_REM_ACCESS_ERR);
    expect_target(IBV_QPS_ERR, 1, 0);
    EXPECT_EQ(world().b.text(0, kRegion), before);
}

INSTANTIATE_TEST_SUITE_P(VhcaErrors, RemoteFaults, testing::ValuesIn(kRemoteFaults),
                         testing::PrintToStringParamName());

TEST_F(VhcaErrors, region_of_another_protection_domain_is_not_accessible) {
    Pd* other = nullptr;
    Mr* mr = nullptr;
    ASSERT_EQ(world().b.device.create_pd(nullptr, &other), 0);
    ASSERT_EQ(world().b.device.create_mr(*other, world().b.memory.data(), 64, world().b.address(0),
                                         kAllAccess, &mr),
              0);
    SendWork work = world().remote(IBV_WR_RDMA_WRITE, 0);
    work.rkey = mr->key;
    ASSERT_EQ(world().send(1, 0, 8, work), 0);
    expect_failure(IBV_WC_REM_ACCESS_ERR);
    expect_target(IBV_QPS_ERR, 1, 0);
}

TEST_F(VhcaErrors, region_without_the_right_is_not_accessible) {
    Mr* mr = nullptr;
    ASSERT_EQ(
        world().b.device.create_mr(*world().b.pd, world().b.memory.data(), 64, world().b.address(0),
                                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, &mr),
        0);
    SendWork work = world().remote(IBV_WR_RDMA_READ, 0);
    work.rkey = mr->key;
    ASSERT_EQ(world().send(0, 0, 8, work), 0);
    EXPECT_EQ(world().a.wait().wc.status, IBV_WC_SUCCESS);
    work.opcode = IBV_WR_RDMA_WRITE;
    ASSERT_EQ(world().send(1, 0, 8, work), 0);
    expect_failure(IBV_WC_REM_ACCESS_ERR);
}

TEST_F(VhcaErrors, queue_pair_without_the_access_flag_refuses) {
    options.connection.access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
    ASSERT_EQ(world().send(0, 0, 8, world().remote(IBV_WR_RDMA_WRITE, 0)), 0);
    EXPECT_EQ(world().a.wait().wc.status, IBV_WC_SUCCESS);
    ASSERT_EQ(world().send(1, 0, 8, world().remote(IBV_WR_ATOMIC_FETCH_AND_ADD, 0)), 0);
    expect_failure(IBV_WC_REM_ACCESS_ERR);
    expect_target(IBV_QPS_ERR, 1, 0);
}

TEST_F(VhcaErrors, misaligned_atomic_is_an_invalid_request) {
    ASSERT_EQ(world().send(1, 0, 8, world().remote(IBV_WR_ATOMIC_FETCH_AND_ADD, 4)), 0);
    expect_failure(IBV_WC_REM_INV_REQ_ERR);
    expect_target(IBV_QPS_ERR, 0, 1);
}

TEST_F(VhcaErrors, more_reads_than_the_responder_allows_are_an_invalid_request) {
    options.connection.dest_rd_atomic = 1;
    for (std::uint64_t id = 0; id < 2; ++id)
        ASSERT_EQ(world().send(id, 0, 8, world().remote(IBV_WR_RDMA_READ, 0)), 0);
    EXPECT_EQ(world().a.wait().wc.status, IBV_WC_SUCCESS);
    expect_failure(IBV_WC_REM_INV_REQ_ERR);
    expect_target(IBV_QPS_ERR, 0, 1);
}

TEST_F(VhcaErrors, read_that_was_answered_counts_until_the_answer_is_there) {
    options.connection.dest_rd_atomic = 1;
    ASSERT_EQ(world().send(0, 0, 8, world().remote(IBV_WR_RDMA_READ, 0)), 0);
    world().fabric.run_until(world().fabric.now() + 1500);  // the answer is on its way
    ASSERT_EQ(world().send(1, 0, 8, world().remote(IBV_WR_RDMA_READ, 0)), 0);
    EXPECT_EQ(world().a.wait().wc.status, IBV_WC_SUCCESS);
    expect_failure(IBV_WC_REM_INV_REQ_ERR);
    expect_target(IBV_QPS_ERR, 0, 1);
}

TEST_F(VhcaErrors, local_key_fault_stays_local_and_nothing_is_sent) {
    ibv_sge sge = world().a.sge(0, 8);
    sge.lkey ^= 1;
    SendWork work;
    work.wr_id = 1;
    work.sges = {&sge, 1};
    ASSERT_EQ(world().qa->post_send(work, world().fabric.now()), 0);
    expect_failure(IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(world().a.device.counters().packets_sent, 0U);
    expect_target(IBV_QPS_RTS, 0, 0);
}

TEST_F(VhcaErrors, local_fault_waits_until_those_before_it_are_done) {
    world().receive(7, 0, 64);
    ASSERT_EQ(world().send(0, 0, 8), 0);
    const std::vector sges = {world().a.sge(0, 3000), ibv_sge{world().a.address(0), 8, 0xbad}};
    SendWork work;
    work.wr_id = 1;
    work.sges = sges;
    ASSERT_EQ(world().qa->post_send(work, world().fabric.now()), 0);
    EXPECT_EQ(world().qa->state(), IBV_QPS_RTS);
    EXPECT_EQ(world().a.wait().wc.status, IBV_WC_SUCCESS);
    expect_failure(IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(world().a.device.counters().packets_sent, 1U);
}

TEST_F(VhcaErrors, read_needs_local_memory_that_is_writable) {
    Mr* mr = nullptr;
    ASSERT_EQ(world().a.device.create_mr(*world().a.pd, world().a.memory.data(), 64,
                                         world().a.address(0), 0, &mr),
              0);
    const ibv_sge sge{world().a.address(0), 8, mr->key};
    SendWork work = world().remote(IBV_WR_RDMA_READ, 0);
    work.wr_id = 1;
    work.sges = {&sge, 1};
    ASSERT_EQ(world().qa->post_send(work, world().fabric.now()), 0);
    expect_failure(IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(world().a.device.counters().packets_sent, 0U);
}

TEST_F(VhcaErrors, region_deregistered_during_a_read_is_an_access_error) {
    options.fabric.room_packets = 1;
    ASSERT_EQ(world().send(1, 0, 20'000, world().remote(IBV_WR_RDMA_READ, 0)), 0);
    for (int step = 0; step < 8; ++step)
        world().fabric.step();
    ASSERT_EQ(world().b.device.destroy_mr(*world().b.mr), 0);
    expect_failure(IBV_WC_REM_ACCESS_ERR);
    expect_target(IBV_QPS_ERR, 1, 0);
}

TEST_F(VhcaErrors, reads_before_a_refused_request_still_get_their_data) {
    world().b.write(100, std::string(3000, 'r'));
    ASSERT_EQ(world().send(0, 0, 3000, world().remote(IBV_WR_RDMA_READ, 100)), 0);
    SendWork work = world().remote(IBV_WR_RDMA_WRITE, 0);
    work.rkey = 0;
    ASSERT_EQ(world().send(1, 0, 8, work), 0);
    EXPECT_EQ(world().a.wait().wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(world().a.text(0, 3000), std::string(3000, 'r'));
    expect_failure(IBV_WC_REM_ACCESS_ERR);
}

TEST_F(VhcaErrors, message_longer_than_any_is_a_local_length_error) {
    const ibv_sge sge{world().a.address(0), (1U << 30) + 1, world().a.mr->key};
    SendWork work;
    work.wr_id = 1;
    work.sges = {&sge, 1};
    ASSERT_EQ(world().qa->post_send(work, world().fabric.now()), 0);
    expect_failure(IBV_WC_LOC_LEN_ERR);
}

TEST_F(VhcaErrors, everything_posted_is_flushed_in_order_signaled_or_not) {
    for (std::uint64_t id = 0; id < 3; ++id)
        world().receive(id, 0, 64);
    ibv_sge bad = world().a.sge(0, 8);
    bad.lkey ^= 1;
    for (std::uint64_t id = 1; id <= 6; ++id) {
        const ibv_sge good = world().a.sge(0, 8);
        SendWork work;
        work.wr_id = id;
        work.sges = {id == 1 ? &bad : &good, 1};
        ASSERT_EQ(world().qa->enqueue_send(work), 0);
    }
    world().qa->ring(world().fabric.now());
    EXPECT_EQ(world().a.poll()->wc.status, IBV_WC_LOC_PROT_ERR);
    for (std::uint64_t id = 2; id <= 6; ++id) {
        const auto flushed = world().a.poll();
        ASSERT_TRUE(flushed);
        EXPECT_EQ(flushed->wc.wr_id, id);
        EXPECT_EQ(flushed->wc.status, IBV_WC_WR_FLUSH_ERR);
    }
    ASSERT_EQ(world().to_state(*world().qb, IBV_QPS_ERR), 0);
    for (std::uint64_t id = 0; id < 3; ++id)
        expect_receive(id, IBV_WC_WR_FLUSH_ERR);
    world().receive(9, 0, 64);
    expect_receive(9, IBV_WC_WR_FLUSH_ERR);
}

/// When the completion came, from the moment of posting.
Time time_to_failure(World& world, ibv_wc_status status) {
    const Time start = world.fabric.now();
    EXPECT_EQ(world.send(1, 0, 8), 0);
    const Completion failed = world.a.wait();
    EXPECT_EQ(failed.wc.status, status);
    return failed.time - start;
}

TEST_F(VhcaErrors, silence_of_the_peer_ends_after_exactly_all_retries) {
    for (const unsigned retries : {0U, 1U, 7U}) {
        WorldOptions given;
        given.connection.timeout = 8;
        given.connection.retry_cnt = static_cast<std::uint8_t>(retries);
        World silent(given);
        silent.fabric.set_partitioned(0, 1, true);
        EXPECT_EQ(time_to_failure(silent, IBV_WC_RETRY_EXC_ERR), (Time{4096} << 8) * (retries + 1));
        EXPECT_EQ(silent.a.device.counters().packets_sent, retries + 1);
        EXPECT_EQ(silent.qa->state(), IBV_QPS_ERR);
    }
}

TEST_F(VhcaErrors, timeout_zero_waits_for_ever) {
    options.connection.timeout = 0;
    world().fabric.set_partitioned(0, 1, true);
    ASSERT_EQ(world().send(1, 0, 8), 0);
    world().fabric.run_until(Time{1} << 50);
    EXPECT_TRUE(world().a.cq->is_empty());
    EXPECT_EQ(world().a.device.counters().packets_sent, 1U);
}

TEST_F(VhcaErrors, peer_that_is_gone_reset_or_in_error_looks_like_silence) {
    options.connection.timeout = 5;
    for (int how = 0; how < 4; ++how) {
        World other(options);
        if (how == 0) {
            other.fabric.crash(1);
        } else if (how == 1) {
            ASSERT_EQ(other.to_state(*other.qb, IBV_QPS_RESET), 0);
        } else if (how == 2) {
            ASSERT_EQ(other.to_state(*other.qb, IBV_QPS_ERR), 0);
        } else {
            ASSERT_EQ(other.b.device.destroy_qp(*other.qb), 0);
        }
        EXPECT_EQ(time_to_failure(other, IBV_WC_RETRY_EXC_ERR), (Time{4096} << 5) * 8);
    }
}

TEST_F(VhcaErrors, retries_begin_anew_after_progress) {
    options.connection.timeout = 5;
    options.connection.retry_cnt = 1;
    for (std::uint64_t id = 0; id < 5; ++id) {
        world().receive(id, 0, 64);
        world().fabric.set_partitioned(0, 1, true);
        ASSERT_EQ(world().send(id, 0, 8), 0);
        world().fabric.run_until(world().fabric.now() + (Time{4096} << 4));
        world().fabric.set_partitioned(0, 1, false);
        EXPECT_EQ(world().a.wait().wc.status, IBV_WC_SUCCESS);
    }
    EXPECT_EQ(world().a.device.counters().timeouts, 5U);
}

TEST_F(VhcaErrors, wire_that_never_takes_a_packet_ends_like_silence) {
    options.connection.timeout = 5;
    options.fabric.room_packets = 0;
    const Time took = time_to_failure(world(), IBV_WC_RETRY_EXC_ERR);
    EXPECT_GE(took, (Time{4096} << 5) * 8);
    EXPECT_LE(took, ((Time{4096} << 5) + 1000) * 8);
}

TEST_F(VhcaErrors, receiver_not_ready_is_retried_as_often_as_asked_at_the_pace_of_the_responder) {
    for (const unsigned retries : {0U, 3U}) {
        WorldOptions given;
        given.connection.rnr_retry = static_cast<std::uint8_t>(retries);
        given.connection.min_rnr_timer = 14;  // 1.28 ms
        World busy(given);
        const Time took = time_to_failure(busy, IBV_WC_RNR_RETRY_EXC_ERR);
        constexpr Time kRoundTrip = 2000;
        EXPECT_EQ(took, retries * Time{1'280'000} + (retries + 1) * kRoundTrip);
        EXPECT_EQ(busy.a.device.counters().rnr_naks, retries + 1);
        EXPECT_EQ(busy.qb->state(), IBV_QPS_RTS);
    }
}

TEST_F(VhcaErrors, receiver_not_ready_is_retried_for_ever_with_seven) {
    options.connection.min_rnr_timer = 0;  // 655.36 ms
    ASSERT_EQ(world().send(1, 0, 8), 0);
    world().fabric.run_until(Time{100'000'000'000});
    EXPECT_EQ(world().a.device.counters().rnr_naks, 153U);
    EXPECT_TRUE(world().a.cq->is_empty());
    world().receive(1, 0, 8);
    EXPECT_EQ(world().a.wait().wc.status, IBV_WC_SUCCESS);
}

TEST_F(VhcaErrors, receiver_not_ready_holds_for_write_with_immediate_but_not_for_write) {
    options.connection.rnr_retry = 0;
    ASSERT_EQ(world().send(0, 0, 8, world().remote(IBV_WR_RDMA_WRITE, 0)), 0);
    EXPECT_EQ(world().a.wait().wc.status, IBV_WC_SUCCESS);
    ASSERT_EQ(world().send(1, 0, 3000, world().remote(IBV_WR_RDMA_WRITE_WITH_IMM, 0)), 0);
    expect_failure(IBV_WC_RNR_RETRY_EXC_ERR);
}

TEST_F(VhcaErrors, every_rnr_timer_code_means_its_time) {
    constexpr Time kMicroseconds[] = {655360, 10,    20,    30,     40,     60,     80,     120,
                                      160,    240,   320,   480,    640,    960,    1280,   1920,
                                      2560,   3840,  5120,  7680,   10240,  15360,  20480,  30720,
                                      40960,  61440, 81920, 122880, 163840, 245760, 327680, 491520};
    for (std::uint8_t code = 0; code < 32; ++code) {
        WorldOptions given;
        given.connection.rnr_retry = 1;
        given.connection.min_rnr_timer = code;
        World busy(given);
        EXPECT_EQ(time_to_failure(busy, IBV_WC_RNR_RETRY_EXC_ERR),
                  kMicroseconds[code] * 1000 + 4000);
    }
}

TEST_F(VhcaErrors, first_packet_before_the_last_transition_is_told_as_established) {
    Qp& qp = world().b.create_qp({.cap = options.cap});
    ASSERT_EQ(world().to_init(qp), 0);
    ASSERT_EQ(world().to_rtr(qp, world().a.route(), world().qa->number(), 0x1000), 0);
    std::vector<std::byte> bytes(packet_bytes(Opcode::kRcSendOnly, 0));
    Packet packet;
    packet.opcode = Opcode::kRcSendOnly;
    packet.qpn = qp.number();
    packet.psn = 0x1000;
    put_headers(bytes.data(), packet, 0);
    ASSERT_EQ(qp.post_recv({5, {}}), 0);
    ASSERT_EQ(qp.post_recv({6, {}}), 0);
    world().fabric.inject(world().a.route(), world().b.route(), bytes);
    world().settle();
    EXPECT_EQ(world().b.events.count(IBV_EVENT_COMM_EST), 1U);
    EXPECT_EQ(world().b.wait().wc.wr_id, 5U);
    packet.psn = 0x1001;
    put_headers(bytes.data(), packet, 0);
    world().fabric.inject(world().a.route(), world().b.route(), bytes);
    world().settle();
    EXPECT_EQ(world().b.events.count(IBV_EVENT_COMM_EST), 1U);
}

}  // namespace

}  // namespace tagwire::vhca
