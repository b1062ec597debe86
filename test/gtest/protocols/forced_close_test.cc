// SPDX-License-Identifier: BSD-3-Clause
// Endpoints that are closed by force.
#include <algorithm>
#include <functional>
#include <thread>

#include "protocols/fixture.hpp"

namespace tagwire::test {
namespace {

class MsgForcedClose : public MsgTest {
  protected:
    /// Both have an endpoint, and `b`, which does not speak any more, receives from `a`.
    void connect_and_receive(Node& a, Node& b) {
        send(a, b, {}, 9);
        expect_message(b, {}, 9);
        send(b, a, {}, 9);
        expect_message(a, {}, 9);
        tw_op_t receive = op(this);
        receive.source = b.to(a);
        ASSERT_EQ(tw_tag_recv(b.worker(), buffer_.data(), buffer_.size(), 1, 0, &receive, nullptr),
                  TW_INPROGRESS);
    }
    /// TW_INPROGRESS: the last message found no room in the lane, and waits behind it.
    tw_status_t fill_lane(Node& a, Node& b) {
        constexpr int kMost = 1 << 20;
        tw_status_t status = TW_OK;
        for (int i = 0; status == TW_OK && i < kMost; ++i)
            status = tw_tag_send(a.to(b), "x", 1, 7, nullptr, nullptr);
        return status;
    }
    void expect_reset(Node& b) {
        run_until([&] { return !b.done.empty() && !b.failures.empty(); });
        EXPECT_EQ(b.done.front().status, TW_ERR_CONNECTION_RESET);
    }

