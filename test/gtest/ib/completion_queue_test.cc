// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/completion_queue.hpp"

#include <endian.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <infiniband/tm_types.h>
#include <poll.h>

#include <cstring>
#include <vector>

#include "loop.hpp"

namespace tagwire::ib {
namespace {

using test::Loop;
using test::LoopOptions;
using testing::HasSubstr;

bool has_event(const ibv_comp_channel& channel, int timeout_ms) {
    pollfd entry{.fd = channel.fd, .events = POLLIN, .revents = 0};
    return ::poll(&entry, 1, timeout_ms) == 1;
}

TEST(CompletionQueue, tells_of_a_message_at_both_ends) {
    Loop loop;
    loop.post_receive(7);
    ibv_send_wr wr{};
    wr.wr_id = 5;
    wr.opcode = IBV_WR_SEND_WITH_IMM;
    wr.imm_data = htobe32(0x01020304);
    loop.post(&wr, 100);
    const Completion sent = Loop::wait(loop.source_cq);
    EXPECT_EQ(sent.wr_id, 5U);
    EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
    EXPECT_EQ(sent.opcode, IBV_WC_SEND);
    EXPECT_EQ(sent.qp_num, loop.source->qp_num);
    const Completion received = Loop::wait(loop.target_cq);
    EXPECT_EQ(received.wr_id, 7U);
    EXPECT_EQ(received.opcode, IBV_WC_RECV);
    EXPECT_EQ(received.byte_len, 100U);
    EXPECT_EQ(received.flags, unsigned{IBV_WC_WITH_IMM});
    EXPECT_EQ(received.imm, 0x01020304U) << "in host order";
    EXPECT_EQ(received.qp_num, loop.target->qp_num);
}

TEST(CompletionQueue, tells_what_tag_matching_knows) {
    Loop loop(LoopOptions{.has_tags = true});
    for (std::uint64_t i = 0; i < 40; ++i)
        loop.post_receive(i);
    loop.post_tag(99, 0x0123456789abcdef);
    EXPECT_EQ(Loop::wait(loop.target_cq).opcode, IBV_WC_TM_ADD);
    const ibv_tmh header{IBV_TMH_EAGER, {}, htobe32(0x0a0b0c0d), htobe64(0x0123456789abcdef)};
    std::memcpy(loop.buffer.data(), &header, sizeof header);

    loop.send(1, sizeof header + 20);
    const Completion matched = Loop::wait(loop.target_cq);
    EXPECT_EQ(matched.status, IBV_WC_SUCCESS);
    EXPECT_EQ(matched.wr_id, 99U);
    EXPECT_EQ(matched.opcode, IBV_WC_TM_RECV);
    EXPECT_EQ(matched.flags, unsigned{IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID});
    EXPECT_EQ(matched.byte_len, 20U);
    EXPECT_EQ(matched.tag, 0x0123456789abcdefU);
    EXPECT_EQ(matched.app_ctx, 0x0a0b0c0dU) << "in host order";
    EXPECT_EQ(matched.qp_num, loop.target->qp_num);

    loop.send(2, sizeof header + 20);
    const Completion unexpected = Loop::wait(loop.target_cq);
    EXPECT_LT(unexpected.wr_id, 40U);
    EXPECT_EQ(unexpected.flags & IBV_WC_TM_MATCH, 0U);
    EXPECT_EQ(unexpected.byte_len, sizeof header + 20);
}

class InOrder : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(CompletionQueue, InOrder, testing::Bool(),
                         [](const auto& param) { return param.param ? "extended" : "plain"; });

TEST_P(InOrder, each_completion_comes_once) {
    constexpr std::uint64_t kMessages = 50;  // more than three batches
    Loop loop(LoopOptions{.has_tags = GetParam()});
    for (std::uint64_t i = 0; i < kMessages; ++i)
        loop.post_receive(i);
    for (std::uint64_t i = 0; i < kMessages; ++i)
        loop.send(i, 64);  // zeros: on the tag-matching SRQ, a message without tag
    const std::vector<Completion> seen = Loop::wait(loop.target_cq, kMessages);
    for (std::uint64_t i = 0; i < kMessages; ++i) {
        EXPECT_EQ(seen[i].status, IBV_WC_SUCCESS);
        EXPECT_EQ(seen[i].wr_id, i);
    }
    const Completion* found = nullptr;
    EXPECT_EQ(loop.target_cq.poll(&found), 0U);
}

TEST(CompletionQueue, tells_a_failure_with_its_queue_pair) {
    Loop loop;
    loop.post_receive(3);
    loop.fail_target();
    const Completion flushed = Loop::wait(loop.target_cq);
    EXPECT_EQ(flushed.wr_id, 3U);
    EXPECT_EQ(flushed.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(flushed.qp_num, loop.target->qp_num);
}

class Arm : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(CompletionQueue, Arm, testing::Bool(),
                         [](const auto& param) { return param.param ? "extended" : "plain"; });

/// As many as tag matching begins with.
void post_receives(Loop& loop) {
    for (std::uint64_t i = 1; i <= 40; ++i)
        loop.post_receive(i);
}

TEST_P(Arm, of_an_empty_queue_gives_an_event_for_the_next_completion) {
    Loop loop(LoopOptions{.has_tags = GetParam(), .has_channel = true});
    post_receives(loop);
    ASSERT_EQ(loop.target_cq.arm(false), UCS_OK);
    EXPECT_FALSE(has_event(*loop.channel, 0));
    loop.send(1, 64);
    Loop::wait(loop.source_cq);
    ASSERT_TRUE(has_event(*loop.channel, 10'000));
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    ASSERT_EQ(loop.md->verbs().get_cq_event(loop.channel.get(), &cq, &context), 0);
    EXPECT_EQ(cq, loop.target_cq.get());
    loop.md->verbs().ack_cq_events(cq, 1);
    EXPECT_EQ(Loop::wait(loop.target_cq).wr_id, 1U);
}

TEST_P(Arm, of_a_queue_with_completions_is_busy_and_loses_none) {
    Loop loop(LoopOptions{.has_tags = GetParam(), .has_channel = true});
    post_receives(loop);
    loop.send(1, 64);
    loop.send(2, 64);
    Loop::wait(loop.source_cq, 2);  // acknowledged, so that they are complete at the target
    EXPECT_EQ(loop.target_cq.arm(false), UCS_ERR_BUSY);
    EXPECT_EQ(loop.target_cq.arm(false), UCS_ERR_BUSY) << "until they were polled";
    const std::vector<Completion> seen = Loop::wait(loop.target_cq, 2);
    EXPECT_EQ(seen[0].wr_id, 1U);
    EXPECT_EQ(seen[1].wr_id, 2U);
}

TEST(CompletionQueue, larger_than_the_device_has_is_refused) {
    const test::VhcaMd md;
    const auto limit = static_cast<unsigned>(md->device().attr().orig_attr.max_cqe);
    CompletionQueue queue;
    testing::internal::CaptureStderr();
    EXPECT_EQ(queue.open(*md, limit + 1, nullptr, false), UCS_ERR_EXCEEDS_LIMIT);
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr(std::to_string(limit)));
    EXPECT_EQ(queue.get(), nullptr);
}

TEST(CompletionQueue, has_the_entries_that_were_asked_for_at_least) {
    const test::VhcaMd md;
    CompletionQueue none, some;
    ASSERT_EQ(none.open(*md, 0, nullptr, false), UCS_OK);
    EXPECT_GE(none.entries(), 1U);
    ASSERT_EQ(some.open(*md, 100, nullptr, true), UCS_OK);
    EXPECT_GE(some.entries(), 100U);
}

}  // namespace
}  // namespace tagwire::ib
