// SPDX-License-Identifier: BSD-3-Clause
// Messages through ibv_post_* and ibv_poll_cq, for each transport.
#include <cerrno>

#include "vhca/test/face/fixture.hpp"

namespace tagwire::test {
namespace {

ibv_send_wr plain_send() {
    ibv_send_wr wr{};
    wr.wr_id = 7;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    return wr;
}

class VhcaTraffic : public testing::TestWithParam<ibv_qp_type> {};
INSTANTIATE_TEST_SUITE_P(Transports, VhcaTraffic, testing::Values(IBV_QPT_RC, IBV_QPT_UC),
                         [](const auto& row) {
                             return std::string(row.param == IBV_QPT_RC ? "rc" : "uc");
                         });

TEST_P(VhcaTraffic, send_arrives_with_its_bytes_and_immediate) {
    Pair pair({.type = GetParam()});
    std::memset(pair.a.buffer.data(), 0x42, 5000);
    ASSERT_EQ(pair.b.post_recv(3, 100, 8192), 0);
    ibv_send_wr wr = plain_send();
    wr.opcode = IBV_WR_SEND_WITH_IMM;
    wr.imm_data = 0x01020304;
    ASSERT_EQ(pair.a.post_send(wr, 0, 5000), 0);
    const ibv_wc received = pair.b.wait();
    EXPECT_EQ(received.status, IBV_WC_SUCCESS);
    EXPECT_EQ(received.opcode, IBV_WC_RECV);
    EXPECT_EQ(received.wr_id, 3U);
    EXPECT_EQ(received.byte_len, 5000U);
    EXPECT_EQ(received.imm_data, 0x01020304U);
    EXPECT_NE(received.wc_flags & IBV_WC_WITH_IMM, 0U);
    EXPECT_EQ(received.qp_num, pair.b.qp->qp_num);
    EXPECT_EQ(std::memcmp(pair.b.buffer.data() + 100, pair.a.buffer.data(), 5000), 0);
    const ibv_wc sent = pair.a.wait();
    EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
    EXPECT_EQ(sent.opcode, IBV_WC_SEND);
    EXPECT_EQ(sent.wr_id, 7U);
}

TEST_P(VhcaTraffic, write_with_immediate_consumes_a_receive) {
    Pair pair({.type = GetParam()});
    std::memset(pair.a.buffer.data(), 0x17, 3000);
    ASSERT_EQ(pair.b.post_recv(9, 0, 16), 0);
    ibv_send_wr wr = pair.a.remote(IBV_WR_RDMA_WRITE_WITH_IMM, pair.b, 4096);
    wr.imm_data = 5;
    ASSERT_EQ(pair.a.post_send(wr, 0, 3000), 0);
    const ibv_wc received = pair.b.wait();
    EXPECT_EQ(received.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    EXPECT_EQ(received.byte_len, 3000U);
    EXPECT_EQ(std::memcmp(pair.b.buffer.data() + 4096, pair.a.buffer.data(), 3000), 0);
    EXPECT_EQ(pair.a.wait().opcode, IBV_WC_RDMA_WRITE);
}

TEST_P(VhcaTraffic, inline_data_may_change_after_posting) {
    Pair pair({.type = GetParam()});
    ASSERT_EQ(pair.b.post_recv(1, 0, 64), 0);
    pair.a.buffer[0] = 11;
    ibv_send_wr wr = plain_send();
    wr.send_flags |= IBV_SEND_INLINE;
    ASSERT_EQ(pair.a.post_send(wr, 0, 16), 0);
    pair.a.buffer[0] = 99;
    EXPECT_EQ(pair.b.wait().byte_len, 16U);
    EXPECT_EQ(pair.b.buffer[0], 11);
    EXPECT_EQ(pair.a.wait().status, IBV_WC_SUCCESS);
}

TEST(VhcaRc, read_brings_the_remote_bytes) {
    Pair pair;
    std::memset(pair.b.buffer.data(), 0x33, 9000);
    ASSERT_EQ(pair.a.post_send(pair.a.remote(IBV_WR_RDMA_READ, pair.b, 0), 512, 9000), 0);
    const ibv_wc done = pair.a.wait();
    EXPECT_EQ(done.status, IBV_WC_SUCCESS);
    EXPECT_EQ(done.opcode, IBV_WC_RDMA_READ);
    EXPECT_EQ(std::memcmp(pair.a.buffer.data() + 512, pair.b.buffer.data(), 9000), 0);
}

TEST(VhcaRc, atomics_return_the_old_value_and_change_the_remote_one) {
    Pair pair;
    auto& word = *reinterpret_cast<std::uint64_t*>(pair.b.buffer.data());
    const auto& old = *reinterpret_cast<std::uint64_t*>(pair.a.buffer.data());
    word = 40;
    ibv_send_wr wr = pair.a.remote(IBV_WR_ATOMIC_FETCH_AND_ADD, pair.b, 0);
    wr.wr.atomic = {reinterpret_cast<std::uintptr_t>(pair.b.buffer.data()), 2, 0, pair.b.mr->rkey};
    ASSERT_EQ(pair.a.post_send(wr, 0, 8), 0);
    EXPECT_EQ(pair.a.wait().opcode, IBV_WC_FETCH_ADD);
    EXPECT_EQ(old, 40U);
    EXPECT_EQ(word, 42U);
    wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
    wr.wr.atomic.compare_add = 42;
    wr.wr.atomic.swap = 1000;
    ASSERT_EQ(pair.a.post_send(wr, 0, 8), 0);
    EXPECT_EQ(pair.a.wait().opcode, IBV_WC_COMP_SWAP);
    EXPECT_EQ(old, 42U);
    EXPECT_EQ(word, 1000U);
}

TEST(VhcaRc, wrong_remote_key_is_an_access_error_on_both_sides) {
    Pair pair;
    ibv_send_wr wr = pair.a.remote(IBV_WR_RDMA_WRITE, pair.b, 0);
    wr.wr.rdma.rkey ^= 0x55;
    ASSERT_EQ(pair.a.post_send(wr, 0, 64), 0);
    EXPECT_EQ(pair.a.wait().status, IBV_WC_REM_ACCESS_ERR);
    ibv_async_event event{};
    ASSERT_EQ(ibv_get_async_event(pair.b.context, &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
    EXPECT_EQ(event.element.qp, pair.b.qp);
    ibv_ack_async_event(&event);
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    ASSERT_EQ(ibv_query_qp(pair.a.qp, &attr, IBV_QP_STATE, &init), 0);
    EXPECT_EQ(attr.qp_state, IBV_QPS_ERR);
    EXPECT_EQ(init.qp_type, IBV_QPT_RC);
    EXPECT_EQ(init.send_cq, pair.a.cq);
}

TEST(VhcaRc, list_stops_at_the_bad_request_and_says_which) {
    Pair pair;
    ASSERT_EQ(pair.b.post_recv(1, 0, 64), 0);
    ibv_sge sge{reinterpret_cast<std::uintptr_t>(pair.a.buffer.data()), 8, pair.a.mr->lkey};
    ibv_send_wr bad = plain_send();
    bad.sg_list = &sge;
    bad.num_sge = 1000;
    ibv_send_wr good = plain_send();
    good.sg_list = &sge;
    good.num_sge = 1;
    good.next = &bad;
    ibv_send_wr* bad_wr = nullptr;
    EXPECT_NE(ibv_post_send(pair.a.qp, &good, &bad_wr), 0);
    EXPECT_EQ(bad_wr, &bad);
    EXPECT_EQ(pair.a.wait().status, IBV_WC_SUCCESS);
    EXPECT_EQ(pair.b.wait().byte_len, 8U);
}

TEST(VhcaRc, shared_receive_queue_serves_its_queue_pair) {
    Pair pair({.has_srq = true});
    ASSERT_EQ(pair.b.post_recv(21, 0, 64), 0);
    ASSERT_EQ(pair.a.post_send(plain_send(), 0, 8), 0);
    EXPECT_EQ(pair.b.wait().wr_id, 21U);
    EXPECT_EQ(pair.a.wait().status, IBV_WC_SUCCESS);
    std::uint32_t number = 0;
    EXPECT_EQ(ibv_get_srq_num(pair.b.srq, &number), 0);
    ibv_srq_attr attr{};
    EXPECT_EQ(ibv_query_srq(pair.b.srq, &attr), 0);
    EXPECT_GE(attr.max_wr, 32U);
    EXPECT_EQ(ibv_destroy_srq(pair.b.srq), EBUSY);
}

TEST(VhcaRc, limit_of_a_shared_receive_queue_is_an_event) {
    Pair pair({.has_srq = true});
    ASSERT_EQ(pair.b.post_recv(1, 0, 64), 0);
    ibv_srq_attr attr{.max_wr = 0, .max_sge = 0, .srq_limit = 1};
    ASSERT_EQ(ibv_modify_srq(pair.b.srq, &attr, IBV_SRQ_LIMIT), 0);
    ASSERT_EQ(pair.a.post_send(plain_send(), 0, 8), 0);
    EXPECT_EQ(pair.b.wait().wr_id, 1U);
    ibv_async_event event{};
    ASSERT_EQ(ibv_get_async_event(pair.b.context, &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
    EXPECT_EQ(event.element.srq, pair.b.srq);
    ibv_ack_async_event(&event);
    EXPECT_EQ(pair.a.wait().status, IBV_WC_SUCCESS);
}

TEST(VhcaUd, datagram_arrives_behind_40_bytes_and_names_its_sender) {
    Pair pair({.type = IBV_QPT_UD});
    ASSERT_EQ(pair.b.post_recv(1, 0, 1024), 0);
    std::memset(pair.a.buffer.data(), 0x66, 100);
    ibv_send_wr wr = plain_send();
    wr.wr.ud = {pair.a.ah, pair.b.qp->qp_num, kQkey};
    ASSERT_EQ(pair.a.post_send(wr, 0, 100), 0);
    ibv_wc received = pair.b.wait();
    EXPECT_EQ(received.byte_len, 140U);
    EXPECT_EQ(received.src_qp, pair.a.qp->qp_num);
    EXPECT_EQ(std::memcmp(pair.b.buffer.data() + 40, pair.a.buffer.data(), 100), 0);
    EXPECT_EQ(pair.a.wait().status, IBV_WC_SUCCESS);
    ibv_port_attr port{};
    ibv_query_port(pair.a.context, 1, &port);
    EXPECT_EQ(received.slid, port.lid);
    ibv_ah* back = ibv_create_ah_from_wc(pair.b.pd, &received,
                                         reinterpret_cast<ibv_grh*>(pair.b.buffer.data()), 1);
    ASSERT_NE(back, nullptr);
    EXPECT_EQ(ibv_destroy_ah(back), 0);
}

TEST(VhcaRc, objects_in_use_cannot_be_destroyed) {
    Pair pair;
    EXPECT_EQ(ibv_destroy_cq(pair.a.cq), EBUSY);
    EXPECT_EQ(ibv_dealloc_pd(pair.a.pd), EBUSY);
}

TEST(VhcaRc, transition_without_its_attributes_is_refused) {
    Pair pair;
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    EXPECT_EQ(ibv_modify_qp(pair.a.qp, &attr, IBV_QP_STATE), EINVAL);
    EXPECT_EQ(pair.a.qp->state, IBV_QPS_RTS);
}

TEST(VhcaCq, grows_and_refuses_what_does_not_fit) {
    Pair pair;
    EXPECT_EQ(ibv_resize_cq(pair.a.cq, 1000), 0);
    EXPECT_GE(pair.a.cq->cqe, 1000);
    EXPECT_EQ(ibv_resize_cq(pair.a.cq, 0), EINVAL);
    errno = 0;
    EXPECT_EQ(ibv_create_cq(pair.a.context, 0, nullptr, nullptr, 0), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ibv_create_cq(pair.a.context, 1, nullptr, nullptr, 1000), nullptr);
}

TEST(VhcaUd, path_that_cannot_be_is_refused) {
    const Side side({.type = IBV_QPT_UD});
    const auto is_refused = [&](auto&& change) {
        ibv_ah_attr attr = path_to(side.context);
        change(attr);
        errno = 0;
        ibv_ah* ah = ibv_create_ah(side.pd, &attr);
        return ah != nullptr ? ibv_destroy_ah(ah) != 0 : errno == EINVAL;
    };
    EXPECT_FALSE(is_refused([](ibv_ah_attr& attr) { attr.sl = 15; }));
    EXPECT_TRUE(is_refused([](ibv_ah_attr& attr) { attr.sl = 16; }));
    EXPECT_FALSE(is_refused([](ibv_ah_attr& attr) { attr.static_rate = IBV_RATE_100_GBPS; }));
    EXPECT_TRUE(is_refused([](ibv_ah_attr& attr) { attr.static_rate = 1; }));
    EXPECT_TRUE(is_refused([](ibv_ah_attr& attr) { attr.static_rate = 100; }));
    EXPECT_TRUE(is_refused([](ibv_ah_attr& attr) {
        attr.is_global = 1;
        attr.grh.sgid_index = 1;
    })) << "that entry holds no GID";
}

}  // namespace
}  // namespace tagwire::test
