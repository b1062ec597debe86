// SPDX-License-Identifier: BSD-3-Clause
// Callbacks that call in again and so end other operations: the callbacks of those follow, one at a
// time, in the order of the ends, in the same call of progress.
#include <vector>

#include "protocols/fixture.hpp"

namespace tagwire::test {
namespace {

class MsgNested : public MsgTest {
  protected:
    /// A callback does this beside being counted.
    using Act = std::function<void()>;
    struct Called {
        MsgNested* test;
        int number;
        Act act;
    };
    static void on_end(const tw_completion_t* done) {
        const Called& called = *static_cast<Called*>(done->context);
        MsgNested& test = *called.test;
        EXPECT_EQ(test.depth_, 0) << "inside another callback";
        ++test.depth_;
        test.order_.push_back(called.number);
        test.statuses_.push_back(done->status);
        if (called.act)
            called.act();
        --test.depth_;
    }
    tw_op_t told(Called& called) {
        tw_op_t how{};
        how.context = &called;
        how.complete = on_end;
        return how;
    }
    /// A receive at node 0 with a tag of its own number.
    tw_request_h post(Called& called) {
        const tw_op_t how = told(called);
        tw_request_h request = nullptr;
        EXPECT_EQ(tw_tag_recv(node(0).worker(), &bytes_[called.number], 1,
                              static_cast<std::uint64_t>(called.number), 0, &how, &request),
                  TW_INPROGRESS);
        return request;
    }
    void send_to_0(std::uint64_t tag) {
        EXPECT_GE(tw_tag_send(node(1).to(node(0)), "x", 1, tag, nullptr, nullptr), TW_OK);
    }

    int depth_ = 0;
    std::vector<int> order_;
    std::vector<tw_status_t> statuses_;
    char bytes_[16] = {};
};

TEST_F(MsgNested, receives_that_a_callback_cancels_end_behind_it) {
    std::vector<Called> rest;
    std::vector<tw_request_h> posted;
    for (int number = 1; number <= 3; ++number)
        rest.push_back({this, number, {}});
    for (Called& called : rest)
        posted.push_back(post(called));
    Called first{this, 0, [&] {
                     for (const tw_request_h request : posted)
                         EXPECT_EQ(tw_request_cancel(request), TW_OK);
                     EXPECT_EQ(order_.size(), 1U) << "in the call of a callback";
                 }};
    post(first);
    send_to_0(0);
    run_until([&] { return order_.size() == 4; });
    if (!offloads()) {
        EXPECT_EQ(order_, (std::vector{0, 1, 2, 3}));
    }
    EXPECT_EQ(statuses_, (std::vector{TW_OK, TW_ERR_CANCELED, TW_ERR_CANCELED, TW_ERR_CANCELED}));
}

// Three sends wait for a receive, and the first callback closes their endpoint.
TEST_F(MsgNested, operations_of_an_endpoint_that_a_callback_closes_end_behind_it) {
    send(node(0), node(1), Bytes(1), 9);
    expect_message(node(1), Bytes(1), 9);
    const tw_ep_h ep = node(0).to(node(1));
    std::vector<Called> rest;
    for (int number = 1; number <= 3; ++number)
        rest.push_back({this, number, {}});
    const Bytes data(1);
    for (Called& called : rest) {
        tw_op_t how = told(called);
        how.flags = TW_OP_MATCH_COMPLETE;
        ASSERT_EQ(tw_tag_send(ep, data.data(), data.size(), 8, &how, nullptr), TW_INPROGRESS);
    }
    Called first{this, 0, [&] {
                     EXPECT_EQ(tw_ep_close(ep, TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
                     EXPECT_EQ(order_.size(), 1U) << "in the call of a callback";
                     EXPECT_EQ(tw_ep_user_data(ep), &node(1)) << "until its ends are told";
                 }};
    post(first);
    send_to_0(0);
    run_until([&] { return order_.size() == 4; });
    EXPECT_EQ(order_, (std::vector{0, 1, 2, 3}));
    EXPECT_EQ(statuses_, (std::vector{TW_OK, TW_ERR_CANCELED, TW_ERR_CANCELED, TW_ERR_CANCELED}));
}

// A receive that ends in the same call of progress as what a callback has ended before it.
TEST_F(MsgNested, ends_are_told_in_their_order) {
    std::vector<Called> rest;
    for (int number = 1; number <= 2; ++number)
        rest.push_back({this, number, {}});
    const tw_request_h canceled = post(rest[0]);
    post(rest[1]);
    Called first{this, 0, [&] { EXPECT_EQ(tw_request_cancel(canceled), TW_OK); }};
    post(first);
    send_to_0(0);
    send_to_0(2);
    run_until([&] { return order_.size() == 3; });
    if (!offloads()) {
        EXPECT_EQ(order_, (std::vector{0, 1, 2}));
    }
}

// Each callback starts an operation that ends in the call, and is told by a callback.
TEST_F(MsgNested, a_callback_that_starts_the_next_operation_is_followed_by_its_end) {
    constexpr int kTimes = 5000;
    send(node(0), node(1), Bytes(1), 9);
    expect_message(node(1), Bytes(1), 9);
    const tw_ep_h ep = node(0).to(node(1));
    int begun = 0;
    Called next{this, 1, {}};
    next.act = [&] {
        if (begun == kTimes)
            return;
        tw_op_t how = told(next);
        how.flags = TW_OP_COMPLETION;
        const tw_status_t status = tw_tag_send(ep, "y", 1, 8, &how, nullptr);
        EXPECT_EQ(status, TW_INPROGRESS);
        ++begun;
    };
    next.act();
    std::vector<char> to(kTimes);
    for (char& byte : to)
        ASSERT_GE(tw_tag_recv(node(1).worker(), &byte, 1, 8, 0, nullptr, nullptr), TW_OK);
    run_until([&] { return order_.size() == kTimes; });
    EXPECT_EQ(begun, kTimes);
}

}  // namespace
}  // namespace tagwire::test
