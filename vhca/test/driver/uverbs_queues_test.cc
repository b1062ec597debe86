// SPDX-License-Identifier: BSD-3-Clause
// Commands of the driver face: SRQs, queue pairs, and rings that move without a call.
//
// Clang captures no variable of a type that ends with a flexible array, but a reference to it.
#include <sys/mman.h>

#include <atomic>

#include "uverbs_fixture.hpp"

namespace tagwire::vhca::driver::test {
namespace {

// ---- Shared receive queues ---------------------------------------------------------------------

TEST_F(VhcaUverbs, shared_queues_answer_what_the_driver_masks_with) {
    Commander& commander = use();
    Parts parts(commander);
    ib_uverbs_create_srq request{};
    request.pd_handle = parts.pd;
    request.max_wr = 9;
    request.max_sge = 3;
    ib_uverbs_create_srq_resp srq{};
    mlx5_ib_create_srq_resp driver{};
    ASSERT_EQ(
        commander.plain(IB_USER_VERBS_CMD_CREATE_SRQ, request, &srq, parts.srq_ring(), &driver), 0);
    EXPECT_EQ(srq.max_wr, 15U);
    EXPECT_EQ(srq.max_sge, 3U);
    EXPECT_EQ(srq.srqn, driver.srqn);
    ib_uverbs_query_srq query{};
    query.srq_handle = srq.srq_handle;
    ib_uverbs_query_srq_resp facts{};
    ASSERT_EQ(commander.plain(IB_USER_VERBS_CMD_QUERY_SRQ, query, &facts), 0);
    EXPECT_EQ(facts.max_wr, 15U);
    EXPECT_EQ(facts.max_sge, 3U);
    query.srq_handle = kUnknown;
    EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_QUERY_SRQ, query, &facts), EINVAL);
}

TEST_F(VhcaUverbs, shared_queues_that_cannot_be_are_refused) {
    Commander& commander = use();
    Parts parts(commander);
    const auto create = [&](const auto& change) {
        ib_uverbs_create_xsrq request = parts.srq_request();
        mlx5_ib_create_srq ring = parts.srq_ring();
        change(request, ring);
        commander.make_srq(request, ring);
        return commander.error;
    };
    EXPECT_EQ(create([](auto& r, auto&) { r.pd_handle = kUnknown; }), EINVAL);
    EXPECT_EQ(create([](auto& r, auto&) { r.max_wr = 32768; }), EINVAL);
    EXPECT_EQ(create([](auto& r, auto&) { r.max_wr = UINT32_MAX; }), EINVAL);
    EXPECT_EQ(create([](auto& r, auto&) { r.max_sge = 32; }), EINVAL);
    EXPECT_EQ(create([](auto& r, auto&) { r.srq_type = IBV_SRQT_XRC; }), EINVAL);
    EXPECT_EQ(create([](auto& r, auto&) { r.srq_type = 9; }), EOPNOTSUPP);
    EXPECT_EQ(create([](auto&, auto& ring) { ring.buf_addr = kNowhere; }), EFAULT);
    EXPECT_EQ(create([](auto&, auto& ring) { ring.db_addr = kNowhere; }), EFAULT);
    EXPECT_EQ(create([](auto&, auto& ring) { ring.reserved0 = 1; }), EINVAL);
    const auto tags = [&](const auto& change) {
        return create([&](auto& r, auto& ring) {
            r.srq_type = IBV_SRQT_TM;
            r.cq_handle = parts.cq;
            r.max_num_tags = 8;
            change(r, ring);
        });
    };
    EXPECT_EQ(tags([](auto& r, auto&) { r.cq_handle = kUnknown; }), EINVAL);
    EXPECT_EQ(tags([](auto& r, auto&) { r.max_num_tags = 0; }), EINVAL);
    EXPECT_EQ(tags([](auto& r, auto&) { r.max_num_tags = 1024; }), EINVAL);
    EXPECT_EQ(tags([](auto&, auto& ring) { ring.uidx = 1 << 24; }), EINVAL);
    EXPECT_EQ(tags([](auto&, auto&) {}), 0);
    // It uses its CQ.
    ib_uverbs_destroy_cq_resp gone{};
    EXPECT_EQ(
        commander.plain(IB_USER_VERBS_CMD_DESTROY_CQ, ib_uverbs_destroy_cq{0, parts.cq, 0}, &gone),
        EBUSY);
}

