// SPDX-License-Identifier: BSD-3-Clause
// Closes in order: what they tell of what was sent.
#include <memory>

#include "protocols/fixture.hpp"

namespace tagwire::test {
namespace {

using MsgClose = MsgTest;

// Sends that have ended with success are lost; nothing but the close can tell.
TEST_F(MsgClose, a_close_that_could_not_flush_tells_why) {
    Node& a = node(0);
    Node& b = node(1);
    send(a, b, {}, 1);
    expect_message(b, {}, 1);
    send(b, a, {}, 1);
    expect_message(a, {}, 1);
    ASSERT_GE(tw_tag_send(a.to(b), "x", 1, 2, nullptr, nullptr), TW_OK);
    int closed = 0;
    const tw_op_t how = op(&closed);
    ASSERT_EQ(tw_ep_close(a.to(b), TW_FLUSH_DELIVERED, &how, nullptr), TW_INPROGRESS);
    b.destroy();
    EXPECT_LT(end_of(a, &closed).status, TW_OK);
    EXPECT_TRUE(a.failures.empty()) << "the program has no endpoint any more";
}

TEST_F(MsgClose, a_close_behind_a_failure_tells_it_if_something_was_sent) {
    for (const bool sends : {true, false}) {
        Node a(context_.get());
        auto b = std::make_unique<Node>(context_.get());
        const auto run = [&](const auto& is_over) {
            run_until([&] {
                a.progress();
                b->progress();
                return is_over();
            });
        };
        const tw_ep_h ep = a.to(*b);
        if (sends) {
            ASSERT_GE(tw_tag_send(ep, "x", 1, 1, nullptr, nullptr), TW_OK);
        }
        ASSERT_GE(tw_tag_send(b->to(a), "x", 1, 1, nullptr, nullptr), TW_OK);
        run([&] { return !a.events.empty() && !b->events.empty(); });
        b->destroy();
        run([&] { return !a.failures.empty(); });
        EXPECT_EQ(tw_ep_close(ep, TW_FLUSH_DELIVERED, nullptr, nullptr),
                  sends ? a.failures[0].second : TW_OK);
    }
}

// A request that the transport of one side still sends must not meet the end of the other one: the
// first would take it for dead after all retries.
TEST_F(MsgClose, closes_of_both_sides_leave_no_endpoint_and_no_warning) {
    Node& a = node(0);
    Node& b = node(1);
    const auto endpoints_of = [](const Node& node) {
        tw_worker_attr_t attr{};
        EXPECT_EQ(tw_worker_query(node.worker(), &attr), TW_OK);
        return attr.endpoints;
    };
    testing::internal::CaptureStderr();
    constexpr int kRounds = 20;
    for (int i = 0; i < kRounds && !HasFailure(); ++i) {
        send(a, b, {}, 1);
        expect_message(b, {}, 1);
        send(b, a, {}, 2);
        expect_message(a, {}, 2);
        for (Node* node : {&a, &b}) {
            int closed = 0;
            const tw_op_t how = op(&closed);
            const tw_ep_h ep = node == &a ? a.to(b) : b.to(a);
            ASSERT_EQ(tw_ep_close(ep, TW_FLUSH_DELIVERED, &how, nullptr), TW_INPROGRESS);
            EXPECT_EQ(end_of(*node, &closed).status, TW_OK);
        }
        run_until([&] { return endpoints_of(a) == 0 && endpoints_of(b) == 0; });
    }
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace tagwire::test
