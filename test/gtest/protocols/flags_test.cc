// SPDX-License-Identifier: BSD-3-Clause
// Flags of sends, and how the end of an operation is reported.
#include <algorithm>
#include <array>

#include "protocols/pair_test.hpp"

namespace tagwire::test {
namespace {

class MsgFlags : public PairTest {};

TEST_F(MsgFlags, an_injected_buffer_may_be_reused_at_once) {
    Node& a = node(0);
    Node& b = node(1);
    tw_ep_h ep = a.to(b);  // not connected: the messages wait
    tw_op_t how{};
    how.flags = TW_OP_INJECT;
    for (std::uint64_t i = 0; i < 20; ++i) {
        Bytes data = pattern(i * 200, i);
        ASSERT_GE(tw_tag_send(ep, data.data(), data.size(), i, &how, nullptr), TW_OK);
        std::ranges::fill(data, std::byte{0});
    }
    for (std::uint64_t i = 0; i < 20; ++i) {
        Bytes received(i * 200);
        EXPECT_EQ(receive(b, &received, i).status, TW_OK);
        EXPECT_EQ(received, pattern(i * 200, i));
    }
    EXPECT_TRUE(a.done.empty());
}

TEST_F(MsgFlags, an_injected_message_has_a_limit) {
    tw_worker_attr_t attr{};
    ASSERT_EQ(tw_worker_query(node(0).worker(), &attr), TW_OK);
    const Bytes data(attr.inject_bytes_max + 1);
    tw_op_t how{};
    how.flags = TW_OP_INJECT;
    EXPECT_EQ(tw_tag_send(node(0).to(node(1)), data.data(), data.size(), 1, &how, nullptr),
              TW_ERR_EXCEEDS_LIMIT);
}

// Also where a message of that length would fit a buffer of the lane.
TEST_F(MsgFlags, the_limit_of_injected_messages_holds_for_a_free_lane) {
    connect();
    Node& a = node(0);
    Node& b = node(1);
    tw_worker_attr_t attr{};
    ASSERT_EQ(tw_worker_query(a.worker(), &attr), TW_OK);
    const Bytes data = pattern(attr.inject_bytes_max + 1, 1);
    tw_op_t how{};
    how.flags = TW_OP_INJECT;
    EXPECT_EQ(tw_tag_send(a.to(b), data.data(), data.size(), 1, &how, nullptr),
              TW_ERR_EXCEEDS_LIMIT);
    EXPECT_EQ(tw_msg_send(a.to(b), data.data(), data.size(), &how, nullptr), TW_ERR_EXCEEDS_LIMIT);
    EXPECT_GE(tw_tag_send(a.to(b), data.data(), data.size() - 1, 2, &how, nullptr), TW_OK);
    Bytes received(data.size() - 1);
    EXPECT_EQ(receive(b, &received, 2).status, TW_OK);
    EXPECT_EQ(received, Bytes(data.begin(), data.end() - 1));
}

TEST_F(MsgFlags, match_complete_waits_for_the_match) {
    connect();
    Node& a = node(0);
    Node& b = node(1);
    for (const std::size_t length : kKinds) {
        const Bytes data = pattern(length, 1);
        int sent = 0;
        const tw_op_t how = op(&sent, TW_OP_MATCH_COMPLETE);
        ASSERT_EQ(tw_tag_send(a.to(b), data.data(), length, 3, &how, nullptr), TW_INPROGRESS);
        run_some();
        EXPECT_FALSE(has_ended(a, &sent)) << length;
        Bytes received(length);
        EXPECT_EQ(receive(b, &received, 3).status, TW_OK);
        EXPECT_EQ(end_of(a, &sent).status, TW_OK);
        EXPECT_EQ(received, data);
    }
}

TEST_F(MsgFlags, match_complete_ends_when_the_message_is_discarded) {
    connect();
    Node& a = node(0);
    Node& b = node(1);
    for (const std::size_t length : kKinds) {
        const Bytes data = pattern(length, 1);
        int sent = 0;
        const tw_op_t how = op(&sent, TW_OP_MATCH_COMPLETE);
        send_unexpected(a, b, data, 3, how);
        EXPECT_TRUE(take_and_drop(b.worker(), 3));
        EXPECT_EQ(end_of(a, &sent).status, TW_OK);
        EXPECT_EQ(probe(b.worker(), 3), TW_ERR_NO_MESSAGE);
    }
}

TEST_F(MsgFlags, delivery_and_transmit_complete_end_once) {
    connect();
    Node& a = node(0);
    Node& b = node(1);
    for (const std::uint32_t level : {TW_OP_DELIVERY_COMPLETE, TW_OP_TRANSMIT_COMPLETE}) {
        for (const std::size_t length : kKinds) {
            const Bytes data = pattern(length, 1);
            int sent = 0;
            const tw_op_t how = op(&sent, level);
            ASSERT_EQ(tw_tag_send(a.to(b), data.data(), length, 3, &how, nullptr), TW_INPROGRESS);
            run_some();
            EXPECT_TRUE(level == TW_OP_TRANSMIT_COMPLETE || !has_ended(a, &sent));
            Bytes received(length);
            EXPECT_EQ(receive(b, &received, 3).status, TW_OK);
            EXPECT_EQ(end_of(a, &sent).status, TW_OK);
            EXPECT_EQ(received, data);
        }
    }
    run_some();
    EXPECT_TRUE(a.done.empty());
}

TEST_F(MsgFlags, a_fenced_message_waits_for_those_before_it) {
    connect();
    Node& a = node(0);
    Node& b = node(1);
    const Bytes data = pattern(kRndv, 1);
    int first = 0, fenced = 0, after = 0;
    const tw_op_t how = op(&first), fence = op(&fenced, TW_OP_FENCE), last = op(&after);
    ASSERT_EQ(tw_tag_send(a.to(b), data.data(), kRndv, 1, &how, nullptr), TW_INPROGRESS);
    ASSERT_EQ(tw_tag_send(a.to(b), data.data(), kShort, 2, &fence, nullptr), TW_INPROGRESS);
    ASSERT_EQ(tw_tag_send(a.to(b), data.data(), kShort, 3, &last, nullptr), TW_INPROGRESS);
    const std::uint64_t before = b.counter("rx_unexpected");
    run_some();
    EXPECT_EQ(b.counter("rx_unexpected"), before + 1);
    EXPECT_FALSE(has_ended(a, &fenced) || has_ended(a, &after));
    Bytes received(kRndv);
    EXPECT_EQ(receive(b, &received, 1).status, TW_OK);
    Bytes rest(kShort);
    EXPECT_EQ(receive(b, &rest, 2).status, TW_OK);
    EXPECT_EQ(receive(b, &rest, 3).status, TW_OK);
    EXPECT_EQ(end_of(a, &first).status, TW_OK);
    EXPECT_EQ(end_of(a, &fenced).status, TW_OK);
    EXPECT_EQ(end_of(a, &after).status, TW_OK);
}

TEST_F(MsgFlags, what_nobody_asked_for_is_reported_only_if_it_fails) {
    connect();
    Node& a = node(0);
    Node& b = node(1);
    const Bytes data = pattern(kRndv, 1);
    Bytes received(kRndv);
    ASSERT_EQ(tw_tag_send(a.to(b), data.data(), kRndv, 5, nullptr, nullptr), TW_INPROGRESS);
    EXPECT_EQ(receive(b, &received, 5).status, TW_OK);
    run_some();
    EXPECT_TRUE(a.done.empty());
    ASSERT_EQ(tw_tag_send(a.to(b), data.data(), kRndv, 5, nullptr, nullptr), TW_INPROGRESS);
    run_some();
    EXPECT_EQ(tw_ep_close(a.to(b), TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
    a.progress();
    ASSERT_EQ(a.done.size(), 1U);
    EXPECT_EQ(a.done[0].status, TW_ERR_CANCELED);
    EXPECT_EQ(a.done[0].flags, unsigned{TW_DONE_SEND | TW_DONE_TAGGED});
}

TEST_F(MsgFlags, a_send_that_nobody_matched_is_cancelled_by_asking_the_peer) {
    connect();
    Node& a = node(0);
    Node& b = node(1);
    const Bytes data = pattern(kRndv, 1);
    int sent = 0;
    const tw_op_t how = op(&sent);
    tw_request_h request = nullptr;
    ASSERT_EQ(tw_tag_send(a.to(b), data.data(), kRndv, 3, &how, &request), TW_INPROGRESS);
    run_some();
    EXPECT_EQ(tw_request_cancel(request), TW_OK);
    EXPECT_EQ(end_of(a, &sent).status, TW_ERR_CANCELED);
    EXPECT_EQ(probe(b.worker(), 3), TW_ERR_NO_MESSAGE);
}

TEST_F(MsgFlags, a_send_that_was_matched_ends_well_although_it_was_cancelled) {
    connect();
    Node& a = node(0);
    Node& b = node(1);
    const Bytes data = pattern(kRndv, 1);
    Bytes received(kRndv);
    int sent = 0, got = 0;
    const tw_op_t how = op(&sent), receive_op = op(&got);
    ASSERT_EQ(tw_tag_recv(b.worker(), received.data(), kRndv, 3, 0, &receive_op, nullptr),
              TW_INPROGRESS);
    tw_request_h request = nullptr;
    ASSERT_EQ(tw_tag_send(a.to(b), data.data(), kRndv, 3, &how, &request), TW_INPROGRESS);
    EXPECT_EQ(tw_request_cancel(request), TW_OK);
    EXPECT_EQ(end_of(a, &sent).status, TW_OK);
    EXPECT_EQ(end_of(b, &got).status, TW_OK);
    EXPECT_EQ(received, data);
}

TEST_F(MsgFlags, a_callback_runs_inside_progress_once) {
    connect();
    Node& a = node(0);
    Node& b = node(1);
    int calls = 0;
    tw_op_t how{};
    how.context = &calls;
    how.complete = [](const tw_completion_t* done) { ++*static_cast<int*>(done->context); };
    Bytes buffer(10);
    ASSERT_EQ(tw_tag_recv(b.worker(), buffer.data(), 10, 5, 0, &how, nullptr), TW_INPROGRESS);
    send(a, b, pattern(10, 1), 5);
    run_until([&] { return calls == 1; });
    // An operation that ends within the call is reported only if asked for, and then in progress.
    send(a, b, pattern(10, 1), 5);
    run_some();
    ASSERT_EQ(tw_tag_recv(b.worker(), buffer.data(), 10, 5, 0, &how, nullptr), TW_OK);
    send(a, b, pattern(10, 1), 5);
    run_some();
    how.flags = TW_OP_COMPLETION;
    ASSERT_EQ(tw_tag_recv(b.worker(), buffer.data(), 10, 5, 0, &how, nullptr), TW_INPROGRESS);
    EXPECT_EQ(calls, 1);
    run_some();
    EXPECT_EQ(calls, 2);
}

TEST_F(MsgFlags, a_handle_is_tested_and_freed) {
    connect();
    Node& a = node(0);
    Node& b = node(1);
    Bytes buffer(10);
    tw_request_h request = nullptr;
    ASSERT_EQ(tw_tag_recv(b.worker(), buffer.data(), 10, 5, 0, nullptr, &request), TW_INPROGRESS);
    EXPECT_EQ(tw_request_test(request, nullptr), TW_INPROGRESS);
    send(a, b, pattern(10, 1), 5);
    tw_completion_t done{};
    run_until([&] { return tw_request_test(request, &done) != TW_INPROGRESS; });
    EXPECT_EQ(done.status, TW_OK);
    EXPECT_EQ(done.length, 10U);
    tw_request_free(request);
    EXPECT_TRUE(b.done.empty());
}

TEST_F(MsgFlags, memory_of_the_program_holds_a_request) {
    connect();
    Node& a = node(0);
    Node& b = node(1);
    alignas(64) std::array<std::byte, TW_REQUEST_BYTES + 32> memory{};
    void* const aligned = &memory[16];  // no more than it has to be
    Bytes buffer(10);
    int mark = 0;
    tw_op_t how = op(&mark);
    how.request = aligned;
    tw_request_h request = nullptr;
    ASSERT_EQ(tw_tag_recv(b.worker(), buffer.data(), 10, 5, 0, &how, &request), TW_INPROGRESS);
    EXPECT_EQ(static_cast<void*>(request), aligned);
    send(a, b, pattern(10, 1), 5);
    EXPECT_EQ(end_of(b, &mark).status, TW_OK);
    how.request = &memory[8];
    EXPECT_EQ(tw_tag_recv(b.worker(), buffer.data(), 10, 5, 0, &how, &request),
              TW_ERR_INVALID_PARAM);
    how.request = aligned;
    how.flags = 0;
    EXPECT_EQ(tw_tag_recv(b.worker(), buffer.data(), 10, 5, 0, &how, &request),
              TW_ERR_INVALID_PARAM);
}

TEST_F(MsgFlags, combinations_that_cannot_be_are_refused) {
    Node& a = node(0);
    Bytes buffer(10);
    const auto answer = [&](std::uint32_t flags) {
        tw_op_t how{};
        how.flags = flags;
        return tw_tag_recv(a.worker(), buffer.data(), 10, 5, 0, &how, nullptr);
    };
    for (const std::uint32_t flags :
         {std::uint32_t{TW_OP_INJECT}, std::uint32_t{TW_OP_FENCE}, std::uint32_t{TW_OP_IMM},
          std::uint32_t{TW_OP_URGENT}, 1U << 30, 1U << 31}) {
        EXPECT_EQ(answer(flags), TW_ERR_INVALID_PARAM) << flags;
    }
    tw_op_t how{};
    how.flags = 1U << 31;
    EXPECT_EQ(tw_tag_send(a.to(a), buffer.data(), 10, 5, &how, nullptr), TW_ERR_INVALID_PARAM);
    // Nobody would learn of the messages.
    EXPECT_EQ(tw_msg_recv_multi(a.worker(), buffer.data(), 10, nullptr, nullptr),
              TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_tag_recv_buffered(a.worker(), 5, 0, nullptr, nullptr), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_msg_recv_buffered(a.worker(), nullptr, nullptr), TW_ERR_INVALID_PARAM);
    tw_request_h request = nullptr;
    EXPECT_EQ(tw_msg_recv_buffered_multi(a.worker(), nullptr, &request), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_tag_send(nullptr, buffer.data(), 10, 5, nullptr, nullptr), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_tag_send(a.to(a), nullptr, 10, 5, nullptr, nullptr), TW_ERR_INVALID_PARAM);
    tw_iov_t list[TW_IOV_MAX + 1]{};
    EXPECT_EQ(tw_tag_sendv(a.to(a), list, TW_IOV_MAX + 1, 5, nullptr, nullptr),
              TW_ERR_INVALID_PARAM);
}

}  // namespace
}  // namespace tagwire::test