TEST_F(VhcaUverbs, events_that_were_read_are_reported_and_others_taken_back) {
    Commander& commander = use();
    Parts parts(commander);
    for (const bool is_read : {true, false}) {
        const std::uint32_t srq = commander.make_srq(parts.srq_request(), parts.srq_ring());
        ASSERT_EQ(commander.error, 0);
        ib_uverbs_modify_srq modify{};
        modify.srq_handle = srq;
        modify.attr_mask = IBV_SRQ_MAX_WR;
        EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_MODIFY_SRQ, modify), EINVAL);
        modify.attr_mask = IBV_SRQ_LIMIT;
        modify.srq_limit = 16;
        EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_MODIFY_SRQ, modify), EINVAL);
        modify.srq_limit = 2;  // fewer are posted
        EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_MODIFY_SRQ, modify), 0);
        if (is_read) {
            EXPECT_TRUE(comes_true([&] { return can_read(commander.async_fd); }));
        }
        ib_uverbs_destroy_srq_resp gone{};
        EXPECT_EQ(
            commander.plain(IB_USER_VERBS_CMD_DESTROY_SRQ, ib_uverbs_destroy_srq{0, srq, 0}, &gone),
            0);
        EXPECT_EQ(gone.events_reported, is_read ? 1U : 0U);
        EXPECT_FALSE(can_read(commander.async_fd));
    }
}

// ---- Queue pairs -------------------------------------------------------------------------------

TEST_F(VhcaUverbs, queue_pairs_that_cannot_be_are_refused) {
    Commander& commander = use();
    Parts parts(commander);
    const auto create = [&](const auto& change) {
        ib_uverbs_create_qp request = parts.qp_request(IBV_QPT_RC);
        mlx5_ib_create_qp rings = parts.qp_rings();
        change(request, rings);
        commander.make_qp(request, rings);
        return commander.error;
    };
    EXPECT_EQ(create([](auto& r, auto&) { r.qp_type = 5; }), EINVAL);
    EXPECT_EQ(create([](auto& r, auto&) { r.qp_type = IBV_QPT_RAW_PACKET; }), EPERM);
    EXPECT_EQ(create([](auto& r, auto&) { r.qp_type = IBV_QPT_XRC_SEND; }), EOPNOTSUPP);
    EXPECT_EQ(create([](auto& r, auto&) { r.qp_type = IBV_QPT_XRC_RECV; }), EINVAL);
    EXPECT_EQ(create([](auto& r, auto&) { r.pd_handle = kUnknown; }), EINVAL);
    EXPECT_EQ(create([](auto& r, auto&) { r.send_cq_handle = kUnknown; }), EINVAL);
    EXPECT_EQ(create([](auto& r, auto&) { r.recv_cq_handle = kUnknown; }), EINVAL);
    EXPECT_EQ(create([](auto& r, auto&) {
                  r.is_srq = 1;
                  r.srq_handle = kUnknown;
              }),
              EINVAL);
    EXPECT_EQ(create([](auto&, auto& rings) { rings.flags = 1 << 20; }), EINVAL);
    EXPECT_EQ(create([](auto&, auto& rings) { rings.flags = MLX5_QP_FLAG_SIGNATURE; }), EINVAL);
    EXPECT_EQ(create([](auto&, auto& rings) { rings.flags = MLX5_QP_FLAG_SCATTER_CQE; }), 0);
    EXPECT_EQ(create([](auto&, auto& rings) { rings.uidx = 1 << 24; }), EINVAL);
    EXPECT_EQ(create([](auto&, auto& rings) { rings.sq_wqe_count = 17; }), EINVAL);
    EXPECT_EQ(create([](auto&, auto& rings) { rings.sq_wqe_count = 65536; }), EINVAL);
    EXPECT_EQ(create([](auto&, auto& rings) { rings.rq_wqe_count = 0; }), EINVAL);
    EXPECT_EQ(create([](auto&, auto& rings) { rings.rq_wqe_shift = 3; }), EINVAL);
    EXPECT_EQ(create([](auto&, auto& rings) { rings.rq_wqe_shift = 40; }), EINVAL);
    EXPECT_EQ(create([](auto&, auto& rings) { rings.buf_addr = kNowhere; }), EFAULT);
    EXPECT_EQ(create([](auto&, auto& rings) { rings.db_addr = kNowhere; }), EFAULT);
    EXPECT_EQ(create([](auto&, auto& rings) { rings.buf_addr += 16; }), EINVAL);
    EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_CREATE_QP, parts.qp_request(IBV_QPT_RC),
                              static_cast<ib_uverbs_create_qp_resp*>(nullptr)),
              EINVAL);
}

