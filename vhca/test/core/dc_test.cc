// SPDX-License-Identifier: BSD-3-Clause
// DCI and DCT: states, operations, changing targets, errors and recovery.
#include "vhca/test/core/dc_world.hpp"

namespace tagwire::vhca {

namespace {

QpConfig dct_config(Host& host, Srq* srq) {
    return {.type = IBV_QPT_DRIVER,
            .pd = host.pd,
            .send_cq = host.cq,
            .recv_cq = host.cq,
            .srq = srq,
            .dc = {.kind = DcKind::kTarget, .key = kDcKey}};
}

TEST(VhcaDct, number_is_valid_from_rtr_on) {
    DcWorld world;
    Qp* dct = nullptr;
    Host& host = world.target(0);
    ASSERT_EQ(host.device.create_qp(dct_config(host, world.srqs[0]), &dct), 0);
    EXPECT_EQ(dct->number(), 0U);
    EXPECT_EQ(world.modify(*dct, IBV_QPS_INIT, DcWorld::kDctInit), 0);
    EXPECT_EQ(dct->number(), 0U);
    EXPECT_EQ(world.modify(*dct, IBV_QPS_RTR, DcWorld::kDctRtr), 0);
    EXPECT_NE(dct->number(), 0U);
    EXPECT_NE(dct->number(), world.dcts[0]->number());
    EXPECT_EQ(host.device.destroy_qp(*dct), 0);
}

TEST(VhcaDct, needs_an_srq_and_both_cqs) {
    DcWorld world;
    Qp* dct = nullptr;
    Host& host = world.target(0);
    EXPECT_EQ(host.device.create_qp(dct_config(host, nullptr), &dct), EINVAL);
    QpConfig config = dct_config(host, world.srqs[0]);
    config.recv_cq = nullptr;
    EXPECT_EQ(host.device.create_qp(config, &dct), EINVAL);
    config = dct_config(host, world.srqs[0]);
    config.send_cq = nullptr;
    EXPECT_EQ(host.device.create_qp(config, &dct), EINVAL);
}

TEST(VhcaDct, a_device_without_dc_makes_none) {
    World world;
    Qp* qp = nullptr;
    const QpConfig config{.type = IBV_QPT_DRIVER,
                          .pd = world.a.pd,
                          .send_cq = world.a.cq,
                          .dc = {.kind = DcKind::kInitiator}};
    EXPECT_EQ(world.a.device.create_qp(config, &qp), EOPNOTSUPP);
}

TEST(VhcaDct, takes_exactly_its_masks_and_two_transitions) {
    DcWorld world;
    Qp* dct = nullptr;
    Host& host = world.target(0);
    ASSERT_EQ(host.device.create_qp(dct_config(host, world.srqs[0]), &dct), 0);
    constexpr int kExtra = IBV_QP_TIMEOUT;
    for (const int bit : {IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_ACCESS_FLAGS})
        EXPECT_EQ(world.modify(*dct, IBV_QPS_INIT, DcWorld::kDctInit & ~bit), EINVAL);
    EXPECT_EQ(world.modify(*dct, IBV_QPS_INIT, DcWorld::kDctInit | kExtra), EINVAL);
    EXPECT_EQ(world.modify(*dct, IBV_QPS_RTR, DcWorld::kDctRtr), EINVAL);
    EXPECT_EQ(world.modify(*dct, IBV_QPS_INIT, DcWorld::kDctInit), 0);
    EXPECT_EQ(world.modify(*dct, IBV_QPS_INIT, DcWorld::kDctInit), EINVAL);
    for (const int bit : {IBV_QP_MIN_RNR_TIMER, IBV_QP_AV, IBV_QP_PATH_MTU})
        EXPECT_EQ(world.modify(*dct, IBV_QPS_RTR, DcWorld::kDctRtr & ~bit), EINVAL);
    EXPECT_EQ(world.modify(*dct, IBV_QPS_RTR, DcWorld::kDctRtr | kExtra), EINVAL);
    EXPECT_EQ(world.modify(*dct, IBV_QPS_RTR, DcWorld::kDctRtr), 0);
    EXPECT_EQ(world.modify(*dct, IBV_QPS_RTS, DcWorld::kDciRts), EINVAL);
    EXPECT_EQ(world.modify(*dct, IBV_QPS_RESET, 0), EINVAL);
    EXPECT_EQ(world.modify(*dct, IBV_QPS_ERR, 0), EINVAL);
    EXPECT_EQ(dct->state(), IBV_QPS_RTR);
}

TEST(VhcaDct, neither_sends_nor_has_receives_of_its_own) {
    DcWorld world;
    EXPECT_EQ(world.dcts[0]->post_send({}, world.fabric.now()), EINVAL);
    EXPECT_EQ(world.dcts[0]->post_recv({}), EINVAL);
}

TEST(VhcaDci, takes_exactly_its_masks) {
    DcWorld world;
    Qp& dci = world.a().create_qp(
        {.type = IBV_QPT_DRIVER, .cap = world.options.cap, .dc = world.options.dci});
    EXPECT_NE(dci.number(), 0U);
    EXPECT_EQ(world.modify(dci, IBV_QPS_INIT, IBV_QP_PORT), EINVAL);
    EXPECT_EQ(world.modify(dci, IBV_QPS_INIT, DcWorld::kDctInit), EINVAL) << "no access flags";
    EXPECT_EQ(world.modify(dci, IBV_QPS_INIT, DcWorld::kDciInit), 0);
    EXPECT_EQ(world.modify(dci, IBV_QPS_INIT, IBV_QP_PORT), 0);
    EXPECT_EQ(world.modify(dci, IBV_QPS_RTR, 0), EINVAL);
    EXPECT_EQ(world.modify(dci, IBV_QPS_RTR, IBV_QP_PATH_MTU | IBV_QP_DEST_QPN), EINVAL);
    EXPECT_EQ(world.modify(dci, IBV_QPS_RTR, IBV_QP_PATH_MTU | IBV_QP_AV | IBV_QP_PKEY_INDEX), 0);
    for (const int bit : {IBV_QP_TIMEOUT, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY,
                          IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_SQ_PSN}) {
        EXPECT_EQ(world.modify(dci, IBV_QPS_RTS, DcWorld::kDciRts & ~bit), EINVAL);
    }
    EXPECT_EQ(world.modify(dci, IBV_QPS_RTS, DcWorld::kDciRts | IBV_QP_ACCESS_FLAGS), EINVAL);
    EXPECT_EQ(world.modify(dci, IBV_QPS_RTS, DcWorld::kDciRts | IBV_QP_MIN_RNR_TIMER), 0);
    EXPECT_EQ(world.modify(dci, IBV_QPS_RTS, IBV_QP_MIN_RNR_TIMER), 0);
    EXPECT_EQ(world.modify(dci, IBV_QPS_SQD, 0), EINVAL);
    EXPECT_EQ(world.modify(dci, IBV_QPS_ERR, 0), 0);
    EXPECT_EQ(world.modify(dci, IBV_QPS_RESET, 0), 0);
    EXPECT_EQ(world.modify(dci, IBV_QPS_ERR, 0), EINVAL);
}

TEST(VhcaDci, has_no_receive_side) {
    DcWorld world;
    EXPECT_EQ(world.dci->post_recv({}), EINVAL);
    EXPECT_EQ(world.dci->cap().max_recv_wr, 0U);
}

TEST(VhcaDc, messages_reach_the_target_that_they_name) {
    DcWorld world;
    for (std::size_t target = 0; target < 2; ++target)
        EXPECT_EQ(world.receive(target, 10 + target, 0, 64), 0);
    world.a().write(0, "to the first");
    world.a().write(100, "to the second");
    EXPECT_EQ(world.send(0, 1, 0, 12), 0);
    EXPECT_EQ(world.send(1, 2, 100, 13), 0);
    for (std::uint64_t id = 1; id <= 2; ++id) {
        const Completion sent = world.a().wait();
        EXPECT_EQ(sent.wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(sent.wc.wr_id, id);
        EXPECT_EQ(sent.wc.qp_num, world.dci->number());
    }
    for (std::size_t target = 0; target < 2; ++target) {
        const Completion got = world.target(target).wait();
        EXPECT_EQ(got.wc.wr_id, 10 + target);
        EXPECT_EQ(got.wc.opcode, IBV_WC_RECV);
        EXPECT_EQ(got.wc.qp_num, world.dcts[target]->number());
        EXPECT_EQ(got.wc.src_qp, world.dci->number());
    }
    EXPECT_EQ(world.target(0).text(0, 12), "to the first");
    EXPECT_EQ(world.target(1).text(0, 13), "to the second");
}

TEST(VhcaDc, first_message_needs_no_round_trip) {
    DcWorld world;
    EXPECT_EQ(world.receive(0, 1, 0, 64), 0);
    const Time posted = world.fabric.now();
    EXPECT_EQ(world.send(0, 1, 0, 8), 0);
    world.target(0).wait();
    EXPECT_EQ(world.fabric.now() - posted, world.options.fabric.delay_max);
}

TEST(VhcaDc, target_changes_only_when_all_is_acknowledged) {
    DcWorld world;
    for (std::size_t target = 0; target < 2; ++target)
        EXPECT_EQ(world.receive(target, 1, 0, 64), 0);
    const Time posted = world.fabric.now();
    EXPECT_EQ(world.send(0, 1, 0, 8), 0);
    EXPECT_EQ(world.send(1, 2, 0, 8), 0);
    world.target(1).wait();
    EXPECT_EQ(world.fabric.now() - posted, 3 * world.options.fabric.delay_max);
}

TEST(VhcaDc, reads_writes_and_atomics_work) {
    DcWorld world;
    world.a().write(0, "written");
    world.target(1).write(300, "to be read");
    world.target(0).word(512) = 40;
    EXPECT_EQ(world.send(0, 1, 0, 7, world.remote(0, IBV_WR_RDMA_WRITE, 200)), 0);
    EXPECT_EQ(world.send(1, 2, 1000, 10, world.remote(1, IBV_WR_RDMA_READ, 300)), 0);
    SendWork add = world.remote(0, IBV_WR_ATOMIC_FETCH_AND_ADD, 512);
    add.compare_add = 2;
    EXPECT_EQ(world.send(0, 3, 2000, 8, add), 0);
    EXPECT_EQ(world.receive(1, 9, 0, 0), 0);
    SendWork notify = world.remote(1, IBV_WR_RDMA_WRITE_WITH_IMM, 400);
    notify.imm = 77;
    EXPECT_EQ(world.send(1, 4, 0, 7, notify), 0);
    for (std::uint64_t id = 1; id <= 4; ++id) {
        const Completion done = world.a().wait();
        EXPECT_EQ(done.wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(done.wc.wr_id, id);
    }
    EXPECT_EQ(world.target(0).text(200, 7), "written");
    EXPECT_EQ(world.a().text(1000, 10), "to be read");
    EXPECT_EQ(world.a().word(2000), 40U);
    EXPECT_EQ(world.target(0).word(512), 42U);
    const Completion notified = world.target(1).wait();
    EXPECT_EQ(notified.wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    EXPECT_EQ(notified.wc.imm_data, 77U);
}

TEST(VhcaDc, big_messages_and_reads_are_segmented) {
    DcOptions options;
    options.connection.mtu = IBV_MTU_256;
    DcWorld world(options);
    const std::string text(5000, 'x');
    world.a().write(0, text);
    EXPECT_EQ(world.receive(0, 1, 0, 8192), 0);
    EXPECT_EQ(world.send(0, 1, 0, 5000), 0);
    EXPECT_EQ(world.send(0, 2, 10000, 5000, world.remote(0, IBV_WR_RDMA_READ, 0)), 0);
    EXPECT_EQ(world.a().wait().wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(world.a().wait().wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(world.target(0).text(0, 5000), text);
    EXPECT_EQ(world.a().text(10000, 5000), text);
}

TEST(VhcaDc, no_receive_means_rnr_and_waiting) {
    DcWorld world;
    EXPECT_EQ(world.send(0, 1, 0, 8), 0);
    EXPECT_TRUE(world.fabric.run([&] { return world.a().device.counters().rnr_naks > 0; }, 10'000));
    EXPECT_EQ(world.receive(0, 1, 0, 64), 0);
    EXPECT_EQ(world.a().wait().wc.status, IBV_WC_SUCCESS);
}

TEST(VhcaDc, rnr_retries_run_out) {
    DcOptions options;
    options.connection.rnr_retry = 2;
    DcWorld world(options);
    EXPECT_EQ(world.send(0, 1, 0, 8), 0);
    EXPECT_EQ(world.a().wait().wc.status, IBV_WC_RNR_RETRY_EXC_ERR);
    EXPECT_EQ(world.dci->state(), IBV_QPS_ERR);
}

// ---- Errors ------------------------------------------------------------------------------------

/// The DCI fails with `status`, what was behind is flushed, and the DCT serves another one.
void expect_failure(DcWorld& world, ibv_wc_status status) {
    const Completion failed = world.a().wait();
    EXPECT_EQ(failed.wc.status, status);
    EXPECT_EQ(world.dci->state(), IBV_QPS_ERR);
    EXPECT_EQ(world.send(0, 99, 0, 8), 0) << "accepted, and flushed";
    EXPECT_EQ(world.a().wait().wc.status, IBV_WC_WR_FLUSH_ERR);
    world.dci = &world.make_dci(world.a());
    while (world.target(0).poll()) {
    }
    EXPECT_EQ(world.receive(0, 7, 0, 64), 0);
    EXPECT_EQ(world.send(0, 100, 0, 8), 0);
    EXPECT_EQ(world.a().wait().wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(world.target(0).wait().wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(world.dcts[0]->state(), IBV_QPS_RTR);
}

TEST(VhcaDcErrors, destroyed_dct_exceeds_the_retries) {
    DcWorld world;
    Qp& other = world.make_dct(world.target(0), world.srqs[0]);
    const std::uint32_t number = other.number();
    ASSERT_EQ(world.target(0).device.destroy_qp(other), 0);
    EXPECT_EQ(world.send(0, 1, 0, 8, {.remote_qpn = number}), 0);
    expect_failure(world, IBV_WC_RETRY_EXC_ERR);
}

TEST(VhcaDcErrors, unreachable_node_exceeds_the_retries) {
    DcWorld world;
    world.fabric.crash(2);
    EXPECT_EQ(world.send(1, 1, 0, 8), 0);
    expect_failure(world, IBV_WC_RETRY_EXC_ERR);
}

TEST(VhcaDcErrors, crash_of_the_target_in_mid_traffic_exceeds_the_retries) {
    DcWorld world;
    EXPECT_EQ(world.receive(1, 1, 0, 64), 0);
    EXPECT_EQ(world.send(1, 1, 0, 8), 0);
    EXPECT_EQ(world.a().wait().wc.status, IBV_WC_SUCCESS);
    world.fabric.crash(2);
    EXPECT_EQ(world.send(1, 2, 0, 8), 0);
    expect_failure(world, IBV_WC_RETRY_EXC_ERR);
}

TEST(VhcaDcErrors, bad_rkey_is_an_access_error_and_the_target_is_told) {
    DcWorld world;
    SendWork write = world.remote(0, IBV_WR_RDMA_WRITE, 0);
    write.rkey ^= 0x100;
    EXPECT_EQ(world.send(0, 1, 0, 8, write), 0);
    expect_failure(world, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(world.target(0).events.count(IBV_EVENT_QP_ACCESS_ERR), 1U);
    EXPECT_EQ(world.target(0).events.qps.front().second, world.dcts[0]);
    EXPECT_EQ(world.target(0).events.count(IBV_EVENT_QP_LAST_WQE_REACHED), 0U);
}

TEST(VhcaDcErrors, region_of_another_domain_is_an_access_error) {
    DcWorld world;
    Host& host = world.target(0);
    Pd* pd = nullptr;
    Mr* mr = nullptr;
    ASSERT_EQ(host.device.create_pd(nullptr, &pd), 0);
    ASSERT_EQ(host.device.create_mr(*pd, host.memory.data(), 64, host.address(0), kAllAccess, &mr),
              0);
    SendWork write = world.remote(0, IBV_WR_RDMA_WRITE, 0);
    write.rkey = mr->key;
    EXPECT_EQ(world.send(0, 1, 0, 8, write), 0);
    expect_failure(world, IBV_WC_REM_ACCESS_ERR);
}

TEST(VhcaDcErrors, message_that_is_too_long_is_an_invalid_request) {
    DcWorld world;
    EXPECT_EQ(world.receive(0, 5, 0, 8), 0);
    EXPECT_EQ(world.send(0, 1, 0, 64), 0);
    const Completion got = world.target(0).wait();
    EXPECT_EQ(got.wc.status, IBV_WC_LOC_LEN_ERR);
    EXPECT_EQ(got.wc.wr_id, 5U);
    expect_failure(world, IBV_WC_REM_INV_REQ_ERR);
}

TEST(VhcaDcErrors, wrong_key_exceeds_the_retries_by_default) {
    DcWorld world;
    EXPECT_EQ(world.receive(0, 5, 0, 64), 0);
    EXPECT_EQ(world.send(0, 1, 0, 8, {.dc_key = kDcKey + 1}), 0);
    EXPECT_FALSE(world.target(0).poll().has_value());
    expect_failure(world, IBV_WC_RETRY_EXC_ERR);
}

TEST(VhcaDcErrors, wrong_key_is_an_access_error_if_the_target_tells) {
    DcOptions options;
    options.node.device.tells_dc_key_violation = true;
    DcWorld world(options);
    EXPECT_EQ(world.send(0, 1, 0, 8, {.dc_key = kDcKey + 1}), 0);
    expect_failure(world, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(world.target(0).events.count(IBV_EVENT_QP_ACCESS_ERR), 1U);
}

TEST(VhcaDcErrors, bad_local_key_is_told_after_what_was_before) {
    DcWorld world;
    EXPECT_EQ(world.receive(0, 5, 0, 64), 0);
    EXPECT_EQ(world.send(0, 1, 0, 8), 0);
    const ibv_sge sge{world.a().address(0), 8, world.a().mr->key ^ 0x100};
    const SendWork work{.wr_id = 2,
                        .route = world.target(1).route(),
                        .remote_qpn = world.dcts[1]->number(),
                        .dc_key = kDcKey,
                        .sges = {&sge, 1}};
    EXPECT_EQ(world.dci->post_send(work, world.fabric.now()), 0);
    EXPECT_EQ(world.a().wait().wc.status, IBV_WC_SUCCESS);
    expect_failure(world, IBV_WC_LOC_PROT_ERR);
}

TEST(VhcaDcErrors, dci_works_again_after_reset) {
    DcWorld world;
    SendWork write = world.remote(0, IBV_WR_RDMA_WRITE, 0);
    write.rkey ^= 0x100;
    EXPECT_EQ(world.send(0, 1, 0, 8, write), 0);
    EXPECT_EQ(world.send(1, 2, 0, 8, world.remote(1, IBV_WR_RDMA_WRITE, 0)), 0);
    EXPECT_TRUE(world.fabric.run([&] { return world.dci->state() == IBV_QPS_ERR; }));
    EXPECT_EQ(world.modify(*world.dci, IBV_QPS_RESET, 0), 0);
    EXPECT_FALSE(world.a().poll().has_value()) << "its completions are gone";
    world.to_rts(*world.dci);
    for (std::size_t target = 0; target < 2; ++target) {
        EXPECT_EQ(world.receive(target, 3, 0, 64), 0);
        EXPECT_EQ(world.send(target, 3, 0, 8), 0);
        EXPECT_EQ(world.a().wait().wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(world.target(target).wait().wc.status, IBV_WC_SUCCESS);
    }
}

TEST(VhcaDcErrors, reset_in_mid_message_gives_the_receive_back) {
    DcOptions options;
    options.node.device.packets_ahead = 2;
    options.connection.mtu = IBV_MTU_256;
    DcWorld world(options);
    EXPECT_EQ(world.receive(0, 5, 0, 8192), 0);
    EXPECT_EQ(world.send(0, 1, 0, 4096), 0);
    world.fabric.step();
    world.fabric.step();
    EXPECT_EQ(world.modify(*world.dci, IBV_QPS_RESET, 0), 0);
    world.settle();
    EXPECT_FALSE(world.target(0).poll().has_value());
    world.to_rts(*world.dci);
    EXPECT_EQ(world.send(0, 2, 0, 8), 0);
    EXPECT_EQ(world.a().wait().wc.status, IBV_WC_SUCCESS);
    const Completion got = world.target(0).wait();
    EXPECT_EQ(got.wc.wr_id, 5U);
    EXPECT_EQ(got.wc.byte_len, 8U);
}

}  // namespace

}  // namespace tagwire::vhca
