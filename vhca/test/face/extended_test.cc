// SPDX-License-Identifier: BSD-3-Clause
// Events, the extended CQ and the ibv_wr_* way to post.
#include <fcntl.h>
#include <poll.h>

#include <cerrno>
#include <thread>

#include "vhca/test/face/fixture.hpp"

namespace tagwire::test {
namespace {

constexpr std::uint64_t kRcOps = std::uint64_t{IBV_QP_EX_WITH_SEND} | IBV_QP_EX_WITH_SEND_WITH_IMM |
                                 IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                                 IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                                 IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_SEND_WITH_INV;

bool is_readable(int fd) {
    pollfd waits{.fd = fd, .events = POLLIN, .revents = 0};
    return poll(&waits, 1, 0) == 1;
}

ibv_send_wr signaled_send() {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    return wr;
}

TEST(VhcaEvents, channel_is_readable_once_per_arming) {
    Pair pair({.has_channel = true});
    ASSERT_EQ(pair.b.post_recv(1, 0, 64), 0);
    ASSERT_EQ(ibv_req_notify_cq(pair.b.cq, 0), 0);
    EXPECT_FALSE(is_readable(pair.b.channel->fd));
    ASSERT_EQ(pair.a.post_send(signaled_send(), 0, 8), 0);
    EXPECT_EQ(pair.a.wait().status, IBV_WC_SUCCESS);
    ibv_cq* cq = nullptr;
    void* cq_context = nullptr;
    ASSERT_EQ(ibv_get_cq_event(pair.b.channel, &cq, &cq_context), 0);
    EXPECT_EQ(cq, pair.b.cq);
    EXPECT_EQ(cq_context, &pair.b);
    EXPECT_FALSE(is_readable(pair.b.channel->fd));
    ibv_ack_cq_events(cq, 1);
    EXPECT_EQ(pair.b.wait().wr_id, 1U);
}

TEST(VhcaEvents, descriptor_without_waiting_says_again) {
    Pair pair({.has_channel = true});
    ASSERT_EQ(fcntl(pair.a.channel->fd, F_SETFL, O_NONBLOCK), 0);
    ibv_cq* cq = nullptr;
    void* cq_context = nullptr;
    errno = 0;
    EXPECT_EQ(ibv_get_cq_event(pair.a.channel, &cq, &cq_context), -1);
    EXPECT_EQ(errno, EAGAIN);
    ASSERT_EQ(fcntl(pair.a.context->async_fd, F_SETFL, O_NONBLOCK), 0);
    ibv_async_event event{};
    errno = 0;
    EXPECT_EQ(ibv_get_async_event(pair.a.context, &event), -1);
    EXPECT_EQ(errno, EAGAIN);
}

TEST(VhcaEvents, channel_with_queues_is_busy_and_their_end_takes_events_along) {
    SideOptions options{.has_channel = true};
    Side side(options);
    EXPECT_EQ(ibv_destroy_comp_channel(side.channel), EBUSY);
    ibv_cq* other = ibv_create_cq(side.context, 4, nullptr, side.channel, 0);
    ASSERT_NE(other, nullptr);
    EXPECT_EQ(side.channel->refcnt, 2);
    EXPECT_EQ(ibv_destroy_cq(other), 0);
    EXPECT_EQ(side.channel->refcnt, 1);
}

TEST(VhcaEvents, destroying_a_queue_waits_for_the_acknowledgement) {
    Pair pair({.has_channel = true});
    ibv_cq* cq = ibv_create_cq(pair.b.context, 4, nullptr, pair.b.channel, 0);
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cq;
    attr.cap = {1, 1, 1, 1, 0};
    attr.qp_type = IBV_QPT_RC;
    ibv_qp* qp = ibv_create_qp(pair.b.pd, &attr);
    ASSERT_NE(qp, nullptr);
    ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
    ibv_qp_attr init{};
    init.qp_state = IBV_QPS_INIT;
    init.port_num = 1;
    ASSERT_EQ(ibv_modify_qp(qp, &init,
                            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
              0);
    ibv_recv_wr wr{};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_recv(qp, &wr, &bad), 0);
    init.qp_state = IBV_QPS_ERR;
    ASSERT_EQ(ibv_modify_qp(qp, &init, IBV_QP_STATE), 0);  // flushes the receive
    ibv_cq* announced = nullptr;
    void* cq_context = nullptr;
    ASSERT_EQ(ibv_get_cq_event(pair.b.channel, &announced, &cq_context), 0);
    EXPECT_EQ(announced, cq);
    ASSERT_EQ(ibv_destroy_qp(qp), 0);
    std::thread acknowledger([cq] { ibv_ack_cq_events(cq, 1); });
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    acknowledger.join();
}

TEST(VhcaCqEx, readers_give_what_was_asked_for) {
    Pair pair({.wc_flags = std::uint64_t{IBV_WC_STANDARD_FLAGS} |
                           IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                           IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK});
    ASSERT_EQ(pair.b.post_recv(5, 0, 64), 0);
    ibv_send_wr wr = signaled_send();
    wr.opcode = IBV_WR_SEND_WITH_IMM;
    wr.imm_data = 77;
    ASSERT_EQ(pair.a.post_send(wr, 0, 24), 0);
    EXPECT_EQ(pair.a.wait().status, IBV_WC_SUCCESS);
    ibv_poll_cq_attr attr{};
    int error = ENOENT;
    for (int polls = 0; error == ENOENT && polls < kPollsMax; ++polls)
        error = ibv_start_poll(pair.b.cq_ex, &attr);
    ASSERT_EQ(error, 0);
    ibv_cq_ex* cq = pair.b.cq_ex;
    EXPECT_EQ(cq->wr_id, 5U);
    EXPECT_EQ(cq->status, IBV_WC_SUCCESS);
    EXPECT_EQ(ibv_wc_read_opcode(cq), IBV_WC_RECV);
    EXPECT_EQ(ibv_wc_read_byte_len(cq), 24U);
    EXPECT_EQ(ibv_wc_read_imm_data(cq), 77U);
    EXPECT_EQ(ibv_wc_read_qp_num(cq), pair.b.qp->qp_num);
    const std::uint64_t stamp = ibv_wc_read_completion_ts(cq);
    ibv_values_ex values{.comp_mask = IBV_VALUES_MASK_RAW_CLOCK, .raw_clock = {}};
    ASSERT_EQ(ibv_query_rt_values_ex(pair.b.context, &values), 0);
    const auto now = static_cast<std::uint64_t>(values.raw_clock.tv_sec) * 1'000'000'000 +
                     static_cast<std::uint64_t>(values.raw_clock.tv_nsec);
    EXPECT_LE(stamp, now);
    EXPECT_GT(stamp + 60'000'000'000, now);
    EXPECT_GT(ibv_wc_read_completion_wallclock_ns(cq), 1'000'000'000'000'000'000U);
    EXPECT_EQ(ibv_next_poll(cq), ENOENT);
    ibv_end_poll(cq);
}

TEST(VhcaCqEx, unknown_flags_are_not_supported) {
    Side side({});
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 4;
    attr.wc_flags = IBV_WC_EX_WITH_CVLAN;
    errno = 0;
    EXPECT_EQ(ibv_create_cq_ex(side.context, &attr), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST(VhcaQpEx, posts_what_was_put_together) {
    Pair pair({.send_ops = kRcOps});
    ibv_qp_ex* qp = ibv_qp_to_qp_ex(pair.a.qp);
    ASSERT_NE(qp, nullptr);
    ASSERT_EQ(pair.b.post_recv(1, 0, 64), 0);
    const auto remote = reinterpret_cast<std::uintptr_t>(pair.b.buffer.data());
    pair.a.buffer[0] = 0x5c;
    char small[4] = {1, 2, 3, 4};
    ibv_wr_start(qp);
    qp->wr_id = 100;
    qp->wr_flags = 0;
    ibv_wr_rdma_write(qp, pair.b.mr->rkey, remote + 8192);
    ibv_wr_set_sge(qp, pair.a.mr->lkey, reinterpret_cast<std::uintptr_t>(pair.a.buffer.data()),
                   2000);
    qp->wr_id = 101;
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send_imm(qp, 9);
    ibv_wr_set_inline_data(qp, small, sizeof small);
    small[0] = 50;
    ASSERT_EQ(ibv_wr_complete(qp), 0);
    const ibv_wc received = pair.b.wait();
    EXPECT_EQ(received.byte_len, 4U);
    EXPECT_EQ(received.imm_data, 9U);
    EXPECT_EQ(pair.b.buffer[0], 1);
    EXPECT_EQ(pair.b.buffer[8192], 0x5c);
    EXPECT_EQ(pair.a.wait().wr_id, 101U);
}

TEST(VhcaQpEx, reads_and_atomics_work_too) {
    Pair pair({.send_ops = kRcOps});
    ibv_qp_ex* qp = ibv_qp_to_qp_ex(pair.a.qp);
    auto& word = *reinterpret_cast<std::uint64_t*>(pair.b.buffer.data());
    word = 5;
    const auto remote = reinterpret_cast<std::uintptr_t>(pair.b.buffer.data());
    const auto local = reinterpret_cast<std::uintptr_t>(pair.a.buffer.data());
    ibv_wr_start(qp);
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_atomic_fetch_add(qp, pair.b.mr->rkey, remote, 3);
    ibv_wr_set_sge(qp, pair.a.mr->lkey, local, 8);
    ASSERT_EQ(ibv_wr_complete(qp), 0);
    EXPECT_EQ(pair.a.wait().opcode, IBV_WC_FETCH_ADD);
    EXPECT_EQ(word, 8U);
    ibv_wr_start(qp);
    ibv_wr_rdma_read(qp, pair.b.mr->rkey, remote);
    const ibv_sge pieces[] = {{local + 64, 4, pair.a.mr->lkey}, {local + 128, 4, pair.a.mr->lkey}};
    ibv_wr_set_sge_list(qp, 2, pieces);
    ASSERT_EQ(ibv_wr_complete(qp), 0);
    EXPECT_EQ(pair.a.wait().opcode, IBV_WC_RDMA_READ);
    EXPECT_EQ(pair.a.buffer[64], 8);
}

TEST(VhcaQpEx, aborted_requests_were_never_there) {
    Pair pair({.send_ops = kRcOps});
    ibv_qp_ex* qp = ibv_qp_to_qp_ex(pair.a.qp);
    ibv_wr_start(qp);
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(qp, pair.b.mr->rkey, reinterpret_cast<std::uintptr_t>(pair.b.buffer.data()));
    ibv_wr_abort(qp);
    ibv_wr_start(qp);
    EXPECT_EQ(ibv_wr_complete(qp), 0);
    ibv_wc wc{};
    EXPECT_EQ(ibv_poll_cq(pair.a.cq, 1, &wc), 0);
}

TEST(VhcaQpEx, requests_that_do_not_all_fit_are_not_posted_at_all) {
    Pair pair({.send_ops = kRcOps});
    ibv_qp_ex* qp = ibv_qp_to_qp_ex(pair.a.qp);
    const auto write = [&](std::uint64_t wr_id, std::size_t offset) {
        qp->wr_id = wr_id;
        ibv_wr_rdma_write(qp, pair.b.mr->rkey,
                          reinterpret_cast<std::uintptr_t>(pair.b.buffer.data()) + offset);
        ibv_wr_set_sge(qp, pair.a.mr->lkey, reinterpret_cast<std::uintptr_t>(pair.a.buffer.data()),
                       8);
    };
    std::memset(pair.a.buffer.data(), 0x77, 8);
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_start(qp);
    for (std::uint64_t id = 0; id < 17; ++id)  // one more than there is room for
        write(id, id * 8);
    EXPECT_EQ(ibv_wr_complete(qp), ENOMEM);
    ibv_wr_start(qp);
    for (std::uint64_t id = 100; id < 116; ++id)
        write(id, 4096);
    ASSERT_EQ(ibv_wr_complete(qp), 0);
    for (std::uint64_t id = 100; id < 116; ++id) {
        const ibv_wc wc = pair.a.wait();
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(wc.wr_id, id);
    }
    EXPECT_EQ(pair.b.buffer[0], 0);
    EXPECT_EQ(pair.b.buffer[4096], 0x77);
}

TEST(VhcaQpEx, send_with_invalidate_takes_the_key_back) {
    Pair pair({.send_ops = kRcOps});
    ibv_mr* lent = ibv_reg_mr(pair.b.pd, pair.b.buffer.data(), 4096, kAllRights);
    ASSERT_NE(lent, nullptr);
    ASSERT_EQ(pair.b.post_recv(1, 8192, 64), 0);
    ibv_qp_ex* qp = ibv_qp_to_qp_ex(pair.a.qp);
    char text[4] = {1, 2, 3, 4};
    ibv_wr_start(qp);
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send_inv(qp, lent->rkey);
    ibv_wr_set_inline_data(qp, text, sizeof text);
    ASSERT_EQ(ibv_wr_complete(qp), 0);
    EXPECT_EQ(pair.a.wait().status, IBV_WC_SUCCESS);
    const ibv_wc received = pair.b.wait();
    EXPECT_EQ(received.wc_flags & IBV_WC_WITH_INV, unsigned{IBV_WC_WITH_INV});
    EXPECT_EQ(received.invalidated_rkey, lent->rkey);
    ibv_send_wr wr = pair.a.remote(IBV_WR_RDMA_WRITE, pair.b, 0);
    wr.wr.rdma.rkey = lent->rkey;
    ASSERT_EQ(pair.a.post_send(wr, 0, 8), 0);
    EXPECT_EQ(pair.a.wait().status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(ibv_dereg_mr(lent), 0);
}

TEST(VhcaQpEx, plain_queue_pair_has_no_extension) {
    Side side({});
    EXPECT_EQ(ibv_qp_to_qp_ex(side.qp), nullptr);
}

TEST(VhcaQpEx, operations_that_a_transport_lacks_are_not_supported) {
    Side side({});
    ibv_qp_init_attr_ex attr{};
    attr.send_cq = attr.recv_cq = side.cq;
    attr.cap = {1, 1, 1, 1, 0};
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.pd = side.pd;
    for (const auto& [type, operation] : {std::pair{IBV_QPT_UC, IBV_QP_EX_WITH_RDMA_READ},
                                          {IBV_QPT_UC, IBV_QP_EX_WITH_SEND_WITH_INV},
                                          {IBV_QPT_UD, IBV_QP_EX_WITH_RDMA_WRITE},
                                          {IBV_QPT_RC, IBV_QP_EX_WITH_TSO},
                                          {IBV_QPT_RC, IBV_QP_EX_WITH_BIND_MW}}) {
        attr.qp_type = type;
        attr.send_ops_flags = operation;
        errno = 0;
        EXPECT_EQ(ibv_create_qp_ex(side.context, &attr), nullptr);
        EXPECT_EQ(errno, EOPNOTSUPP);
    }
}

}  // namespace
}  // namespace tagwire::test
