// SPDX-License-Identifier: BSD-3-Clause
// ibv_modify_qp(3): which transitions there are, and what each of them needs.
#include "vhca/test/core/world.hpp"

namespace tagwire::vhca {

namespace {

constexpr int kAllBits = (IBV_QP_DEST_QPN << 1) - 1 - IBV_QP_STATE;
constexpr int kInit = IBV_QP_PKEY_INDEX | IBV_QP_PORT;
constexpr int kUcRtr = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int kRcRtr = kUcRtr | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kRcRts =
    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
constexpr int kUcOptional =
    IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE;
constexpr int kRcOptional = kUcOptional | IBV_QP_MIN_RNR_TIMER;
constexpr int kRtrOptional = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX;

struct Row {
    ibv_qp_type type;
    ibv_qp_state from, to;
    int required, optional;
};

std::ostream& operator<<(std::ostream& out, const Row& row) {
    return out << "type" << row.type << "_from" << row.from << "_to" << row.to;
}

// Section "modify_qp" of the verbs manual pages and of the kernel's table.
const Row kRows[] = {
    {IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT, kInit | IBV_QP_ACCESS_FLAGS, 0},
    {IBV_QPT_UC, IBV_QPS_RESET, IBV_QPS_INIT, kInit | IBV_QP_ACCESS_FLAGS, 0},
    {IBV_QPT_UD, IBV_QPS_RESET, IBV_QPS_INIT, kInit | IBV_QP_QKEY, 0},
    {IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_INIT, 0, kInit | IBV_QP_ACCESS_FLAGS},
    {IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_INIT, 0, kInit | IBV_QP_QKEY},
    {IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR, kRcRtr, kRtrOptional},
    {IBV_QPT_UC, IBV_QPS_INIT, IBV_QPS_RTR, kUcRtr, kRtrOptional},
    {IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_RTR, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
    {IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTS, kRcRts, kRcOptional},
    {IBV_QPT_UC, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, kUcOptional},
    {IBV_QPT_UD, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, IBV_QP_CUR_STATE | IBV_QP_QKEY},
    {IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_RTS, 0, kRcOptional},
    {IBV_QPT_UC, IBV_QPS_RTS, IBV_QPS_RTS, 0, kUcOptional},
    {IBV_QPT_UD, IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY},
    {IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPT_RC, IBV_QPS_SQD, IBV_QPS_RTS, 0, kRcOptional},
    {IBV_QPT_RC, IBV_QPS_SQD, IBV_QPS_SQD, 0,
     IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
         IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_ALT_PATH |
         IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE},
    {IBV_QPT_UD, IBV_QPS_SQD, IBV_QPS_SQD, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
    {IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_ERR, 0, 0},
    {IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_RESET, 0, 0},
};

class ModifyTable : public testing::TestWithParam<Row> {
  protected:
    ModifyTable() {
        options_.type = GetParam().type;
        world_ = std::make_unique<World>(options_);
    }

    Qp& fresh_in(ibv_qp_state state) {
        Qp& qp = world_->a.create_qp({.type = options_.type, .cap = options_.cap});
        const bool in_order = (state < IBV_QPS_INIT || world_->to_init(qp) == 0) &&
                              (state < IBV_QPS_RTR || world_->to_rtr(qp, {1}, 5, 5) == 0) &&
                              (state < IBV_QPS_RTS || world_->to_rts(qp, 5) == 0) &&
                              (state < IBV_QPS_SQD || world_->to_state(qp, state) == 0);
        EXPECT_TRUE(in_order);
        EXPECT_EQ(qp.state(), state);
        return qp;
    }

    int modify(Qp& qp, int mask) {
        ibv_qp_attr attr{};
        attr.cur_qp_state = qp.state();
        attr.port_num = attr.ah_attr.port_num = attr.alt_port_num = 1;
        attr.path_mtu = IBV_MTU_1024;
        return world_->to_state(qp, GetParam().to, mask, attr);
    }

    WorldOptions options_;
    std::unique_ptr<World> world_;
};

TEST_P(ModifyTable, needs_all_of_the_required_and_takes_only_the_optional_bits) {
    const Row& row = GetParam();
    for (int bit = 1; bit <= kAllBits; bit <<= 1) {
        if ((bit & kAllBits) == 0)
            continue;
        Qp& qp = fresh_in(row.from);
        if ((row.required & bit) != 0) {
            EXPECT_EQ(modify(qp, row.required & ~bit), EINVAL) << "without " << bit;
            EXPECT_EQ(qp.state(), row.from);
        } else {
            const bool is_allowed = (row.optional & bit) != 0;
            EXPECT_EQ(modify(qp, row.required | bit), is_allowed ? 0 : EINVAL) << "with " << bit;
            EXPECT_EQ(qp.state(), is_allowed ? row.to : row.from);
        }
    }
    EXPECT_EQ(modify(fresh_in(row.from), row.required), 0);
}

INSTANTIATE_TEST_SUITE_P(VhcaModify, ModifyTable, testing::ValuesIn(kRows),
                         testing::PrintToStringParamName());

TEST(VhcaModify, transitions_that_do_not_exist_are_refused) {
    World world;
    Qp& qp = world.a.create_qp({.cap = world.options.cap});
    for (const ibv_qp_state state :
         {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_SQE, IBV_QPS_ERR}) {
        EXPECT_EQ(world.to_state(qp, state), EINVAL) << "RESET to " << state;
    }
    ASSERT_EQ(world.to_init(qp), 0);
    EXPECT_EQ(world.to_rts(qp, 0), EINVAL);
    ASSERT_EQ(world.to_rtr(qp, {1}, 1, 1), 0);
    EXPECT_EQ(world.to_init(qp), EINVAL);
    EXPECT_EQ(world.to_state(qp, IBV_QPS_RTR), EINVAL);
    ASSERT_EQ(world.to_state(qp, IBV_QPS_ERR), 0);
    EXPECT_EQ(world.to_state(qp, IBV_QPS_RTS), EINVAL);
    EXPECT_EQ(world.to_state(qp, IBV_QPS_ERR), 0);
    EXPECT_EQ(world.to_state(qp, IBV_QPS_RESET), 0);
}

TEST(VhcaModify, values_out_of_range_are_refused_and_change_nothing) {
    World world;
    Qp& qp = *world.qa;
    ibv_qp_attr attr{};
    attr.min_rnr_timer = 32;
    EXPECT_EQ(world.to_state(qp, IBV_QPS_RTS, IBV_QP_MIN_RNR_TIMER, attr), EINVAL);
    attr.qp_access_flags = 1U << 15;
    EXPECT_EQ(world.to_state(qp, IBV_QPS_RTS, IBV_QP_ACCESS_FLAGS, attr), EINVAL);
    attr.cur_qp_state = IBV_QPS_RTR;
    EXPECT_EQ(world.to_state(qp, IBV_QPS_RTS, IBV_QP_CUR_STATE, attr), EINVAL);
    ASSERT_EQ(world.to_state(qp, IBV_QPS_SQD), 0);
    attr.timeout = 32;
    EXPECT_EQ(world.to_state(qp, IBV_QPS_SQD, IBV_QP_TIMEOUT, attr), EINVAL);
    attr.retry_cnt = 8;
    EXPECT_EQ(world.to_state(qp, IBV_QPS_SQD, IBV_QP_RETRY_CNT, attr), EINVAL);
    attr.rnr_retry = 8;
    EXPECT_EQ(world.to_state(qp, IBV_QPS_SQD, IBV_QP_RNR_RETRY, attr), EINVAL);
    attr.max_rd_atomic = 17;
    EXPECT_EQ(world.to_state(qp, IBV_QPS_SQD, IBV_QP_MAX_QP_RD_ATOMIC, attr), EINVAL);
    attr.max_dest_rd_atomic = 17;
    EXPECT_EQ(world.to_state(qp, IBV_QPS_SQD, IBV_QP_MAX_DEST_RD_ATOMIC, attr), EINVAL);
    attr.port_num = 2;
    EXPECT_EQ(world.to_state(qp, IBV_QPS_SQD, IBV_QP_PORT, attr), EINVAL);
    attr.pkey_index = 1;
    EXPECT_EQ(world.to_state(qp, IBV_QPS_SQD, IBV_QP_PKEY_INDEX, attr), EINVAL);
    ibv_qp_attr now{};
    qp.query(&now);
    EXPECT_EQ(now.timeout, world.options.connection.timeout);
    EXPECT_EQ(now.retry_cnt, world.options.connection.retry_cnt);
}

TEST(VhcaModify, query_returns_what_was_set) {
    World world;
    ibv_qp_attr attr{};
    world.qa->query(&attr);
    EXPECT_EQ(attr.qp_state, IBV_QPS_RTS);
    EXPECT_EQ(attr.cur_qp_state, IBV_QPS_RTS);
    EXPECT_EQ(attr.dest_qp_num, world.qb->number());
    EXPECT_EQ(attr.path_mtu, IBV_MTU_1024);
    EXPECT_EQ(attr.sq_psn, 0x1000U);
    EXPECT_EQ(attr.rq_psn, 0x1100U);
    EXPECT_EQ(attr.cap.max_send_wr, 64U);
    EXPECT_EQ(attr.max_rd_atomic, 4);
    EXPECT_EQ(attr.qp_access_flags, kAllAccess);
}

TEST(VhcaModify, send_queue_drained_holds_back_what_was_not_begun_and_tells_when_it_is_empty) {
    World world;
    world.receive(1, 0, 8);
    world.receive(2, 0, 8);
    ASSERT_EQ(world.send(1, 0, 8), 0);
    ibv_qp_attr attr{};
    attr.en_sqd_async_notify = 1;
    ASSERT_EQ(world.to_state(*world.qa, IBV_QPS_SQD, IBV_QP_EN_SQD_ASYNC_NOTIFY, attr), 0);
    ASSERT_EQ(world.send(2, 0, 8), 0);
    world.qa->query(&attr);
    EXPECT_EQ(attr.sq_draining, 1);
    world.settle();
    EXPECT_EQ(world.a.events.count(IBV_EVENT_SQ_DRAINED), 1U);
    EXPECT_EQ(world.a.wait().wc.wr_id, 1U);
    EXPECT_TRUE(world.a.cq->is_empty());
    ASSERT_EQ(world.to_state(*world.qa, IBV_QPS_RTS), 0);
    EXPECT_EQ(world.a.wait().wc.wr_id, 2U);
}

TEST(VhcaModify, reset_takes_everything_away_and_the_queue_pair_can_be_connected_again) {
    World world;
    world.receive(1, 0, 8);
    world.receive(2, 0, 8);
    ASSERT_EQ(world.send(1, 0, 8), 0);
    world.settle();
    ASSERT_EQ(world.to_state(*world.qa, IBV_QPS_RESET), 0);
    ASSERT_EQ(world.to_state(*world.qb, IBV_QPS_RESET), 0);
    EXPECT_TRUE(world.a.cq->is_empty());
    EXPECT_TRUE(world.b.cq->is_empty());
    world.connect(*world.qa, world.b.route(), world.qb->number(), 77, 88);
    world.connect(*world.qb, world.a.route(), world.qa->number(), 88, 77);
    world.receive(3, 0, 8);
    ASSERT_EQ(world.send(4, 0, 8), 0);
    EXPECT_EQ(world.b.wait().wc.wr_id, 3U);
    EXPECT_EQ(world.a.wait().wc.wr_id, 4U);
}

}  // namespace

}  // namespace tagwire::vhca
