// SPDX-License-Identifier: BSD-3-Clause
// Core support for interfaces whose programs own the queues: completions handed to a consumer at
// once, receives fetched from a source, queue space accounted for outside the core, NOP requests.
#include <deque>

#include "vhca/test/core/tag_world.hpp"

namespace tagwire::vhca {

namespace {

class Taker final : public CompletionConsumer {
  public:
    bool take(Cq& cq, const Completion& completion) override {
        last_cq = &cq;
        if (taken.size() == room)
            return false;
        taken.push_back(completion);
        return true;
    }
    std::size_t room = ~std::size_t{0};
    std::vector<Completion> taken;
    Cq* last_cq = nullptr;
};

/// Receives of 64 bytes each, one behind the other in b's memory.
class Source final : public ReceiveSource {
  public:
    explicit Source(Host& host) : host_(host) {}
    bool next(RecvWork* work_p) override {
        ++asked;
        if (posted == taken)
            return false;
        sge_ = host_.sge(std::size_t{taken} * 64, 64);
        *work_p = {taken, {&sge_, 1}};
        ++taken;
        return true;
    }
    std::uint32_t posted = 0, taken = 0, asked = 0;

  private:
    Host& host_;
    ibv_sge sge_{};
};

/// a sends to `receiver` of b, which is made with a taker and a source.
class VhcaTaken : public testing::Test {
  protected:
    explicit VhcaTaken(const WorldOptions& options = {}) : world(options), source(world.b) {
        EXPECT_EQ(world.b.device.create_cq({.cqe = 1, .user = this, .consumer = &taker}, &cq), 0);
        QpConfig config{.send_cq = cq, .recv_cq = cq, .cap = world.options.cap};
        config.user = &source;
        config.source = &source;
        config.keeps_places = true;
        receiver = &world.b.create_qp(config);
        sender = &world.a.create_qp({.cap = world.options.cap});
        world.connect(*receiver, world.a.route(), sender->number(), 5, 9);
        world.connect(*sender, world.b.route(), receiver->number(), 9, 5);
    }
    int send(Qp& from, std::uint64_t wr_id, SendWork work = {}) {
        const ibv_sge sge = (&from == sender ? world.a : world.b).sge(0, 8);
        work.wr_id = wr_id;
        work.flags |= IBV_SEND_SIGNALED;
        if (!work.is_nop)
            work.sges = {&sge, 1};
        return from.post_send(work, world.fabric.now());
    }

