// SPDX-License-Identifier: BSD-3-Clause
// Flushes and closes at both levels, flushes of a worker, sends at TW_OP_SENT_COMPLETE.
#include <poll.h>

#include <algorithm>

#include "protocols/fixture.hpp"

namespace tagwire::test {
namespace {

class MsgFlush : public MsgTest {
  protected:
    /// a and b have their connection, and nothing is under way.
    void connect(Node& a, Node& b) {
        send(a, b, {}, 9);
        expect_message(b, {}, 9);
        send(b, a, {}, 9);
        expect_message(a, {}, 9);
        flush(a, b, TW_FLUSH_DELIVERED);
        flush(b, a, TW_FLUSH_DELIVERED);
    }
    void flush(Node& a, Node& b, tw_flush_level_t level) {
        int mark = 0;
        const tw_op_t how = op(&mark);
        ASSERT_EQ(tw_ep_flush(a.to(b), level, &how, nullptr), TW_INPROGRESS);
        EXPECT_EQ(end_of(a, &mark).status, TW_OK);
    }
    /// Over ud the peer acknowledges in its progress; a device in its own time.
    static bool needs_peer() { return lane_transport() == "ud"; }
    /// Progress of `self` alone, and of the peer where the transport cannot do without, until the
    /// operation ends.
    tw_completion_t alone_until_end(Node& self, Node& peer, const void* context) {
        const auto find = [&] {
            return std::ranges::find_if(
                self.done, [&](const tw_completion_t& done) { return done.context == context; });
        };
        run_nodes_until(self, needs_peer() ? &peer : nullptr,
                        [&] { return find() != self.done.end(); });
        const auto found = find();
        tw_completion_t done{};
        done.status = TW_ERR_TIMED_OUT;
        if (found == self.done.end())
            return done;
        done = *found;
        self.done.erase(found);
        return done;
    }
    static void run_nodes_until(Node& self, Node* peer, const std::function<bool()>& is_over) {
        constexpr int kRoundsMax = 20'000'000;
        for (int i = 0; !is_over() && i < kRoundsMax; ++i) {
            self.progress();
            if (peer != nullptr)
                peer->progress();
        }
    }
    static bool has_ended(const Node& node, const void* context) {
        return std::ranges::any_of(
            node.done, [&](const tw_completion_t& done) { return done.context == context; });
    }
    static void run_alone(Node& self, int rounds = 20'000) {
        for (int i = 0; i < rounds; ++i)
            self.progress();
    }
};

TEST_F(MsgFlush, at_level_sent_is_complete_at_once_where_nothing_is_under_way) {
    Node& a = node(0);
    Node& b = node(1);
    connect(a, b);
    run_some();
    flush(a, b, TW_FLUSH_SENT);  // a device has not acknowledged the replies to that yet
    EXPECT_EQ(tw_ep_flush(a.to(b), TW_FLUSH_SENT, nullptr, nullptr), TW_OK);
    EXPECT_EQ(tw_worker_flush(a.worker(), TW_FLUSH_SENT, nullptr, nullptr), TW_OK);
    const tw_op_t how{};
    EXPECT_EQ(tw_ep_flush(a.to(b), TW_FLUSH_SENT, &how, nullptr), TW_OK);
}

TEST_F(MsgFlush, at_level_sent_is_complete_while_connecting_if_nothing_was_sent) {
    Node& a = node(0);
    Node& b = node(1);
    EXPECT_EQ(tw_ep_flush(a.to(b), TW_FLUSH_SENT, nullptr, nullptr), TW_OK);
    EXPECT_EQ(tw_worker_flush(a.worker(), TW_FLUSH_SENT, nullptr, nullptr), TW_OK);
    EXPECT_EQ(tw_ep_close(a.to(b), TW_FLUSH_SENT, nullptr, nullptr), TW_OK);
    EXPECT_EQ(tw_ep_find(a.worker(), b.id()), nullptr);
}

TEST_F(MsgFlush, at_level_sent_waits_for_no_progress_of_the_peer) {
    Node& a = node(0);
    Node& b = node(1);
    connect(a, b);
    for (const std::uint32_t level :
         {0U, std::uint32_t{TW_OP_MATCH_COMPLETE}, std::uint32_t{TW_OP_SENT_COMPLETE}}) {
        int sent = 0, flushed = 0, all = 0;
        const Bytes data = pattern(700, level);
        const tw_op_t send_op = op(&sent, level), flush_op = op(&flushed), all_op = op(&all);
        ASSERT_GE(tw_tag_send(a.to(b), data.data(), data.size(), 1, &send_op, nullptr), TW_OK);
        ASSERT_EQ(tw_ep_flush(a.to(b), TW_FLUSH_SENT, &flush_op, nullptr), TW_INPROGRESS);
        ASSERT_EQ(tw_worker_flush(a.worker(), TW_FLUSH_SENT, &all_op, nullptr), TW_INPROGRESS);
        EXPECT_EQ(alone_until_end(a, b, &flushed).status, TW_OK);
        EXPECT_EQ(alone_until_end(a, b, &all).status, TW_OK);
        if (level == TW_OP_MATCH_COMPLETE) {
            EXPECT_FALSE(has_ended(a, &sent));
        } else {
            EXPECT_EQ(alone_until_end(a, b, &sent).status, TW_OK);
        }
        expect_message(b, data, 1);
        if (level == TW_OP_MATCH_COMPLETE) {
            EXPECT_EQ(end_of(a, &sent).status, TW_OK);
        }
    }
}

TEST_F(MsgFlush, at_level_sent_waits_for_messages_that_wait_for_the_connection) {
    Node& a = node(0);
    Node& b = node(1);
    const Bytes data = pattern(100, 1);
    int flushed = 0, all = 0;
    const tw_op_t how = op(&flushed), all_op = op(&all);
    ASSERT_GE(tw_tag_send(a.to(b), data.data(), data.size(), 1, nullptr, nullptr), TW_OK);
    ASSERT_EQ(tw_ep_flush(a.to(b), TW_FLUSH_SENT, &how, nullptr), TW_INPROGRESS);
    ASSERT_EQ(tw_worker_flush(a.worker(), TW_FLUSH_SENT, &all_op, nullptr), TW_INPROGRESS);
    run_alone(a);
    EXPECT_FALSE(has_ended(a, &flushed));
    EXPECT_FALSE(has_ended(a, &all));
    EXPECT_EQ(end_of(a, &flushed).status, TW_OK);
    EXPECT_EQ(end_of(a, &all).status, TW_OK);
    a.destroy();
    expect_message(b, data, 1);
}

TEST_F(MsgFlush, at_level_sent_waits_for_a_rendezvous) {
    Node& a = node(0);
    Node& b = node(1);
    connect(a, b);
    const Bytes data = pattern(300000, 1);
    int sent = 0, flushed = 0;
    const tw_op_t how = op(&sent), flush_op = op(&flushed);
    ASSERT_EQ(tw_tag_send(a.to(b), data.data(), data.size(), 1, &how, nullptr), TW_INPROGRESS);
    ASSERT_EQ(tw_ep_flush(a.to(b), TW_FLUSH_SENT, &flush_op, nullptr), TW_INPROGRESS);
    run_some();
    EXPECT_FALSE(has_ended(a, &flushed));
    expect_message(b, data, 1);
    EXPECT_EQ(end_of(a, &flushed).status, TW_OK);
    EXPECT_EQ(end_of(a, &sent).status, TW_OK);
}

TEST_F(MsgFlush, a_close_at_level_sent_waits_for_no_progress_of_the_peer) {
    Node& a = node(0);
    Node& b = node(1);
    connect(a, b);
    const Bytes data = pattern(700, 1);
    int closed = 0;
    const tw_op_t how = op(&closed);
    ASSERT_GE(tw_tag_send(a.to(b), data.data(), data.size(), 1, nullptr, nullptr), TW_OK);
    ASSERT_EQ(tw_ep_close(a.to(b), TW_FLUSH_SENT, &how, nullptr), TW_INPROGRESS);
    EXPECT_EQ(alone_until_end(a, b, &closed).status, TW_OK);
    EXPECT_EQ(tw_ep_find(a.worker(), b.id()), nullptr);
    expect_message(b, data, 1);
    const Node::PeerEvent left{a.id(), TW_PEER_LEFT, TW_OK};
    run_until([&] { return std::ranges::count(b.events, left) == 1; });
    // The peer still reaches it, and it comes back.
    send(b, a, data, 2);
    expect_message(a, data, 2);
    send(a, b, data, 3);
    expect_message(b, data, 3);
    EXPECT_TRUE(a.failures.empty() && b.failures.empty());
}

TEST_F(MsgFlush, what_was_sent_arrives_when_the_worker_goes_behind_a_close_at_level_sent) {
    Node& a = node(0);
    Node& b = node(1);
    connect(a, b);
    std::vector<Bytes> data;
    for (std::size_t i = 0; i < 20; ++i) {
        data.push_back(pattern(i * 200, i));
        ASSERT_GE(tw_tag_send(a.to(b), data[i].data(), data[i].size(), i, nullptr, nullptr), TW_OK);
    }
    int closed = 0;
    const tw_op_t how = op(&closed);
    ASSERT_EQ(tw_ep_close(a.to(b), TW_FLUSH_SENT, &how, nullptr), TW_INPROGRESS);
    EXPECT_EQ(alone_until_end(a, b, &closed).status, TW_OK);
    const std::uint64_t gone = a.id();
    a.destroy();
    for (std::size_t i = 0; i < data.size(); ++i)
        expect_message(b, data[i], i);
    run_nodes_until(b, nullptr, [&] { return !b.failures.empty(); });
    ASSERT_EQ(b.failures.size(), 1U);
    EXPECT_EQ(b.failures[0].second, TW_ERR_NOT_CONNECTED);
    EXPECT_EQ(std::ranges::count(b.events, Node::PeerEvent{gone, TW_PEER_LEFT, TW_OK}), 1);
}

TEST_F(MsgFlush, a_send_at_level_sent_does_not_complete_while_its_message_waits_here) {
    Node& a = node(0);
    Node& b = node(1);
    const Bytes data = pattern(100, 1);
    int sent = 0, injected = 0;
    const tw_op_t how = op(&sent, TW_OP_SENT_COMPLETE),
                  inject = op(&injected, TW_OP_SENT_COMPLETE | TW_OP_INJECT);
    ASSERT_EQ(tw_tag_send(a.to(b), data.data(), data.size(), 1, &how, nullptr), TW_INPROGRESS);
    ASSERT_EQ(tw_tag_send(a.to(b), data.data(), 8, 2, &inject, nullptr), TW_INPROGRESS);
    run_alone(a);
    EXPECT_TRUE(a.done.empty());
    EXPECT_EQ(end_of(a, &sent).status, TW_OK);
    EXPECT_EQ(end_of(a, &injected).status, TW_OK);
    a.destroy();
    expect_message(b, data, 1);
}

TEST_F(MsgFlush, of_a_worker_is_complete_when_those_of_all_endpoints_are) {
    Node& a = node(0);
    std::vector<Node*> peers{&node(1), &node(2), &node(3)};
    const Bytes data = pattern(300000, 1);
    std::vector<int> marks(peers.size());
    for (Node* peer : peers)
        connect(a, *peer);
    for (const tw_flush_level_t level : {TW_FLUSH_DELIVERED, TW_FLUSH_SENT}) {
        for (std::size_t i = 0; i < peers.size(); ++i) {
            const tw_op_t how = op(&marks[i]);
            ASSERT_EQ(tw_tag_send(a.to(*peers[i]), data.data(), data.size(), 1, &how, nullptr),
                      TW_INPROGRESS);
        }
        tw_request_h flushing = nullptr;
        ASSERT_EQ(tw_worker_flush(a.worker(), level, nullptr, &flushing), TW_INPROGRESS);
        for (Node* peer : peers) {
            run_some();
            EXPECT_EQ(tw_request_test(flushing, nullptr), TW_INPROGRESS);
            expect_message(*peer, data, 1);
        }
        tw_completion_t done{};
        run_until([&] { return tw_request_test(flushing, &done) != TW_INPROGRESS; });
        EXPECT_EQ(done.status, TW_OK);
        EXPECT_EQ(done.ep, nullptr);
        EXPECT_EQ(done.flags, std::uint32_t{TW_DONE_FLUSH});
        tw_request_free(flushing);
        for (int& mark : marks)
            EXPECT_EQ(end_of(a, &mark).status, TW_OK);
    }
}

TEST_F(MsgFlush, of_a_worker_tells_of_an_endpoint_that_fails_and_flushes_the_others) {
    Node& a = node(0);
    Node& b = node(1);
    Node& c = node(2);
    connect(a, b);
    connect(a, c);
    const Bytes data = pattern(300000, 1);
    int to_b = 0, to_c = 0, flushed = 0;
    const tw_op_t op_b = op(&to_b), op_c = op(&to_c), how = op(&flushed);
    ASSERT_EQ(tw_tag_send(a.to(b), data.data(), data.size(), 1, &op_b, nullptr), TW_INPROGRESS);
    ASSERT_EQ(tw_tag_send(a.to(c), data.data(), data.size(), 1, &op_c, nullptr), TW_INPROGRESS);
    ASSERT_EQ(tw_worker_flush(a.worker(), TW_FLUSH_SENT, &how, nullptr), TW_INPROGRESS);
    b.destroy();
    EXPECT_LT(end_of(a, &to_b).status, TW_OK);
    run_some();
    EXPECT_FALSE(has_ended(a, &flushed));
    expect_message(c, data, 1);
    EXPECT_EQ(end_of(a, &to_c).status, TW_OK);
    ASSERT_EQ(a.failures.size(), 1U);
    EXPECT_EQ(end_of(a, &flushed).status, a.failures[0].second);
    // The program has heard of it: a failed endpoint is passed over.
    EXPECT_EQ(tw_worker_flush(a.worker(), TW_FLUSH_SENT, nullptr, nullptr), TW_OK);
}

// Nothing else happens on the endpoint that would look at what waits.
TEST_F(MsgFlush, a_fenced_message_goes_on_when_the_flush_before_it_has_ended) {
    Node& a = node(0);
    Node& b = node(1);
    connect(a, b);
    for (int round = 0; round < 20; ++round) {
        const Bytes data = pattern(20, 1);
        int sent = 0, flushed = 0, fenced = 0;
        const tw_op_t first = op(&sent), flush = op(&flushed), last = op(&fenced, TW_OP_FENCE);
        ASSERT_EQ(tw_tag_send(a.to(b), data.data(), data.size(), 1, &first, nullptr),
                  TW_INPROGRESS);
        ASSERT_EQ(tw_ep_flush(a.to(b), TW_FLUSH_SENT, &flush, nullptr), TW_INPROGRESS);
        ASSERT_EQ(tw_tag_send(a.to(b), data.data(), data.size(), 2, &last, nullptr), TW_INPROGRESS);
        EXPECT_EQ(end_of(a, &fenced).status, TW_OK);
        EXPECT_EQ(end_of(a, &flushed).status, TW_OK);
        EXPECT_EQ(end_of(a, &sent).status, TW_OK);
        expect_message(b, data, 1);
        expect_message(b, data, 2);
    }
}

TEST_F(MsgFlush, takes_a_fence_which_has_no_effect) {
    Node& a = node(0);
    Node& b = node(1);
    connect(a, b);
    int flushed = 0, all = 0, closed = 0;
    const tw_op_t how = op(&flushed, TW_OP_FENCE), all_op = op(&all, TW_OP_FENCE),
                  closing = op(&closed, TW_OP_FENCE);
    ASSERT_EQ(tw_ep_flush(a.to(b), TW_FLUSH_DELIVERED, &how, nullptr), TW_INPROGRESS);
    EXPECT_EQ(end_of(a, &flushed).status, TW_OK);
    ASSERT_EQ(tw_worker_flush(a.worker(), TW_FLUSH_SENT, &all_op, nullptr), TW_INPROGRESS);
    EXPECT_EQ(end_of(a, &all).status, TW_OK);
    ASSERT_EQ(tw_ep_close(a.to(b), TW_FLUSH_SENT, &closing, nullptr), TW_INPROGRESS);
    EXPECT_EQ(end_of(a, &closed).status, TW_OK);
}

TEST_F(MsgFlush, levels_that_are_none_are_refused) {
    Node& a = node(0);
    const tw_ep_h ep = a.to(node(1));
    tw_op_t wrong{};
    wrong.flags = TW_OP_INJECT;
    for (const tw_flush_level_t level : {TW_CLOSE_FORCE, static_cast<tw_flush_level_t>(3)}) {
        EXPECT_EQ(tw_ep_flush(ep, level, nullptr, nullptr), TW_ERR_INVALID_PARAM);
        EXPECT_EQ(tw_worker_flush(a.worker(), level, nullptr, nullptr), TW_ERR_INVALID_PARAM);
    }
    EXPECT_EQ(tw_ep_close(ep, static_cast<tw_flush_level_t>(3), nullptr, nullptr),
              TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_worker_flush(nullptr, TW_FLUSH_SENT, nullptr, nullptr), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_ep_flush(nullptr, TW_FLUSH_SENT, nullptr, nullptr), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_worker_flush(a.worker(), TW_FLUSH_SENT, &wrong, nullptr), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_ep_flush(ep, TW_FLUSH_SENT, &wrong, nullptr), TW_ERR_INVALID_PARAM);
}

// ---- Sleeping, and the bound of progress

TEST_F(MsgFlush, arm_is_busy_as_long_as_the_descriptor_is_readable) {
    Node& a = node(0);
    Node& b = node(1);
    connect(a, b);
    int fd = -1;
    ASSERT_EQ(tw_worker_fd(b.worker(), &fd), TW_OK);
    const auto is_readable = [fd] {
        pollfd watched{.fd = fd, .events = POLLIN, .revents = 0};
        return ::poll(&watched, 1, 0) > 0;
    };
    for (std::uint64_t round = 0; round < 20; ++round) {
        run_until([&] { return tw_worker_arm(b.worker()) == TW_OK; });
        if (is_readable())
            continue;  // a timer, meanwhile
        ASSERT_GE(tw_tag_send(a.to(b), "x", 1, round, nullptr, nullptr), TW_OK);
        run_nodes_until(a, nullptr, is_readable);
        ASSERT_TRUE(is_readable());
        for (int i = 0; i < 3; ++i)
            EXPECT_EQ(tw_worker_arm(b.worker()), TW_ERR_BUSY);
        expect_message(b, Bytes(1, std::byte{'x'}), round);
    }
}

TEST_F(MsgFlush, one_call_of_progress_takes_a_bounded_number_of_messages) {
    constexpr std::uint64_t kMessages = 2000;
    constexpr std::uint64_t kMost = 128;
    Node& a = node(0);
    Node& b = node(1);
    connect(a, b);
    const std::uint64_t before = b.counter("rx_unexpected");
    std::uint64_t sent = 0, seen = before;
    // As many as the lane takes are under way when the peer looks.
    while (seen < before + kMessages) {
        for (int i = 0; i < 1000 && sent < kMessages; ++i) {
            if (tw_tag_send(a.to(b), "x", 1, sent, nullptr, nullptr) == TW_ERR_NO_RESOURCE)
                break;
            ++sent;
        }
        for (int i = 0; i < 100; ++i)
            tw_worker_progress(a.worker());
        tw_worker_progress(b.worker());
        const std::uint64_t now = b.counter("rx_unexpected");
        ASSERT_LE(now - seen, kMost);
        seen = now;
    }
    for (std::uint64_t i = 0; i < kMessages; ++i)
        expect_message(b, Bytes(1, std::byte{'x'}), i);
}

}  // namespace
}  // namespace tagwire::test