TEST_F(VhcaUverbs, extended_queue_pairs_have_flags_that_are_none) {
    Commander& commander = use();
    Parts parts(commander);
    const auto create = [&](const auto& change) {
        ib_uverbs_ex_create_qp request{};
        request.pd_handle = parts.pd;
        request.send_cq_handle = request.recv_cq_handle = parts.cq;
        request.max_send_wr = request.max_recv_wr = 16;
        request.max_send_sge = request.max_recv_sge = 1;
        request.qp_type = IBV_QPT_UD;
        change(request);
        ib_uverbs_ex_create_qp_resp response{};
        mlx5_ib_create_qp_resp driver{};
        const int error = commander.extended(IB_USER_VERBS_EX_CMD_CREATE_QP, request, &response,
                                             parts.qp_rings(), &driver);
        EXPECT_TRUE(error != 0 || response.response_length == sizeof response);
        return error;
    };
    EXPECT_EQ(create([](auto& r) { r.create_flags = 1U << 31; }), EINVAL);
    EXPECT_EQ(create([](auto& r) { r.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB; }),
              EOPNOTSUPP);
    EXPECT_EQ(create([](auto& r) { r.create_flags = IBV_QP_CREATE_SOURCE_QPN; }), EPERM);
    EXPECT_EQ(create([](auto& r) { r.comp_mask = 1; }), EINVAL);
    EXPECT_EQ(create([](auto& r) { r.comp_mask = 2; }), EINVAL);
    EXPECT_EQ(create([](auto& r) { r.reserved = 1; }), EINVAL);
    EXPECT_EQ(create([](auto&) {}), 0);
}

