// SPDX-License-Identifier: BSD-3-Clause
// Operations on the list of a tag-matching SRQ: completions, limits, order, and the agreement on
// unexpected messages.
#include "vhca/test/core/tag_world.hpp"

namespace tagwire::vhca {

namespace {

constexpr unsigned kSignaled = IBV_OPS_SIGNALED, kSync = IBV_OPS_TM_SYNC;
constexpr unsigned kSyncRequest = IBV_WC_TM_SYNC_REQ;

void expect_operation(TagWorld& world, ibv_wc_opcode opcode, std::uint64_t wr_id,
                      ibv_wc_status status = IBV_WC_SUCCESS, unsigned flags = 0) {
    const auto completion = world.poll_tags();
    ASSERT_TRUE(completion.has_value());
    EXPECT_EQ(completion->wc.opcode, opcode);
    EXPECT_EQ(completion->wc.wr_id, wr_id);
    EXPECT_EQ(completion->wc.status, status);
    EXPECT_EQ(completion->wc.wc_flags, flags);
}

/// An unexpected message, taken by software, whose receive is posted again.
void be_surprised(TagWorld& world, std::uint64_t tag = 1000, std::size_t sender = 0) {
    ASSERT_EQ(world.send_eager(tag, "surprise", sender), 0);
    const Completion completion = world.wait_tags();
    ASSERT_EQ(completion.wc.opcode, IBV_WC_TM_RECV);
    ASSERT_EQ(completion.wc.wc_flags & (kMatch | kValid), 0U);
    ASSERT_EQ(world.post_untagged(completion.wc.wr_id), 0);
}

/// The message with this tag goes to the receive `wr_id`.
void expect_match(TagWorld& world, std::uint64_t tag, std::uint64_t wr_id, std::size_t sender = 0) {
    ASSERT_EQ(world.send_eager(tag, "x", sender), 0);
    expect_tagged(world.wait_tags(), wr_id, kMatch | kValid, 1);
}

TEST(VhcaTagOperation, signaled_ones_complete_on_the_cq_of_the_srq) {
    TagWorld world;
    const std::uint32_t handle = world.add(5, 77, 0, 8, {.wr_id = 1, .flags = kSignaled});
    EXPECT_EQ(world.remove(handle, {.wr_id = 2, .flags = kSignaled}), 0);
    TagWork sync{.wr_id = 3, .flags = kSignaled};
    EXPECT_EQ(world.operate(sync), 0);
    expect_operation(world, IBV_WC_TM_ADD, 1);
    expect_operation(world, IBV_WC_TM_DEL, 2);
    expect_operation(world, IBV_WC_TM_SYNC, 3);
    EXPECT_EQ(world.remove(world.add(5, 77, 0, 8)), 0);
    EXPECT_TRUE(world.cq->is_empty()) << "the others do not";
}

TEST(VhcaTagOperation, removing_what_a_message_consumed_fails_and_only_signaled_ones_tell) {
    TagWorld world;
    const std::uint32_t handle = world.add(5, 77, 0, 8);
    ASSERT_EQ(world.send_eager(5, "x"), 0);
    world.settle();
    EXPECT_EQ(world.remove(handle, {.wr_id = 1}), 0);
    EXPECT_EQ(world.remove(handle, {.wr_id = 2, .flags = kSignaled}), 0);
    expect_tagged(*world.poll_tags(), 77, kMatch | kValid, 1);
    expect_operation(world, IBV_WC_TM_DEL, 2, IBV_WC_TM_ERR);
    EXPECT_EQ(world.remove(12345, {.wr_id = 3, .flags = kSignaled}), 0);
    expect_operation(world, IBV_WC_TM_DEL, 3, IBV_WC_TM_ERR);
    EXPECT_TRUE(world.cq->is_empty());
}

TEST(VhcaTagOperation, removed_receive_matches_nothing) {
    TagWorld world;
    const std::uint32_t handle = world.add(5, 77, 0, 8);
    world.add(5, 78, 0, 8);
    EXPECT_EQ(world.remove(handle), 0);
    expect_match(world, 5, 78);
    be_surprised(world, 5);
}

TEST(VhcaTagOperation, removing_between_match_and_data_comes_too_late) {
    TagWorld world;
    const std::uint32_t handle = world.add(5, 77, 0, 9000);
    ASSERT_EQ(world.send_rendezvous(5, 0, std::string(9000, 'r')), 0);
    expect_tagged(world.wait_tags(), 77, kMatch, 0);
    EXPECT_EQ(world.remove(handle, {.wr_id = 1, .flags = kSignaled}), 0);
    expect_operation(world, IBV_WC_TM_DEL, 1, IBV_WC_TM_ERR);
    expect_tagged(world.wait_tags(), 77, kValid, 9000);
}

TEST(VhcaTagOperation, list_fails_at_the_first_bad_one_and_says_which) {
    TagWorld world({.tags_max = 2});
    const ibv_sge sges[2] = {world.b.sge(0, 8), world.b.sge(8, 8)};
    const TagWork add{.opcode = IBV_WR_TAG_ADD, .tag = 5, .mask = kExact};
    TagWork two_sges = add, unknown;
    two_sges.sges = sges;
    unknown.opcode = static_cast<ibv_ops_wr_opcode>(3);
    std::size_t failed = 99;
    for (const TagWork& bad : {two_sges, unknown}) {
        TagWork works[] = {{.wr_id = 1, .flags = kSignaled}, bad, {.wr_id = 2, .flags = kSignaled}};
        EXPECT_EQ(world.tm->post_ops(works, &failed, 1), EINVAL);
        EXPECT_EQ(failed, 1U);
        expect_operation(world, IBV_WC_TM_SYNC, 1);
        EXPECT_TRUE(world.cq->is_empty()) << "what came after it was not carried out";
    }
    TagWork three[] = {add, add, add};
    EXPECT_EQ(world.tm->post_ops(three, &failed, 1), ENOMEM);
    EXPECT_EQ(failed, 2U);
}

TEST(VhcaTagOperation, ordinary_srq_has_none) {
    WorldOptions options;
    options.uses_srq = true;
    World world(options);
    TagWork work;
    std::size_t failed = 99;
    EXPECT_EQ(world.srq->post_ops({&work, 1}, &failed, 1), EINVAL);
    EXPECT_EQ(failed, 0U);
}

TEST(VhcaTagOperation, places_come_back_when_a_later_signaled_one_is_polled) {
    TagWorld world({.ops_max = 3});
    EXPECT_EQ(world.sync(0), 0);
    EXPECT_EQ(world.sync(0), 0);
    EXPECT_EQ(world.sync(0, kSignaled), 0);
    EXPECT_EQ(world.sync(0), ENOMEM);
    EXPECT_TRUE(world.poll_tags().has_value());
    EXPECT_EQ(world.sync(0), 0);
    EXPECT_EQ(world.sync(0), 0);
    EXPECT_EQ(world.sync(0), 0);
    EXPECT_EQ(world.sync(0), ENOMEM) << "who never signals runs out of places";
}

TEST(VhcaTagOperation, handle_is_free_when_all_that_names_it_was_polled) {
    TagWorld world({.tags_max = 1});
    const TagWork signaled{.wr_id = 1, .flags = kSignaled};
    TagWork refused{.opcode = IBV_WR_TAG_ADD, .mask = kExact};
    world.add(5, 77, 0, 8, signaled);
    ASSERT_EQ(world.send_eager(5, "x"), 0);
    world.settle();
    EXPECT_EQ(world.operate(refused), ENOMEM);
    expect_operation(world, IBV_WC_TM_ADD, 1);
    EXPECT_EQ(world.operate(refused), ENOMEM) << "the message is not polled";
    EXPECT_TRUE(world.poll_tags().has_value());

    const std::uint32_t handle = world.add(6, 78, 0, 8, signaled);
    EXPECT_EQ(world.remove(handle, signaled), 0);
    expect_operation(world, IBV_WC_TM_ADD, 1);
    EXPECT_EQ(world.operate(refused), ENOMEM) << "the removal is not polled";
    expect_operation(world, IBV_WC_TM_DEL, 1);
    EXPECT_EQ(world.remove(world.add(6, 78, 0, 8)), 0);
    world.add(6, 78, 0, 8);
}

TEST(VhcaTagOperation, creation_checks_limits_and_types) {
    TagWorld world;
    Srq* srq = nullptr;
    SrqConfig config{.pd = world.b.pd, .wr_max = 1, .sge_max = 1, .tm = {1025, 8, world.cq}};
    EXPECT_EQ(world.b.device.create_srq(config, &srq), EINVAL);
    config.tm = {0, 8, world.cq};
    EXPECT_EQ(world.b.device.create_srq(config, &srq), EINVAL);
    config.tm = {8, 0, world.cq};
    EXPECT_EQ(world.b.device.create_srq(config, &srq), EINVAL);
    Qp* qp = nullptr;
    EXPECT_EQ(world.b.device.create_qp({.type = IBV_QPT_UC,
                                        .pd = world.b.pd,
                                        .send_cq = world.b.cq,
                                        .recv_cq = world.b.cq,
                                        .srq = world.tm},
                                       &qp),
              EINVAL);
}

TEST(VhcaTagOperation, send_queue_belongs_to_the_srq) {
    TagWorld world;
    EXPECT_EQ(world.receivers[0]->cap().max_send_wr, 0U);
    EXPECT_EQ(world.receivers[0]->cap().max_inline_data, 0U);
    EXPECT_EQ(world.receivers[0]->post_send({}, 1), EINVAL);
    ASSERT_EQ(world.send_rendezvous(5, 0, std::string(9000, 'r')), 0);
    world.add(5, 77, 0, 9000);
    while (world.cq->is_empty()) {
        EXPECT_EQ(world.receivers[0]->post_send({}, world.fabric.now()), EINVAL);
        world.fabric.step();
    }
    EXPECT_EQ(world.receivers[0]->post_recv({}), EINVAL);
}

TEST(VhcaTagOperation, srq_and_its_cq_are_in_use_and_completions_outlive_the_qp) {
    TagWorld world;
    world.add(5, 77, 0, 8);
    ASSERT_EQ(world.send_eager(4, "x"), 0);
    ASSERT_EQ(world.send_eager(5, "x"), 0);
    world.settle();
    EXPECT_EQ(world.b.device.destroy_srq(*world.tm), EBUSY);
    ASSERT_EQ(world.b.device.destroy_qp(*world.receivers[0]), 0);
    EXPECT_EQ(world.poll_tags()->wc.opcode, IBV_WC_TM_RECV);
    EXPECT_EQ(world.b.device.destroy_cq(*world.cq), EBUSY);
    ASSERT_EQ(world.b.device.destroy_srq(*world.tm), 0);
    EXPECT_TRUE(world.cq->is_empty()) << "the match went with its SRQ";
    EXPECT_EQ(world.b.device.destroy_cq(*world.cq), 0);
}

TEST(VhcaTagOrder, oldest_receive_wins_over_all_senders) {
    TagWorld world({.senders = 2});
    world.add(1, 71, 0, 8);
    world.add(0, 72, 0, 8, {.mask = 1});  // even tags
    world.add(1, 73, 0, 8);
    world.add(2, 74, 0, 8);
    expect_match(world, 2, 72, 1);
    expect_match(world, 1, 71, 0);
    expect_match(world, 1, 73, 1);
    expect_match(world, 2, 74, 0);
}

TEST(VhcaTagOrder, match_is_decided_by_the_first_packet) {
    TagWorld world(slow());
    world.add(5, 71, 0, 60'000);
    world.add(5, 72, 60'000, 100);
    ASSERT_EQ(world.send_eager(5, std::string(60'000, 'l')), 0);
    expect_tagged(world.wait_tags(), 71, kMatch, 0);
    expect_match(world, 5, 72, 1);
    expect_tagged(world.wait_tags(), 71, kValid, 60'000);
}

TEST(VhcaTagSync, receive_added_with_a_stale_count_waits_and_one_with_the_right_count_does_not) {
    TagWorld world;
    be_surprised(world);
    world.add(5, 77, 0, 8, {.wr_id = 1, .flags = kSignaled});
    expect_operation(world, IBV_WC_TM_ADD, 1, IBV_WC_SUCCESS, kSyncRequest);
    be_surprised(world, 5);
    world.add(6, 78, 0, 8, {.wr_id = 2, .flags = kSignaled | kSync, .unexpected_count = 1});
    expect_operation(world, IBV_WC_TM_ADD, 2, IBV_WC_SUCCESS, kSyncRequest);
    be_surprised(world, 6);
    world.add(7, 79, 0, 8, {.wr_id = 3, .flags = kSignaled | kSync, .unexpected_count = 3});
    expect_operation(world, IBV_WC_TM_ADD, 3);
    expect_match(world, 7, 79);
    expect_match(world, 5, 77);
    expect_match(world, 6, 78);
}

TEST(VhcaTagSync, message_on_its_way_to_software_keeps_a_younger_one_from_overtaking_it) {
    TagWorld world;
    ASSERT_EQ(world.send_eager(5, "first"), 0);
    world.settle();
    world.add(5, 77, 0, 8, {.flags = kSync, .unexpected_count = 0});  // did not poll yet
    ASSERT_EQ(world.send_eager(5, "second"), 0);
    world.settle();
    EXPECT_EQ(world.poll_tags()->wc.wc_flags, 0U);
    EXPECT_EQ(world.poll_tags()->wc.wc_flags, 0U) << "else it would take the first one's receive";
}

TEST(VhcaTagSync, what_was_active_stays_active_when_the_counts_part) {
    TagWorld world;
    world.add(5, 77, 0, 8);
    be_surprised(world);
    expect_match(world, 5, 77);
}

TEST(VhcaTagSync, receive_that_waits_can_be_removed) {
    TagWorld world;
    be_surprised(world);
    const std::uint32_t handle = world.add(5, 77, 0, 8);
    EXPECT_EQ(world.remove(handle, {.wr_id = 1, .flags = kSignaled | kSync, .unexpected_count = 1}),
              0);
    EXPECT_EQ(world.poll_tags()->wc.status, IBV_WC_SUCCESS);
    be_surprised(world, 5);
}

TEST(VhcaTagSync, removal_asks_for_a_count_when_the_receive_was_added_with_an_older_one) {
    TagWorld world;
    const std::uint32_t handle = world.add(5, 77, 0, 8);
    be_surprised(world);
    EXPECT_EQ(world.remove(handle, {.wr_id = 1, .flags = kSignaled}), 0);
    expect_operation(world, IBV_WC_TM_DEL, 1, IBV_WC_SUCCESS, kSyncRequest);
}

TEST(VhcaTagSync, messages_ask_for_a_count_after_two_to_the_fourteenth_and_it_wraps_at_sixteen) {
    TagWorld world;
    std::uint32_t total = 0;
    const auto surprise = [&](unsigned flags) {
        ASSERT_EQ(world.send_eager(9, ""), 0);
        const Completion completion = world.wait_tags();
        ASSERT_EQ(completion.wc.wc_flags, flags) << total;
        ASSERT_EQ(world.post_untagged(completion.wc.wr_id), 0);
        static_cast<void>(world.a.wait());
        ++total;
    };
    for (unsigned round = 0; round < 5 && !testing::Test::HasFatalFailure(); ++round) {
        for (unsigned i = 0; i < 0x3fff && !testing::Test::HasFatalFailure(); ++i)
            surprise(0);
        surprise(kSyncRequest);
        surprise(kSyncRequest);
        ASSERT_EQ(world.sync(total, kSignaled), 0);
        expect_operation(world, IBV_WC_TM_SYNC, 0);
        world.add(5, round, 0, 8);
        expect_match(world, 5, round);
        static_cast<void>(world.a.wait());
    }
    EXPECT_GT(total, 0x10000U);
}

}  // namespace

}  // namespace tagwire::vhca