    World world;
    Taker taker;
    Source source;
    Cq* cq = nullptr;
    Qp *sender = nullptr, *receiver = nullptr;
};

TEST_F(VhcaTaken, completions_go_to_the_consumer_and_the_queue_stays_empty) {
    source.posted = 3;
    for (std::uint64_t id = 0; id < 3; ++id)
        ASSERT_EQ(send(*sender, id), 0);
    world.settle();
    ASSERT_EQ(taker.taken.size(), 3U);
    for (std::uint64_t id = 0; id < 3; ++id) {
        EXPECT_EQ(taker.taken[id].wc.wr_id, id);
        EXPECT_EQ(taker.taken[id].wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(taker.taken[id].qp_user, &source);
        EXPECT_EQ(taker.taken[id].tag_srq_user, nullptr);
    }
    EXPECT_TRUE(cq->is_empty());
    EXPECT_EQ(taker.last_cq, cq);
    EXPECT_EQ(cq->user(), this);
}

TEST_F(VhcaTaken, receives_are_asked_for_when_a_message_looks_for_one) {
    source.posted = 1;
    world.settle();
    EXPECT_EQ(source.taken, 0U) << "no message yet";
    ASSERT_EQ(send(*sender, 1), 0);
    ASSERT_EQ(send(*sender, 2), 0);
    world.fabric.run([this] { return taker.taken.size() == 1; });
    EXPECT_EQ(source.taken, 1U);
    source.posted = 2;  // nobody is told: the message that was refused asks again
    world.settle();
    EXPECT_EQ(taker.taken.size(), 2U);
}

TEST_F(VhcaTaken, overrun_is_found_by_the_consumer_and_breaks_the_queue) {
    taker.room = 1;
    source.posted = 2;
    ASSERT_EQ(send(*sender, 1), 0);
    ASSERT_EQ(send(*sender, 2), 0);
    world.settle();
    ASSERT_EQ(world.b.events.broken.size(), 1U);
    EXPECT_EQ(world.b.events.broken[0], cq);
    EXPECT_EQ(receiver->state(), IBV_QPS_ERR);
    EXPECT_EQ(world.b.events.count(IBV_EVENT_QP_FATAL), 1U);
}

TEST_F(VhcaTaken, source_is_flushed_in_the_error_state) {
    source.posted = 2;
    receiver->flush_source(world.fabric.now());
    EXPECT_TRUE(taker.taken.empty()) << "not in ERR";
    EXPECT_EQ(world.to_state(*receiver, IBV_QPS_ERR), 0);
    ASSERT_EQ(taker.taken.size(), 2U);
    EXPECT_EQ(taker.taken[1].wc.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_TRUE(taker.taken[1].is_solicited);
    source.posted = 4;
    receiver->flush_source(world.fabric.now());
    ASSERT_EQ(taker.taken.size(), 4U);
    EXPECT_EQ(taker.taken[3].wc.wr_id, 3U);
}

TEST_F(VhcaTaken, source_that_promises_too_much_is_asked_for_no_more_than_there_is_room) {
    source.posted = 1000;
    ASSERT_EQ(send(*sender, 1), 0);
    world.settle();
    EXPECT_EQ(source.taken, world.options.cap.max_recv_wr);
    EXPECT_EQ(taker.taken.size(), 1U);
}

TEST_F(VhcaTaken, places_are_free_when_requests_end_though_nobody_polls) {
    const std::uint32_t places = world.options.cap.max_send_wr;
    for (std::uint64_t id = 0; id < 3 * places; ++id) {
        ASSERT_EQ(send(*receiver, id, {.opcode = IBV_WR_SEND}), 0) << id;
        const ibv_sge sge = world.a.sge(0, 64);
        ASSERT_EQ(sender->post_recv({id, {&sge, 1}}), 0);
        world.settle();
        while (world.a.poll()) {
        }
    }
    EXPECT_EQ(taker.taken.size(), 3U * places);
}

TEST_F(VhcaTaken, nop_ends_after_all_before_it_and_before_all_after_it) {
    const ibv_sge sge = world.a.sge(0, 64);
    ASSERT_EQ(send(*receiver, 1), 0);
    ASSERT_EQ(send(*receiver, 2, {.is_nop = true}), 0);
    ASSERT_EQ(send(*receiver, 3, {.is_nop = true}), 0);
    ASSERT_EQ(send(*receiver, 4), 0);
    world.fabric.run([] { return false; });
    EXPECT_TRUE(taker.taken.empty()) << "the first one waits for a receive";
    ASSERT_EQ(sender->post_recv({1, {&sge, 1}}), 0);
    ASSERT_EQ(sender->post_recv({2, {&sge, 1}}), 0);
    world.settle();
    ASSERT_EQ(taker.taken.size(), 4U);
    for (std::uint64_t id = 1; id <= 4; ++id) {
        EXPECT_EQ(taker.taken[id - 1].wc.wr_id, id);
        EXPECT_EQ(taker.taken[id - 1].wc.status, IBV_WC_SUCCESS);
    }
}

TEST_F(VhcaTaken, nop_with_nothing_before_it_ends_at_once) {
    ASSERT_EQ(send(*receiver, 1, {.is_nop = true}), 0);
    ASSERT_EQ(taker.taken.size(), 1U);
    EXPECT_EQ(taker.taken[0].wc.byte_len, 0U);
}

TEST_F(VhcaTaken, nop_is_flushed_like_others) {
    world.fabric.set_partitioned(0, 1, true);
    ASSERT_EQ(send(*receiver, 1), 0);
    ASSERT_EQ(send(*receiver, 2, {.is_nop = true}), 0);
    EXPECT_EQ(world.to_state(*receiver, IBV_QPS_ERR), 0);
    ASSERT_EQ(taker.taken.size(), 2U);
    EXPECT_EQ(taker.taken[1].wc.status, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(VhcaTaken, refused_request_fails_in_its_turn) {
    const ibv_sge sge = world.a.sge(0, 64);
    ASSERT_EQ(sender->post_recv({1, {&sge, 1}}), 0);
    ASSERT_EQ(send(*receiver, 1), 0);
    ASSERT_EQ(send(*receiver, 2, {.refused = IBV_WC_LOC_QP_OP_ERR}), 0);
    ASSERT_EQ(send(*receiver, 3), 0);
    world.settle();
    ASSERT_EQ(taker.taken.size(), 3U);
    EXPECT_EQ(taker.taken[0].wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(taker.taken[1].wc.status, IBV_WC_LOC_QP_OP_ERR);
    EXPECT_EQ(taker.taken[2].wc.status, IBV_WC_WR_FLUSH_ERR);
}

// Under loss and reordering, one of three requests is a NOP: all end, once, in order.
TEST(VhcaTakenModel, nops_keep_their_places_under_faults) {
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        WorldOptions options;
        options.seed = seed;
        options.fabric.loss = 0.1;
        options.fabric.reorders_path = true;
        options.fabric.delay_max = 5000;
        World world(options);
        std::uint64_t next = 0, ended = 0;
        while (ended < 300) {
            for (; next < 300 && next - ended < 32; ++next) {
                SendWork work{.flags = IBV_SEND_SIGNALED, .is_nop = next % 3 == 1};
                work.wr_id = next;
                const ibv_sge sge = world.a.sge(0, 1500);
                if (!work.is_nop) {
                    work.sges = {&sge, 1};
                    ASSERT_EQ(world.receive(next, 4096, 2048), 0);
                }
                ASSERT_EQ(world.qa->post_send(work, world.fabric.now()), 0);
            }
            const Completion completion = world.a.wait();
            ASSERT_EQ(completion.wc.wr_id, ended) << "seed " << seed;
            ASSERT_EQ(completion.wc.status, IBV_WC_SUCCESS) << "seed " << seed;
            ++ended;
            while (world.b.poll()) {
            }
        }
    }
}

TEST(VhcaTakenTags, completions_name_the_srq_and_the_count_of_unexpected_messages) {
    WorldOptions options;
    options.node.device.tm_tags_max = 16;
    World world(options);
    Taker taker;
    int user = 0;
    Cq* cq = nullptr;
    ASSERT_EQ(world.b.device.create_cq({.cqe = 16, .consumer = &taker}, &cq), 0);
    Source source(world.b);
    SrqConfig config{.pd = world.b.pd, .wr_max = 64, .sge_max = 1, .tm = {8, 2, cq, true}};
    config.user = &user;
    config.source = &source;
    Srq* srq = nullptr;
    ASSERT_EQ(world.b.device.create_srq(config, &srq), 0);
    Qp& receiver = world.b.create_qp({.srq = srq, .cap = world.options.cap});
    Qp& sender = world.a.create_qp({.cap = world.options.cap});
    world.connect(receiver, world.a.route(), sender.number(), 5, 9);
    world.connect(sender, world.b.route(), receiver.number(), 9, 5);
    source.posted = 40;

    const TagHeader header{TagOpcode::kEager, {}, htobe32(1), htobe64(7)};
    std::memcpy(world.a.memory.data(), &header, sizeof header);
    const ibv_sge sge = world.a.sge(0, sizeof header + 4);
    ASSERT_EQ(sender.post_send({.wr_id = 1, .sges = {&sge, 1}}, world.fabric.now()), 0);
    world.settle();
    ASSERT_EQ(taker.taken.size(), 1U);
    EXPECT_EQ(taker.taken[0].wc.opcode, IBV_WC_TM_RECV);
    EXPECT_EQ(taker.taken[0].tag_srq_user, &user);
    // More operations than the SRQ was made for: who posts keeps account of them.
    for (unsigned i = 0; i < 5; ++i) {
        TagWork sync{.wr_id = i, .opcode = IBV_WR_TAG_SYNC, .flags = IBV_OPS_SIGNALED};
        std::size_t failed = 0;
        ASSERT_EQ(srq->post_ops({&sync, 1}, &failed, world.fabric.now()), 0) << i;
    }
    ASSERT_EQ(taker.taken.size(), 6U);
    EXPECT_EQ(taker.taken[5].tm_count, 1U);
    EXPECT_EQ(taker.taken[5].tag_srq_user, &user);
    EXPECT_EQ(world.b.device.destroy_qp(receiver), 0);
    EXPECT_EQ(world.b.device.destroy_srq(*srq), 0);
}

}  // namespace

}  // namespace tagwire::vhca