TEST_F(VhcaUverbs, dc_queue_pairs_are_of_one_kind) {
    Commander& commander = use();
    Parts parts(commander);
    const std::uint32_t srq = commander.make_srq(parts.srq_request(), parts.srq_ring());
    const auto create = [&](std::uint32_t flags, const auto& change) {
        ib_uverbs_create_qp request = parts.dc_request();
        mlx5_ib_create_qp rings = parts.qp_rings();
        rings.flags = flags;
        change(request, rings);
        return commander.make_qp(request, rings);
    };
    const auto as_it_is = [](auto&, auto&) {};
    const auto with_srq = [srq](auto& request, auto&) {
        request.is_srq = 1;
        request.srq_handle = srq;
    };
    create(0, as_it_is);
    EXPECT_EQ(commander.error, EINVAL);
    create(MLX5_QP_FLAG_TYPE_DCI | MLX5_QP_FLAG_TYPE_DCT, with_srq);
    EXPECT_EQ(commander.error, EINVAL);
    create(MLX5_QP_FLAG_TYPE_DCT, as_it_is);
    EXPECT_EQ(commander.error, EINVAL);
    create(MLX5_QP_FLAG_TYPE_DCI, [](auto& request, auto&) { request.max_recv_wr = 1; });
    EXPECT_EQ(commander.error, EINVAL);
    create(MLX5_QP_FLAG_TYPE_DCI | MLX5_QP_FLAG_DCI_STREAM,
           [](auto&, auto& rings) { rings.dci_streams.log_num_concurent = 9; });
    EXPECT_EQ(commander.error, EINVAL);
    create(MLX5_QP_FLAG_TYPE_DCI | MLX5_QP_FLAG_DCI_STREAM, as_it_is);
    EXPECT_EQ(commander.error, 0);
    const std::uint32_t dci = create(MLX5_QP_FLAG_TYPE_DCI, as_it_is);
    EXPECT_EQ(commander.error, 0);
    constexpr std::uint32_t kDciInit = IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    EXPECT_EQ(modify(commander, dci, kInit, IBV_QPS_INIT), EINVAL);
    EXPECT_EQ(modify(commander, dci, kDciInit, IBV_QPS_INIT), 0);
    EXPECT_EQ(modify(commander, dci, IBV_QP_PATH_MTU | IBV_QP_AV, IBV_QPS_RTR), 0);
    EXPECT_EQ(modify(commander, dci, kRts, IBV_QPS_RTS), 0);
}

TEST_F(VhcaUverbs, a_dc_target_gets_its_number_when_it_is_ready) {
    Commander& commander = use();
    Parts parts(commander);
    const std::uint32_t srq = commander.make_srq(parts.srq_request(), parts.srq_ring());
    ib_uverbs_create_qp request = parts.dc_request();
    request.is_srq = 1;
    request.srq_handle = srq;
    mlx5_ib_create_qp rings{};
    rings.flags = MLX5_QP_FLAG_TYPE_DCT;
    std::uint32_t number = 1;
    const std::uint32_t dct = commander.make_qp(request, rings, &number);
    ASSERT_EQ(commander.error, 0);
    EXPECT_EQ(number, 0U);
    EXPECT_EQ(modify(commander, dct, kInit, IBV_QPS_INIT), 0);
    ib_uverbs_ex_modify_qp ready{};
    constexpr std::uint32_t kReady = IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU;
    ready.base = modify_request(dct, kReady, IBV_QPS_RTR);
    ib_uverbs_ex_modify_qp_resp response{};
    mlx5_ib_modify_qp_resp driver{};
    EXPECT_EQ(commander.extended(IB_USER_VERBS_EX_CMD_MODIFY_QP, ready, &response), EINVAL);
    EXPECT_EQ(commander.extended(IB_USER_VERBS_EX_CMD_MODIFY_QP, ready, &response,
                                 mlx5_ib_modify_qp{}, &driver),
              0);
    EXPECT_NE(driver.dctn, 0U);
    EXPECT_GE(driver.response_length, 8U);
    ib_uverbs_query_qp query{};
    query.qp_handle = dct;
    query.attr_mask = IBV_QP_STATE;
    ib_uverbs_query_qp_resp facts{};
    EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_QUERY_QP, query, &facts), 0);
    EXPECT_EQ(facts.qp_state, IBV_QPS_RTR);
    query.attr_mask |= IBV_QP_SQ_PSN;
    EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_QUERY_QP, query, &facts), EINVAL);
}

