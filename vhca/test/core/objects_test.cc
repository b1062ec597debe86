// SPDX-License-Identifier: BSD-3-Clause
// Regions, protection domains, numbers, and who may be destroyed when.
#include <set>

#include "vhca/core/number_table.hpp"
#include "vhca/test/core/world.hpp"

namespace tagwire::vhca {

namespace {

class VhcaMemory : public testing::Test {
  protected:
    int create(unsigned access, std::uint64_t length = 64, std::uint64_t iova = 0x1000) {
        return world.a.device.create_mr(*world.a.pd, world.a.memory.data(), length, iova, access,
                                        &mr);
    }
    ibv_wc_status write_from(std::uint64_t address, std::uint32_t bytes) {
        const ibv_sge sge{address, bytes, mr->key};
        SendWork work = world.remote(IBV_WR_RDMA_WRITE, 0);
        work.sges = {&sge, 1};
        work.flags = IBV_SEND_SIGNALED;
        EXPECT_EQ(world.qa->post_send(work, world.fabric.now()), 0);
        return world.a.wait().wc.status;
    }

    World world;
    Mr* mr = nullptr;
};

TEST_F(VhcaMemory, remote_write_and_atomic_need_local_write) {
    EXPECT_EQ(create(IBV_ACCESS_REMOTE_WRITE), EINVAL);
    EXPECT_EQ(create(IBV_ACCESS_REMOTE_ATOMIC), EINVAL);
    EXPECT_EQ(create(IBV_ACCESS_REMOTE_READ), 0);
    EXPECT_EQ(create(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE), 0);
}

TEST_F(VhcaMemory, what_is_not_offered_or_impossible_is_refused) {
    EXPECT_EQ(create(IBV_ACCESS_ON_DEMAND), EOPNOTSUPP);
    EXPECT_EQ(create(1U << 15), EINVAL);
    EXPECT_EQ(create(0, 0), EINVAL);
    EXPECT_EQ(create(0, 64, ~0ULL - 32), EINVAL);
    EXPECT_EQ(create(0, ~0ULL), EINVAL);
    EXPECT_EQ(create(IBV_ACCESS_RELAXED_ORDERING), 0);
}

TEST_F(VhcaMemory, addresses_count_from_the_iova) {
    world.a.write(0, std::string(64, 'i'));
    ASSERT_EQ(create(0), 0);
    EXPECT_EQ(write_from(0x1000 + 10, 54), IBV_WC_SUCCESS);
    EXPECT_EQ(world.b.text(0, 54), std::string(54, 'i'));
    EXPECT_EQ(write_from(0x1000 + 10, 55), IBV_WC_LOC_PROT_ERR);
}

TEST_F(VhcaMemory, bounds_do_not_wrap) {
    ASSERT_EQ(create(0, 64, ~0ULL - 64), 0);
    EXPECT_EQ(write_from(~0ULL - 64, 64), IBV_WC_SUCCESS);
    EXPECT_EQ(write_from(~0ULL - 1, 64), IBV_WC_LOC_PROT_ERR);
}

TEST_F(VhcaMemory, key_is_dead_after_deregistration) {
    ASSERT_EQ(create(0), 0);
    Mr* gone = mr;
    const std::uint32_t key = gone->key;
    ASSERT_EQ(world.a.device.destroy_mr(*gone), 0);
    Mr fake;
    fake.key = key;
    mr = &fake;
    EXPECT_EQ(write_from(0x1000, 8), IBV_WC_LOC_PROT_ERR);
}

TEST_F(VhcaMemory, registering_again_changes_the_key_and_what_was_asked) {
    ASSERT_EQ(create(0), 0);
    const std::uint32_t key = mr->key;
    EXPECT_EQ(world.a.device.change_mr(*mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr,
                                       world.a.memory.data() + 64, 32, 0),
              0);
    EXPECT_NE(mr->key, key);
    EXPECT_NE(mr->key & 0xff, key & 0xff);
    EXPECT_EQ(mr->iova, world.a.address(64));
    EXPECT_EQ(write_from(world.a.address(64), 32), IBV_WC_SUCCESS);
    EXPECT_EQ(world.a.device.change_mr(*mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                                       IBV_ACCESS_REMOTE_WRITE),
              EINVAL);
    EXPECT_EQ(world.a.device.change_mr(*mr, 0, nullptr, nullptr, 0, 0), EINVAL);
    EXPECT_EQ(world.a.device.change_mr(*mr, IBV_REREG_MR_CHANGE_PD, nullptr, nullptr, 0, 0),
              EINVAL);
    Pd* other = nullptr;
    ASSERT_EQ(world.a.device.create_pd(nullptr, &other), 0);
    const std::uint32_t moved_key = mr->key;
    EXPECT_EQ(world.a.device.change_mr(*mr, IBV_REREG_MR_CHANGE_PD, other, nullptr, 0, 0), 0);
    EXPECT_EQ(mr->key, moved_key) << "only new memory has a new key";
    EXPECT_EQ(world.a.device.destroy_pd(*other), EBUSY);
    EXPECT_EQ(write_from(world.a.address(64), 8), IBV_WC_LOC_PROT_ERR);
}

TEST_F(VhcaMemory, low_bits_of_the_key_change_with_every_registration) {
    std::uint32_t before = 0;
    for (int round = 0; round < 300; ++round) {
        ASSERT_EQ(create(0), 0);
        EXPECT_NE(mr->key & 0xff, before & 0xff);
        before = mr->key;
        ASSERT_EQ(world.a.device.destroy_mr(*mr), 0);
    }
}

TEST(VhcaObjects, what_is_used_is_busy) {
    WorldOptions options;
    options.uses_srq = true;
    World world(options);
    EXPECT_EQ(world.b.device.destroy_cq(*world.b.cq), EBUSY);
    EXPECT_EQ(world.b.device.destroy_srq(*world.srq), EBUSY);
    EXPECT_EQ(world.b.device.destroy_pd(*world.b.pd), EBUSY);
    EXPECT_EQ(world.b.device.destroy_qp(*world.qb), 0);
    EXPECT_EQ(world.b.device.destroy_cq(*world.b.cq), 0);
    EXPECT_EQ(world.b.device.destroy_pd(*world.b.pd), EBUSY);
    EXPECT_EQ(world.b.device.destroy_srq(*world.srq), 0);
    EXPECT_EQ(world.b.device.destroy_mr(*world.b.mr), 0);
    EXPECT_EQ(world.b.device.destroy_pd(*world.b.pd), 0);
}

TEST(VhcaObjects, limits_hold) {
    WorldOptions options;
    options.node.device.qp_max = 2;
    World world(options);
    const auto create = [&](const QpConfig& config) {
        QpConfig whole = config;
        whole.pd = world.a.pd;
        whole.send_cq = whole.recv_cq = world.a.cq;
        Qp* qp = nullptr;
        return world.a.device.create_qp(whole, &qp);
    };
    EXPECT_EQ(create({.type = IBV_QPT_RAW_PACKET}), EOPNOTSUPP);
    EXPECT_EQ(create({.cap = {1U << 20, 1, 1, 1, 0}}), EINVAL);
    EXPECT_EQ(create({.cap = {1, 1, 1, 31, 0}}), EINVAL);
    EXPECT_EQ(create({.cap = {1, 1, 1, 1, 257}}), EINVAL);
    EXPECT_EQ(create({.cap = {1, 1, 1, 1, 256}}), 0);
    EXPECT_EQ(create({.cap = {1, 1, 1, 1, 0}}), ENOMEM) << "no more than two";
    Cq* cq = nullptr;
    EXPECT_EQ(world.a.device.create_cq({.cqe = 0}, &cq), EINVAL);
    EXPECT_EQ(world.a.device.create_cq({.cqe = 1U << 23}, &cq), EINVAL);
    Srq* srq = nullptr;
    EXPECT_EQ(world.a.device.create_srq({.pd = world.a.pd, .wr_max = 1U << 20}, &srq), EINVAL);
}

TEST(VhcaObjects, number_is_not_given_out_again_soon) {
    NumberTable<int> table(100);
    int object = 0;
    std::set<std::uint32_t> seen;
    for (std::size_t i = 0; i <= NumberTable<int>::kQuarantine; ++i) {
        const std::uint32_t number = table.add(&object);
        EXPECT_TRUE(seen.insert(number).second) << number;
        EXPECT_EQ(table.find(number), &object);
        table.remove(number);
        EXPECT_EQ(table.find(number), nullptr);
    }
    EXPECT_EQ(table.add(&object), 100U);
    EXPECT_EQ(table.find(99), nullptr);
    EXPECT_EQ(table.used(), 1U);
}

TEST(VhcaObjects, ten_thousand_queue_pairs_connect_and_carry_messages) {
    WorldOptions options;
    options.node.cqe = 1 << 15;
    World world(options);
    constexpr std::size_t kPairs = 10'000;
    const QpConfig config{.cap = {1, 1, 1, 1, 0}};
    const ibv_sge from = world.a.sge(0, 8), to = world.b.sge(0, 8);
    SendWork work;
    work.flags = IBV_SEND_SIGNALED;
    work.sges = {&from, 1};
    for (std::size_t i = 0; i < kPairs; ++i) {
        Qp& qa = world.a.create_qp(config);
        Qp& qb = world.b.create_qp(config);
        world.connect(qa, world.b.route(), qb.number(), 1, 2);
        world.connect(qb, world.a.route(), qa.number(), 2, 1);
        ASSERT_EQ(qb.post_recv({i, {&to, 1}}), 0);
        ASSERT_EQ(qa.post_send(work, world.fabric.now()), 0);
    }
    world.settle();
    std::size_t sent = 0, received = 0;
    while (const auto completion = world.a.poll())
        sent += completion->wc.status == IBV_WC_SUCCESS ? 1U : 0U;
    while (const auto completion = world.b.poll())
        received += completion->wc.status == IBV_WC_SUCCESS ? 1U : 0U;
    EXPECT_EQ(sent, kPairs);
    EXPECT_EQ(received, kPairs);
}

}  // namespace

}  // namespace tagwire::vhca
