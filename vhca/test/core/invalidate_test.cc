// SPDX-License-Identifier: BSD-3-Clause
// SEND with invalidate: the peer takes back the key of a region.
#include "vhca/test/core/world.hpp"

namespace tagwire::vhca {

namespace {

class VhcaInvalidate : public testing::Test {
  protected:
    VhcaInvalidate() {
        EXPECT_EQ(world.b.device.create_mr(*world.b.pd, world.b.memory.data(), 4096,
                                           world.b.address(0), kAllAccess, &lent),
                  0);
    }
    [[nodiscard]] SendWork invalidating(std::uint32_t key) const {
        SendWork work;
        work.opcode = IBV_WR_SEND_WITH_INV;
        work.imm = key;
        return work;
    }
    [[nodiscard]] SendWork write_to_lent() const {
        SendWork work = world.remote(IBV_WR_RDMA_WRITE, 0);
        work.rkey = lent->key;
        return work;
    }

    World world;
    Mr* lent = nullptr;
};

TEST_F(VhcaInvalidate, receiver_is_told_the_key_and_it_opens_nothing_any_more) {
    ASSERT_EQ(world.send(1, 0, 8, write_to_lent()), 0);
    EXPECT_EQ(world.a.wait().wc.status, IBV_WC_SUCCESS);
    ASSERT_EQ(world.receive(2, 8192, 64), 0);
    world.a.write(0, "goodbye");
    ASSERT_EQ(world.send(3, 0, 7, invalidating(lent->key)), 0);
    const Completion completion = world.b.wait();
    EXPECT_EQ(completion.wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(completion.wc.opcode, IBV_WC_RECV);
    EXPECT_EQ(completion.wc.wc_flags, unsigned{IBV_WC_WITH_INV});
    EXPECT_EQ(completion.wc.invalidated_rkey, lent->key);
    EXPECT_EQ(completion.wc.byte_len, 7U);
    EXPECT_EQ(world.b.text(8192, 7), "goodbye");
    EXPECT_EQ(world.a.wait().wc.opcode, IBV_WC_SEND);
    ASSERT_EQ(world.send(4, 0, 8, write_to_lent()), 0);
    EXPECT_EQ(world.a.wait().wc.status, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(VhcaInvalidate, long_message_invalidates_with_its_last_packet) {
    ASSERT_EQ(world.receive(1, 8192, 4000), 0);
    ASSERT_EQ(world.send(2, 0, 4000, invalidating(lent->key)), 0);
    const Completion completion = world.b.wait();
    EXPECT_EQ(completion.wc.byte_len, 4000U);
    EXPECT_EQ(completion.wc.invalidated_rkey, lent->key);
    EXPECT_TRUE(lent->is_invalidated);
}

TEST_F(VhcaInvalidate, region_that_is_registered_again_opens_with_its_new_key) {
    ASSERT_EQ(world.receive(1, 8192, 64), 0);
    ASSERT_EQ(world.send(2, 0, 8, invalidating(lent->key)), 0);
    EXPECT_EQ(world.a.wait().wc.status, IBV_WC_SUCCESS);
    ASSERT_EQ(world.b.device.change_mr(*lent, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                                       kAllAccess),
              0);
    ASSERT_EQ(world.send(3, 0, 8, write_to_lent()), 0);
    EXPECT_EQ(world.a.wait().wc.status, IBV_WC_SUCCESS);
}

TEST_F(VhcaInvalidate, key_that_is_none_is_an_access_error_and_the_receive_is_flushed) {
    ASSERT_EQ(world.receive(1, 8192, 64), 0);
    ASSERT_EQ(world.send(2, 0, 8, invalidating(lent->key ^ 1)), 0);
    EXPECT_EQ(world.a.wait().wc.status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(world.b.wait().wc.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(world.b.events.count(IBV_EVENT_QP_ACCESS_ERR), 1U);
    EXPECT_FALSE(lent->is_invalidated);
}

TEST_F(VhcaInvalidate, region_of_another_protection_domain_is_not_touched) {
    Pd* other = nullptr;
    ASSERT_EQ(world.b.device.create_pd(nullptr, &other), 0);
    ASSERT_EQ(
        world.b.device.change_mr(*lent, IBV_REREG_MR_CHANGE_PD, other, nullptr, 0, kAllAccess), 0);
    ASSERT_EQ(world.receive(1, 8192, 64), 0);
    ASSERT_EQ(world.send(2, 0, 8, invalidating(lent->key)), 0);
    EXPECT_EQ(world.a.wait().wc.status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_FALSE(lent->is_invalidated);
}

TEST(VhcaInvalidateOthers, only_reliable_connections_have_it) {
    for (const ibv_qp_type type : {IBV_QPT_UC, IBV_QPT_UD}) {
        WorldOptions options;
        options.type = type;
        World world(options);
        SendWork work;
        work.opcode = IBV_WR_SEND_WITH_INV;
        EXPECT_EQ(world.send(1, 0, 8, work), EINVAL);
    }
}

}  // namespace

}  // namespace tagwire::vhca