TEST_F(VhcaUverbs, states_follow_each_other_with_what_they_need) {
    Commander& commander = use();
    Parts parts(commander);
    const std::uint32_t qp = commander.make_qp(parts.qp_request(IBV_QPT_RC), parts.qp_rings());
    ASSERT_EQ(commander.error, 0);
    const auto change = [&](std::uint32_t mask, ibv_qp_state state, const auto& edit) {
        ib_uverbs_modify_qp request = modify_request(qp, mask, state);
        edit(request);
        return commander.plain(IB_USER_VERBS_CMD_MODIFY_QP, request);
    };
    EXPECT_EQ(modify(commander, kUnknown, kInit, IBV_QPS_INIT), EINVAL);
    EXPECT_EQ(modify(commander, qp, kRtr, IBV_QPS_RTR), EINVAL);
    EXPECT_EQ(modify(commander, qp, IBV_QP_PORT, IBV_QPS_INIT), EINVAL);
    EXPECT_EQ(change(kInit, IBV_QPS_INIT, [](auto& r) { r.port_num = 2; }), EINVAL);
    EXPECT_EQ(change(kInit, IBV_QPS_INIT, [](auto& r) { r.pkey_index = 1; }), EINVAL);
    EXPECT_EQ(change(kInit, IBV_QPS_INIT, [](auto& r) { r.qp_state = 7; }), EINVAL);
    EXPECT_EQ(change(kInit | 1U << 25, IBV_QPS_INIT, [](auto&) {}), EOPNOTSUPP);
    EXPECT_EQ(modify(commander, qp, kInit, IBV_QPS_INIT), 0);
    EXPECT_EQ(change(kRtr, IBV_QPS_RTR, [](auto& r) { r.dest.port_num = 0; }), EINVAL);
    EXPECT_EQ(change(kRtr, IBV_QPS_RTR, [](auto& r) { r.path_mtu = 6; }), EINVAL);
    EXPECT_EQ(change(kRtr, IBV_QPS_RTR,
                     [](auto& r) {
                         r.dest.is_global = 1;
                         r.dest.sgid_index = 3;
                     }),
              ENODATA);
    EXPECT_EQ(modify(commander, qp, kRtr, IBV_QPS_RTR), 0);
    EXPECT_EQ(change(kRts, IBV_QPS_RTS, [](auto& r) { r.timeout = 32; }), EINVAL);
    EXPECT_EQ(modify(commander, qp, kRts, IBV_QPS_RTS), 0);
    ib_uverbs_query_qp query{};
    query.qp_handle = qp;
    query.attr_mask = IBV_QP_STATE;
    ib_uverbs_query_qp_resp facts{};
    ASSERT_EQ(commander.plain(IB_USER_VERBS_CMD_QUERY_QP, query, &facts), 0);
    EXPECT_EQ(facts.qp_state, IBV_QPS_RTS);
    EXPECT_EQ(facts.path_mtu, IBV_MTU_1024);
    EXPECT_EQ(facts.dest.dlid, 1);
    EXPECT_EQ(facts.max_send_wr, 16U);
    EXPECT_EQ(modify(commander, qp, 0, IBV_QPS_RESET), 0);
    EXPECT_EQ(modify(commander, qp, 0, IBV_QPS_ERR), EINVAL);
    query.qp_handle = kUnknown;
    EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_QUERY_QP, query, &facts), EINVAL);
    EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_ATTACH_MCAST, ib_uverbs_attach_mcast{}), EINVAL);
    ib_uverbs_attach_mcast group{};
    group.qp_handle = qp;
    EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_ATTACH_MCAST, group), EOPNOTSUPP);
}

TEST_F(VhcaUverbs, queries_say_how_many_receives_the_ring_holds) {
    Commander& commander = use();
    Parts parts(commander);
    ib_uverbs_create_qp request = parts.qp_request(IBV_QPT_RC);
    request.max_recv_wr = 10;
    mlx5_ib_create_qp rings = parts.qp_rings();
    rings.rq_wqe_shift = 5;
    ib_uverbs_query_qp query{};
    query.qp_handle = commander.make_qp(request, rings);
    ib_uverbs_query_qp_resp facts{};
    ASSERT_EQ(commander.plain(IB_USER_VERBS_CMD_QUERY_QP, query, &facts), 0);
    EXPECT_EQ(facts.max_recv_wr, 16U);
    EXPECT_EQ(facts.max_recv_sge, 2U);
}

