// SPDX-License-Identifier: BSD-3-Clause
// Release of the objects of a context that is closed.
#include <fcntl.h>

#include <atomic>
#include <cerrno>
#include <thread>

#include "vhca/test/face/fixture.hpp"

namespace tagwire::test {
namespace {

ibv_context* open_device() {
    ibv_device** list = ibv_get_device_list(nullptr);
    ibv_context* context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    return context;
}

/// One of each, and nobody who destroys them. A channel cannot be destroyed after its context, here
/// or with a real provider: it stays until the process ends.
struct Leftovers {
    explicit Leftovers(ibv_context* context)
        : pd(ibv_alloc_pd(context)),
          mr(ibv_reg_mr(pd, memory.data(), memory.size(), kAllRights)),
          channel(ibv_create_comp_channel(context)),
          cq(ibv_create_cq(context, 16, nullptr, channel, 0)) {
        static auto* reachable = new std::vector<ibv_comp_channel*>;
        reachable->push_back(channel);
        ibv_srq_init_attr srq_attr{.srq_context = nullptr,
                                   .attr = {.max_wr = 4, .max_sge = 1, .srq_limit = 0}};
        srq = ibv_create_srq(pd, &srq_attr);
        ibv_qp_init_attr_ex attr{};
        attr.send_cq = attr.recv_cq = cq;
        attr.srq = srq;
        attr.cap = {4, 0, 1, 0, 0};
        attr.qp_type = IBV_QPT_RC;
        attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        attr.pd = pd;
        attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
        qp = ibv_create_qp_ex(context, &attr);
        ibv_ah_attr path = path_to(context);
        ah = ibv_create_ah(pd, &path);
    }
    [[nodiscard]] bool is_complete() const {
        return pd != nullptr && mr != nullptr && channel != nullptr && cq != nullptr &&
               srq != nullptr && qp != nullptr && ah != nullptr;
    }
    std::array<unsigned char, 64> memory{};
    ibv_pd* pd;
    ibv_mr* mr;
    ibv_comp_channel* channel;
    ibv_cq* cq;
    ibv_srq* srq = nullptr;
    ibv_qp* qp = nullptr;
    ibv_ah* ah = nullptr;
};

void to_init(ibv_qp* qp) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = kAllRights;
    ASSERT_EQ(ibv_modify_qp(qp, &attr,
                            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
              0);
}

// The sanitizer reports leaks and uses after the close.
TEST(VhcaClose, takes_all_that_was_left_behind_along_but_channels) {
    ibv_context* context = open_device();
    ASSERT_NE(context, nullptr);
    Leftovers left(context);
    ASSERT_TRUE(left.is_complete());
    EXPECT_EQ(ibv_dealloc_pd(left.pd), EBUSY);
    const int channel_fd = left.channel->fd;
    ibv_comp_channel* channel = left.channel;
    EXPECT_EQ(ibv_close_device(context), 0);
    EXPECT_NE(fcntl(channel_fd, F_GETFD), -1) << "a descriptor of the program's own";
    EXPECT_EQ(channel->refcnt, 0);
    close(channel_fd);
}

TEST(VhcaClose, does_not_wait_for_events_that_nobody_acknowledged) {
    ibv_context* context = open_device();
    Leftovers left(context);
    to_init(left.qp);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    ASSERT_EQ(ibv_modify_qp(left.qp, &attr, IBV_QP_STATE), 0);
    ibv_async_event event{};
    ASSERT_EQ(ibv_get_async_event(context, &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
    EXPECT_EQ(ibv_close_device(context), 0);
}

// Destroying an object, on the other hand, waits.
TEST(VhcaDestroy, queue_pair_waits_for_the_acknowledgement_of_its_event) {
    ibv_context* context = open_device();
    Leftovers left(context);
    to_init(left.qp);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    ASSERT_EQ(ibv_modify_qp(left.qp, &attr, IBV_QP_STATE), 0);
    ibv_async_event event{};
    ASSERT_EQ(ibv_get_async_event(context, &event), 0);
    std::atomic<bool> is_acknowledged{false};
    std::thread acknowledger([&] {
        is_acknowledged = true;
        ibv_ack_async_event(&event);
    });
    EXPECT_EQ(ibv_destroy_qp(left.qp), 0);
    EXPECT_TRUE(is_acknowledged);
    acknowledger.join();
    EXPECT_EQ(ibv_close_device(context), 0);
}

TEST(VhcaDestroy, shared_receive_queue_waits_for_the_acknowledgement_of_its_event) {
    ibv_context* context = open_device();
    Leftovers left(context);
    ASSERT_EQ(ibv_destroy_qp(left.qp), 0);
    ibv_srq_attr attr{.max_wr = 0, .max_sge = 0, .srq_limit = 1};
    ASSERT_EQ(ibv_modify_srq(left.srq, &attr, IBV_SRQ_LIMIT), 0);  // undercut already
    ibv_async_event event{};
    ASSERT_EQ(ibv_get_async_event(context, &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
    std::atomic<bool> is_acknowledged{false};
    std::thread acknowledger([&] {
        is_acknowledged = true;
        ibv_ack_async_event(&event);
    });
    EXPECT_EQ(ibv_destroy_srq(left.srq), 0);
    EXPECT_TRUE(is_acknowledged);
    acknowledger.join();
    EXPECT_EQ(ibv_close_device(context), 0);
}

TEST(VhcaClose, peers_of_its_queue_pairs_are_on_their_own_and_other_contexts_live_on) {
    Pair pair;
    Side lonely({});
    {
        ibv_context* context = open_device();
        Leftovers left(context);
        lonely.connect(path_to(context), left.qp->qp_num, {.timeout = 8, .retry_cnt = 1});
        ASSERT_EQ(ibv_close_device(context), 0);
    }
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    ASSERT_EQ(lonely.post_send(wr, 0, 8), 0);
    EXPECT_EQ(lonely.wait().status, IBV_WC_RETRY_EXC_ERR);
    ASSERT_EQ(pair.b.post_recv(1, 0, 64), 0);
    ASSERT_EQ(pair.a.post_send(wr, 0, 8), 0);
    EXPECT_EQ(pair.b.wait().status, IBV_WC_SUCCESS);
    EXPECT_EQ(pair.a.wait().status, IBV_WC_SUCCESS);
}

}  // namespace
}  // namespace tagwire::test
