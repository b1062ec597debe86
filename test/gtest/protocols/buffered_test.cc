// SPDX-License-Identifier: BSD-3-Clause
// Buffered receives: the library has the data, the program takes or drops it.
#include <algorithm>

#include "protocols/fixture.hpp"

namespace tagwire::test {
namespace {

constexpr std::size_t kLimit = 20000;
constexpr std::size_t kMin = 3000;
constexpr std::size_t kBufferedLengths[] = {0,          8,     500,   9000,  kLimit,
                                            kLimit + 1, 39999, 40000, 300000};

class MsgBuffered : private Settings, public MsgTest {
  protected:
    MsgBuffered() : Settings({{"TAGWIRE_RNDV_THRESHOLD", "40000"}}) {}

    /// A node whose worker has the limits of these cases.
    Node& node(std::size_t i) {
        Node& made = MsgTest::node(i);
        tw_worker_limits_t limits{};
        limits.buffered_bytes_limit = kLimit;
        limits.buffered_bytes_min = kMin;
        EXPECT_EQ(tw_worker_set_limits(made.worker(), &limits), TW_OK);
        return made;
    }
    void post(Node& at, int* mark, std::uint64_t tag, tw_ep_h source = nullptr) {
        tw_op_t how = op(mark);
        how.source = source;
        ASSERT_EQ(tw_tag_recv_buffered(at.worker(), tag, 0, &how, nullptr), TW_INPROGRESS);
    }
    /// Checks the report of a buffered receive of `data`.
    static void expect_start(const tw_completion_t& done, const Bytes& data) {
        ASSERT_EQ(done.status, TW_OK);
        EXPECT_NE(done.flags & TW_DONE_BUFFERED, 0U);
        EXPECT_EQ(done.message_length, data.size());
        ASSERT_NE(done.message, nullptr);
        ASSERT_LE(done.length, data.size());
        EXPECT_EQ((done.flags & TW_DONE_MORE) != 0, done.length < data.size());
        EXPECT_GE(done.length, data.size() <= kLimit ? data.size() : kMin);
        const auto* at = static_cast<const std::byte*>(done.buffer);
        EXPECT_TRUE(std::equal(at, at + done.length, data.begin()));
    }
    /// Receives a message that a buffered receive has named.
    void claim(Node& at, tw_message_h message, const Bytes& data) {
        Bytes received(data.size() + 1, std::byte{0xee});
        int mark = 0;
        const tw_op_t how = op(&mark);
        ASSERT_EQ(
            tw_message_recv(at.worker(), message, received.data(), data.size(), &how, nullptr),
            TW_INPROGRESS);
        const tw_completion_t done = end_of(at, &mark);
        EXPECT_EQ(done.status, TW_OK);
        EXPECT_EQ(done.length, data.size());
        EXPECT_EQ(done.flags & TW_DONE_BUFFERED, 0U);
        EXPECT_EQ(received.back(), std::byte{0xee});
        received.pop_back();
        EXPECT_EQ(received, data);
    }
    void discard(Node& at, tw_message_h message) {
        EXPECT_EQ(tw_message_drop(at.worker(), message), TW_OK);
    }
};

TEST_F(MsgBuffered, a_message_is_shown_and_can_be_claimed) {
    Node& a = node(0);
    Node& b = node(1);
    for (const std::size_t length : kBufferedLengths) {
        const Bytes data = pattern(length, length);
        int sent = 0, shown = 0;
        const tw_op_t how = op(&sent, TW_OP_DELIVERY_COMPLETE);
        post(b, &shown, 5);
        ASSERT_EQ(tw_tag_send(a.to(b), data.data(), length, 5, &how, nullptr), TW_INPROGRESS);
        const tw_completion_t done = end_of(b, &shown);
        expect_start(done, data);
        EXPECT_EQ(done.tag, 5U);
        EXPECT_EQ(done.source, a.id());
        claim(b, done.message, data);
        EXPECT_EQ(end_of(a, &sent).status, TW_OK) << length;
    }
}

TEST_F(MsgBuffered, one_that_is_tested_tells_its_message_though_that_was_there) {
    Node& a = node(0);
    Node& b = node(1);
    for (const std::size_t length : kBufferedLengths) {
        const Bytes data = pattern(length, length);
        int sent = 0;
        const tw_op_t how = op(&sent);
        send_unexpected(a, b, data, 6, how);
        tw_request_h request = nullptr;
        ASSERT_EQ(tw_tag_recv_buffered(b.worker(), 6, 0, nullptr, &request), TW_INPROGRESS);
        tw_completion_t done{};
        run_until([&] { return tw_request_test(request, &done) != TW_INPROGRESS; });
        expect_start(done, data);
        tw_request_free(request);
        claim(b, done.message, data);
        EXPECT_EQ(end_of(a, &sent).status, TW_OK) << length;
    }
}

TEST_F(MsgBuffered, a_message_that_waited_is_shown_and_can_be_discarded) {
    Node& a = node(0);
    Node& b = node(1);
    for (const std::size_t length : kBufferedLengths) {
        const Bytes data = pattern(length, length);
        int sent = 0, shown = 0;
        const tw_op_t how = op(&sent, TW_OP_MATCH_COMPLETE);
        send_unexpected(a, b, data, 6, how);
        post(b, &shown, 6);
        const tw_completion_t done = end_of(b, &shown);
        expect_start(done, data);
        discard(b, done.message);
        EXPECT_EQ(end_of(a, &sent).status, TW_OK) << length;
    }
}

TEST_F(MsgBuffered, messages_without_tags_are_shown_one_by_one_until_the_receive_is_cancelled) {
    Node& a = node(0);
    Node& b = node(1);
    int many = 0;
    const tw_op_t how = op(&many);
    tw_request_h request = nullptr;
    ASSERT_EQ(tw_msg_recv_buffered_multi(b.worker(), &how, &request), TW_INPROGRESS);
    for (const std::size_t length : kBufferedLengths) {
        const Bytes data = pattern(length, length);
        int sent = 0;
        const tw_op_t transmit = op(&sent);
        ASSERT_EQ(tw_msg_send(a.to(b), data.data(), length, &transmit, nullptr), TW_INPROGRESS);
        const tw_completion_t done = end_of(b, &many);
        expect_start(done, data);
        EXPECT_EQ(done.flags & TW_DONE_MULTI_RECV, 0U);
        claim(b, done.message, data);
        EXPECT_EQ(end_of(a, &sent).status, TW_OK);
    }
    ASSERT_EQ(tw_request_cancel(request), TW_OK);
    const tw_completion_t last = end_of(b, &many);
    EXPECT_EQ(last.status, TW_ERR_CANCELED);
    EXPECT_NE(last.flags & TW_DONE_MULTI_RECV, 0U);
}

TEST_F(MsgBuffered, messages_keep_their_order_before_and_behind_one) {
    Node& a = node(0);
    Node& b = node(1);
    const Bytes first = pattern(300000, 1), second = pattern(10, 2), third = pattern(300000, 3);
    int shown[3] = {};
    for (int& mark : shown)
        post(b, &mark, 7);
    for (const Bytes* data : {&first, &second, &third})
        ASSERT_GE(tw_tag_send(a.to(b), data->data(), data->size(), 7, nullptr, nullptr), TW_OK);
    const tw_completion_t ends[] = {end_of(b, &shown[0]), end_of(b, &shown[1]),
                                    end_of(b, &shown[2])};
    expect_start(ends[0], first);
    expect_start(ends[1], second);
    expect_start(ends[2], third);
    claim(b, ends[2].message, third);
    claim(b, ends[0].message, first);
    claim(b, ends[1].message, second);
}

TEST_F(MsgBuffered, what_its_sender_takes_along_ends_with_an_error) {
    Node& a = node(0);
    Node& b = node(1);
    const Bytes data = pattern(300000, 1);
    int shown = 0, waiting = 0, sent = 0;
    const tw_op_t how = op(&sent);
    post(b, &shown, 8, b.to(a));
    ASSERT_EQ(tw_tag_send(a.to(b), data.data(), data.size(), 8, &how, nullptr), TW_INPROGRESS);
    const tw_completion_t done = end_of(b, &shown);
    expect_start(done, data);
    post(b, &waiting, 9, b.to(a));
    ASSERT_EQ(tw_ep_close(b.to(a), TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
    EXPECT_EQ(end_of(b, &waiting).status, TW_ERR_CANCELED);
    Bytes received(data.size());
    EXPECT_EQ(tw_message_recv(b.worker(), done.message, received.data(), received.size(), nullptr,
                              nullptr),
              TW_ERR_CONNECTION_RESET);
}

// The data of a rendezvous is being fetched, or is there already where that takes no time.
TEST_F(MsgBuffered, a_forced_close_ends_a_receive_whose_data_is_on_its_way) {
    Node& a = node(0);
    Node& b = node(1);
    const Bytes data = pattern(300000, 1);
    send(a, b, Bytes(1), 1);  // they are connected
    int shown = 0, sent = 0;
    const tw_op_t how = op(&sent);
    post(b, &shown, 8);
    ASSERT_EQ(tw_tag_send(a.to(b), data.data(), data.size(), 8, &how, nullptr), TW_INPROGRESS);
    run_until([&] { return b.counter("rx_rndv") > 0; });
    ASSERT_EQ(tw_ep_close(b.to(a), TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
    const tw_completion_t done = end_of(b, &shown);
    if (done.status == TW_OK) {
        expect_start(done, data);
        discard(b, done.message);
    } else {
        EXPECT_EQ(done.status, TW_ERR_CANCELED);
        EXPECT_EQ(done.message, nullptr);
    }
}

// Its requests for data wait in a lane that is full, and end before the messages do.
TEST_F(MsgBuffered, a_worker_goes_whose_receives_wait_for_their_data) {
    constexpr std::size_t kReceives = 5, kSends = 2000, kCalls = 1000;
    Node& a = node(0);
    Node& b = node(1);
    send(a, b, Bytes(1), 1);  // they are connected
    send(b, a, Bytes(1), 1);
    const Bytes data = pattern(300000, 1);
    int sent = 0, shown = 0;
    const tw_op_t how = op(&sent);
    for (std::size_t i = 0; i < kReceives; ++i) {
        post(b, &shown, 8);
        ASSERT_EQ(tw_tag_send(a.to(b), data.data(), data.size(), 8, &how, nullptr), TW_INPROGRESS);
    }
    for (std::size_t i = 0; i < kCalls; ++i)
        a.progress();
    for (std::size_t i = 0; i < kSends; ++i)
        ASSERT_GE(tw_tag_send(b.to(a), data.data(), 5000, 2, nullptr, nullptr), TW_OK);
    for (std::size_t i = 0; i < kCalls; ++i)
        b.progress();
    b.destroy();
    for (std::size_t i = 0; i < kReceives; ++i)
        end_of(a, &sent);
}

TEST_F(MsgBuffered, what_cannot_be_is_refused) {
    Node& b = node(1);
    int mark = 0;
    const tw_op_t wrong_flag = op(&mark, TW_OP_INJECT);
    EXPECT_EQ(tw_tag_recv_buffered(b.worker(), 0, 0, &wrong_flag, nullptr), TW_ERR_INVALID_PARAM);
    const tw_op_t how = op(&mark);
    EXPECT_EQ(tw_tag_recv_buffered(nullptr, 0, 0, &how, nullptr), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_message_drop(b.worker(), nullptr), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_message_recv(b.worker(), nullptr, nullptr, 0, &how, nullptr),
              TW_ERR_INVALID_PARAM);
    tw_worker_attr_t attr{};
    ASSERT_EQ(tw_worker_query(b.worker(), &attr), TW_OK);
    EXPECT_EQ(attr.buffered_bytes_limit, kLimit);
    EXPECT_EQ(attr.buffered_bytes_min, kMin);
    tw_worker_limits_t wrong{};
    wrong.buffered_bytes_min = kLimit + 1;
    EXPECT_EQ(tw_worker_set_limits(b.worker(), &wrong), TW_ERR_EXCEEDS_LIMIT);
}

}  // namespace
}  // namespace tagwire::test