TEST_F(VhcaUverbs, what_is_used_stays_until_its_users_go) {
    Commander& commander = use();
    Parts parts(commander);
    const std::uint32_t srq = commander.make_srq(parts.srq_request(), parts.srq_ring());
    ib_uverbs_create_qp request = parts.qp_request(IBV_QPT_RC);
    request.is_srq = 1;
    request.srq_handle = srq;
    const std::uint32_t qp = commander.make_qp(request, parts.qp_rings());
    ASSERT_EQ(commander.error, 0);
    ib_uverbs_destroy_srq_resp srq_gone{};
    ib_uverbs_destroy_cq_resp cq_gone{};
    ib_uverbs_destroy_qp_resp qp_gone{};
    const auto end_all = [&](int error) {
        EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_DESTROY_SRQ, ib_uverbs_destroy_srq{0, srq, 0},
                                  &srq_gone),
                  error);
        EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_DESTROY_CQ,
                                  ib_uverbs_destroy_cq{0, parts.cq, 0}, &cq_gone),
                  error);
        EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_DEALLOC_PD, ib_uverbs_dealloc_pd{parts.pd}),
                  error);
    };
    end_all(EBUSY);
    EXPECT_EQ(
        commander.plain(IB_USER_VERBS_CMD_DESTROY_QP, ib_uverbs_destroy_qp{0, qp, 0}, &qp_gone), 0);
    EXPECT_EQ(qp_gone.events_reported, 0U);
    EXPECT_EQ(
        commander.plain(IB_USER_VERBS_CMD_DESTROY_QP, ib_uverbs_destroy_qp{0, qp, 0}, &qp_gone),
        ENOENT);
    end_all(0);
}

TEST_F(VhcaUverbs, objects_of_other_contexts_are_not_seen) {
    Commander& commander = use();
    Parts parts(commander);
    const std::uint32_t qp = commander.make_qp(parts.qp_request(IBV_QPT_RC), parts.qp_rings());
    ASSERT_EQ(commander.error, 0);
    const std::unique_ptr<Context> second = open_context(0);
    Commander other(*second);
    ASSERT_EQ(other.open(), 0);
    other.make_qp(parts.qp_request(IBV_QPT_RC), parts.qp_rings());
    EXPECT_EQ(other.error, EINVAL);
    EXPECT_EQ(modify(other, qp, kInit, IBV_QPS_INIT), EINVAL);
    ib_uverbs_destroy_qp_resp gone{};
    EXPECT_EQ(other.plain(IB_USER_VERBS_CMD_DESTROY_QP, ib_uverbs_destroy_qp{0, qp, 0}, &gone),
              ENOENT);
    close(other.async_fd);
}

// ---- The rings move ----------------------------------------------------------------------------

/// A queue pair in RTS that is connected to itself, and its memory.
struct Loop {
    explicit Loop(Parts& parts) : ring(parts.qp_rings()) {
        Commander& commander = parts.commander;
        qp = commander.make_qp(parts.qp_request(IBV_QPT_RC), ring, &number);
        EXPECT_EQ(commander.error, 0);
        EXPECT_EQ(modify(commander, qp, kInit, IBV_QPS_INIT), 0);
        ib_uverbs_modify_qp request = modify_request(qp, kRtr, IBV_QPS_RTR);
        request.dest_qp_num = number;
        EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_MODIFY_QP, request), 0);
        EXPECT_EQ(modify(commander, qp, kRts, IBV_QPS_RTS), 0);
    }
    /// A NOP that wants a completion, and its doorbell record.
    void post_nop(std::uint16_t index) const {
        auto* entry = reinterpret_cast<std::uint32_t*>(ring.buf_addr + 16 * 16) + index % 16 * 16;
        entry[0] = __builtin_bswap32(std::uint32_t{index} << 8);
        entry[1] = __builtin_bswap32(number << 8 | 1);
        entry[2] = __builtin_bswap32(8);
        entry[3] = 0;
        auto* record = reinterpret_cast<std::uint32_t*>(ring.db_addr) + 1;
        std::atomic_ref(*record).store(__builtin_bswap32(std::uint32_t{index} + 1),
                                       std::memory_order_release);
    }

    mlx5_ib_create_qp ring;
    std::uint32_t qp = 0, number = 0;
};

