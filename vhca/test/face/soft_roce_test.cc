// SPDX-License-Identifier: BSD-3-Clause
// The device that looks like soft-RoCE; the program is run with TAGWIRE_VHCA_PROFILE=soft-roce.
#include <infiniband/mlx5dv.h>

#include <cerrno>

#include "vhca/test/face/fixture.hpp"

namespace tagwire::test {
namespace {

TEST(VhcaSoftRoce, has_its_identity_and_limits) {
    Side side({});
    ibv_device_attr_ex attr{};
    ASSERT_EQ(ibv_query_device_ex(side.context, nullptr, &attr), 0);
    EXPECT_EQ(attr.orig_attr.vendor_id, 0xffffffU);
    EXPECT_EQ(attr.orig_attr.vendor_part_id, 0U);
    EXPECT_EQ(attr.orig_attr.max_cqe, 32767);
    EXPECT_EQ(attr.orig_attr.max_srq_sge, 27);
    EXPECT_EQ(attr.tm_caps.max_num_tags, 0U);
    EXPECT_EQ(attr.completion_timestamp_mask, 0U);
    ibv_port_attr port{};
    ASSERT_EQ(ibv_query_port(side.context, 1, &port), 0);
    EXPECT_EQ(port.max_msg_sz, 1U << 23);
    EXPECT_EQ(ibv_create_cq(side.context, 32768, nullptr, nullptr, 0), nullptr);
}

TEST(VhcaSoftRoce, refuses_what_it_does_not_have) {
    Side side({});
    EXPECT_FALSE(mlx5dv_is_supported(side.context->device));
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 4;
    attr.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
    errno = 0;
    EXPECT_EQ(ibv_create_cq_ex(side.context, &attr), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    attr.wc_flags = IBV_WC_STANDARD_FLAGS;
    ibv_cq_ex* cq = ibv_create_cq_ex(side.context, &attr);
    ASSERT_NE(cq, nullptr);
    ibv_srq_init_attr_ex srq_attr{};
    srq_attr.comp_mask =
        IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;
    srq_attr.srq_type = IBV_SRQT_TM;
    srq_attr.pd = side.pd;
    srq_attr.cq = ibv_cq_ex_to_cq(cq);
    srq_attr.attr = {.max_wr = 4, .max_sge = 1, .srq_limit = 0};
    srq_attr.tm_cap = {.max_num_tags = 4, .max_ops = 4};
    errno = 0;
    EXPECT_EQ(ibv_create_srq_ex(side.context, &srq_attr), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

TEST(VhcaSoftRoce, who_never_signals_does_not_run_out_of_places) {
    Pair pair;
    ibv_send_wr wr = pair.a.remote(IBV_WR_RDMA_WRITE, pair.b, 0);
    wr.send_flags = 0;
    for (int i = 0; i < 100; ++i) {
        int error = ENOMEM;
        for (int polls = 0; error == ENOMEM && polls < kPollsMax; ++polls) {
            error = pair.a.post_send(wr, 0, 8);
            ibv_wc wc{};
            ASSERT_EQ(ibv_poll_cq(pair.a.cq, 1, &wc), 0);
        }
        ASSERT_EQ(error, 0);
    }
}

}  // namespace
}  // namespace tagwire::test