  private:
    Bytes buffer_ = Bytes(10);
};

TEST_F(MsgForcedClose, a_forced_close_ends_everything_at_once) {
    Node& a = node(0);
    Node& b = node(1);
    send(a, b, {}, 9);
    expect_message(b, {}, 9);
    const Bytes data = pattern(300000, 1);
    int sent = 0, matched = 0, flushed = 0, directed = 0, after = 0;
    const tw_op_t how = op(&sent), match = op(&matched, TW_OP_MATCH_COMPLETE),
                  flush_op = op(&flushed), last = op(&after, TW_OP_FENCE);
    tw_op_t receive = op(&directed);
    receive.source = a.to(b);
    Bytes buffer(10);
    ASSERT_EQ(tw_tag_recv(a.worker(), buffer.data(), 10, 1, 0, &receive, nullptr), TW_INPROGRESS);
    ASSERT_EQ(tw_tag_send(a.to(b), data.data(), data.size(), 1, &how, nullptr), TW_INPROGRESS);
    ASSERT_EQ(tw_tag_send(a.to(b), data.data(), 10, 1, &match, nullptr), TW_INPROGRESS);
    ASSERT_EQ(tw_ep_flush(a.to(b), TW_FLUSH_DELIVERED, &flush_op, nullptr), TW_INPROGRESS);
    ASSERT_EQ(tw_tag_send(a.to(b), data.data(), 10, 1, &last, nullptr), TW_INPROGRESS);
    run_some();
    EXPECT_EQ(tw_ep_close(a.to(b), TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
    a.progress();
    for (const void* mark : {&sent, &matched, &flushed, &directed, &after}) {
        const auto found = std::ranges::find_if(
            a.done, [&](const tw_completion_t& done) { return done.context == mark; });
        ASSERT_NE(found, a.done.end());
        EXPECT_EQ(found->status, TW_ERR_CANCELED) << found->flags;
    }
    EXPECT_EQ(a.done.size(), 5U);
    // The peer learns of it, and both go on with a new endpoint.
    const Bytes again = pattern(30, 2);
    send(a, b, again, 2);
    expect_message(b, again, 2);
}

TEST_F(MsgForcedClose, the_peer_of_a_forced_close_hears_of_it_without_speaking) {
    Node& a = node(0);
    Node& b = node(1);
    ASSERT_NO_FATAL_FAILURE(connect_and_receive(a, b));
    EXPECT_EQ(tw_ep_close(a.to(b), TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
    expect_reset(b);
}

TEST_F(MsgForcedClose, a_receive_that_finds_the_data_taken_back_says_nothing_of_addresses) {
    Node& a = node(0);
    Node& b = node(1);
    send(a, b, {}, 9);
    expect_message(b, {}, 9);
    const Bytes data = pattern(8 << 20, 1);
    int sent = 0, received = 0;
    const tw_op_t how = op(&sent), receive = op(&received);
    ASSERT_EQ(tw_tag_send(a.to(b), data.data(), data.size(), 1, &how, nullptr), TW_INPROGRESS);
    run_until([&] { return probe(b.worker(), 1) != TW_ERR_NO_MESSAGE; });
    EXPECT_EQ(tw_ep_close(a.to(b), TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
    Bytes buffer(data.size());
    const tw_status_t status =
        tw_tag_recv(b.worker(), buffer.data(), buffer.size(), 1, 0, &receive, nullptr);
    ASSERT_EQ(TW_INPROGRESS, status);
    const tw_status_t end = end_of(b, &received).status;
    EXPECT_TRUE(end == TW_ERR_CANCELED || end == TW_ERR_CONNECTION_RESET) << tw_status_string(end);
}

TEST_F(MsgForcedClose, the_peer_of_a_close_that_the_lane_had_no_room_for_hears_of_it) {
    Node& a = node(0);
    Node& b = node(1);
    ASSERT_NO_FATAL_FAILURE(connect_and_receive(a, b));
    ASSERT_EQ(fill_lane(a, b), TW_INPROGRESS);
    EXPECT_EQ(tw_ep_close(a.to(b), TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
    expect_reset(b);
    const Bytes again = pattern(30, 2);
    send(a, b, again, 2);
    expect_message(b, again, 2);
}

TEST_F(MsgForcedClose, the_peer_of_a_worker_that_goes_with_a_full_lane_hears_of_it) {
    Node& a = node(0);
    Node& b = node(1);
    ASSERT_NO_FATAL_FAILURE(connect_and_receive(a, b));
    ASSERT_EQ(fill_lane(a, b), TW_INPROGRESS);
    // It takes what is in the lane while the other one goes.
    std::thread taker([&b] {
        constexpr int kSteps = 20'000'000;
        for (int i = 0; i < kSteps && b.failures.empty(); ++i)
            b.progress();
    });
    a.destroy();
    taker.join();
    ASSERT_EQ(b.failures.size(), 1U);
    EXPECT_NE(b.failures[0].second, TW_ERR_ENDPOINT_TIMEOUT);
}

/// The last message of a lane is lost where its device has not brought it to the peer when the
/// queue goes. With TAGWIRE_VHCA_LOSS it takes the device some time to bring it there.
class MsgLastWords : public MsgForcedClose {
  protected:
    static constexpr std::size_t kRounds = 40;

    /// A new peer each time, which has heard of its end before another round begins.
    void expect_each(const std::function<void(Node& a, Node& b)>& end, tw_status_t status) {
        Node& b = node(0);
        for (std::size_t round = 1; round <= kRounds && !HasFailure(); ++round) {
            Node& a = node(round);
            send(a, b, {}, 9);
            expect_message(b, {}, 9);
            send(b, a, {}, 9);
            expect_message(a, {}, 9);
            b.failures.clear();
            end(a, b);
            run_until([&] { return !b.failures.empty(); });
            ASSERT_EQ(b.failures.size(), 1U);
            EXPECT_EQ(b.failures[0].second, status) << "round " << round;
        }
    }
};

TEST_F(MsgLastWords, of_a_worker_that_goes_are_heard) {
    expect_each([](Node& a, Node&) { a.destroy(); }, TW_ERR_NOT_CONNECTED);
}

TEST_F(MsgLastWords, of_a_forced_close_are_heard) {
    expect_each(
        [](Node& a, Node& b) {
            EXPECT_EQ(tw_ep_close(a.to(b), TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
        },
        TW_ERR_CONNECTION_RESET);
}

TEST_F(MsgLastWords, of_a_close_are_heard_and_so_is_all_before) {
    Node& b = node(0);
    for (std::size_t round = 1; round <= kRounds && !HasFailure(); ++round) {
        Node& a = node(round);
        const Bytes data = pattern(3000, round);
        int closed = 0;
        const tw_op_t how = op(&closed);
        constexpr int kMessages = 20;
        for (int i = 0; i < kMessages; ++i) {
            const tw_status_t sent =
                tw_tag_send(a.to(b), data.data(), data.size(), round, nullptr, nullptr);
            ASSERT_TRUE(sent == TW_OK || sent == TW_INPROGRESS) << tw_status_string(sent);
        }
        const tw_status_t status = tw_ep_close(a.to(b), TW_FLUSH_DELIVERED, &how, nullptr);
        ASSERT_TRUE(status == TW_OK || status == TW_INPROGRESS) << tw_status_string(status);
        if (status == TW_INPROGRESS) {
            EXPECT_EQ(end_of(a, &closed).status, TW_OK);
        }
        a.destroy();
        for (int i = 0; i < kMessages; ++i)
            expect_message(b, data, round);
        EXPECT_TRUE(b.failures.empty());
    }
}

}  // namespace
}  // namespace tagwire::test