TEST_F(VhcaUverbs, a_request_in_a_ring_completes_without_a_call) {
    Commander& commander = use();
    Parts parts(commander);
    const auto channel = static_cast<int>(commander.make_channel());
    ib_uverbs_create_cq request = Parts::cq_request(15);
    request.comp_channel = channel;
    const mlx5_ib_create_cq cq_ring = parts.cq_ring();
    parts.cq = commander.make_cq(request, cq_ring);
    auto& owner = *reinterpret_cast<std::uint8_t*>(cq_ring.buf_addr + 63);
    owner = 0xf0;  // as the driver marks entries that are none
    const Loop loop(parts);
    // Armed for any completion after the first 0 of them.
    auto* arm = reinterpret_cast<std::uint32_t*>(cq_ring.db_addr) + 1;
    std::atomic_ref(*arm).store(0, std::memory_order_release);
    loop.post_nop(0);
    EXPECT_TRUE(comes_true(
        [&] { return std::atomic_ref(owner).load(std::memory_order_acquire) >> 4 == 0; }));
    std::uint64_t told = 0;
    fcntl(channel, F_SETFL, O_NONBLOCK);
    EXPECT_TRUE(comes_true([&] { return read(channel, &told, sizeof told) == sizeof told; }));
    EXPECT_EQ(told, request.user_handle);
    close(channel);
}

TEST_F(VhcaUverbs, a_queue_gets_no_smaller_than_what_was_posted_fills) {
    Commander& commander = use();
    Parts parts(commander);
    ib_uverbs_resize_cq request{};
    request.cq_handle = parts.cq;
    request.cqe = 3;
    mlx5_ib_resize_cq ring{};
    ring.buf_addr = parts.take(64 * 4);
    ring.cqe_size = 64;
    const Loop loop(parts);
    for (std::uint16_t i = 0; i < 8; ++i)
        loop.post_nop(i);
    // At once: the device's thread may not have looked yet.
    std::uint64_t response = 0;
    EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_RESIZE_CQ, request, &response, ring), EINVAL);
}

TEST_F(VhcaUverbs, a_queue_pair_whose_ring_is_gone_fails) {
    Commander& commander = use();
    Parts parts(commander);
    void* pages = mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(pages, MAP_FAILED);
    ib_uverbs_create_qp request = parts.qp_request(IBV_QPT_UD);
    mlx5_ib_create_qp rings = parts.qp_rings();
    rings.buf_addr = reinterpret_cast<std::uint64_t>(pages);
    rings.db_addr = rings.buf_addr + 4096;
    const std::uint32_t qp = commander.make_qp(request, rings);
    constexpr std::uint32_t kUdInit = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
    EXPECT_EQ(modify(commander, qp, kUdInit, IBV_QPS_INIT), 0);
    EXPECT_EQ(modify(commander, qp, 0, IBV_QPS_RTR), 0);
    EXPECT_EQ(modify(commander, qp, IBV_QP_SQ_PSN, IBV_QPS_RTS), 0);
    // Unmapped pages would be given to the next thread that asks for some: these stay unreadable.
    ASSERT_EQ(mprotect(pages, 8192, PROT_NONE), 0);
    ib_uverbs_query_qp query_memory{};
    auto& query = query_memory;
    query.qp_handle = qp;
    ib_uverbs_query_qp_resp facts_memory{};
    auto& facts = facts_memory;
    EXPECT_TRUE(comes_true([&] {
        return commander.plain(IB_USER_VERBS_CMD_QUERY_QP, query, &facts) == 0 &&
               facts.qp_state == IBV_QPS_ERR;
    }));
    EXPECT_EQ(munmap(pages, 8192), 0);
}

TEST_F(VhcaUverbs, everything_goes_with_its_context) {
    Commander& commander = use();
    Parts parts(commander);
    const Loop loop(parts);
    ib_uverbs_create_xsrq tags = parts.srq_request();
    tags.srq_type = IBV_SRQT_TM;
    tags.cq_handle = parts.cq;
    tags.max_num_tags = 8;
    commander.make_srq(tags, parts.srq_ring());
    EXPECT_EQ(commander.error, 0);
    ib_uverbs_reg_mr region{};
    region.start = region.hca_va = parts.pages.address();
    region.length = 100;
    region.pd_handle = parts.pd;
    ib_uverbs_reg_mr_resp mr{};
    EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_REG_MR, region, &mr), 0);
    ib_uverbs_create_ah address{};
    address.pd_handle = parts.pd;
    address.attr.port_num = 1;
    ib_uverbs_create_ah_resp ah{};
    EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_CREATE_AH, address, &ah), 0);
    const auto channel = static_cast<int>(commander.make_channel());
    loop.post_nop(0);
    context_.reset();
    // Nobody writes to it any more.
    std::uint64_t told = 0;
    EXPECT_EQ(read(channel, &told, sizeof told), 0);
    close(channel);
}

// ---- Ethernet ----------------------------------------------------------------------------------

class VhcaUverbsEthernet : public VhcaUverbs {};

TEST_F(VhcaUverbsEthernet, paths_need_a_gid) {
    Commander& commander = use();
    Parts parts(commander);
    ib_uverbs_create_ah request{};
    request.pd_handle = parts.pd;
    request.attr.port_num = 1;
    ib_uverbs_create_ah_resp ah{};
    EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_CREATE_AH, request, &ah), EINVAL);
    request.attr.is_global = 1;
    const ibv_gid gid = context_->engine.port().gid();
    std::memcpy(request.attr.grh.dgid, gid.raw, sizeof gid.raw);
    struct [[gnu::packed]] {
        std::uint32_t handle;
        mlx5_ib_create_ah_resp driver;
    } answer{};
    EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_CREATE_AH, request, &answer), 0);
    EXPECT_EQ(answer.driver.response_length, 10U);
    EXPECT_EQ(answer.driver.dmac[5], gid.raw[15]);
    const std::uint32_t qp = commander.make_qp(parts.qp_request(IBV_QPT_RC), parts.qp_rings());
    EXPECT_EQ(modify(commander, qp, kInit, IBV_QPS_INIT), 0);
    EXPECT_EQ(modify(commander, qp, kRtr, IBV_QPS_RTR), EINVAL);
    ib_uverbs_modify_qp modify = modify_request(qp, kRtr, IBV_QPS_RTR);
    modify.dest.is_global = 1;
    EXPECT_EQ(commander.plain(IB_USER_VERBS_CMD_MODIFY_QP, modify), 0);
}

TEST_F(VhcaUverbsEthernet, the_second_port_is_down) {
    Commander& commander = use();
    ib_uverbs_query_port request{};
    request.port_num = 2;
    ib_uverbs_query_port_resp port{};
    ASSERT_EQ(commander.plain(IB_USER_VERBS_CMD_QUERY_PORT, request, &port), 0);
    EXPECT_EQ(port.state, IBV_PORT_DOWN);
    EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
    EXPECT_EQ(port.flags, IBV_QPF_GRH_REQUIRED);
}

}  // namespace
}  // namespace tagwire::vhca::driver::test
