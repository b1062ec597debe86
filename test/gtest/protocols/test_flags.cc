// SPDX-License-Identifier: BSD-3-Clause
// What the flags of an operation promise, and how its end is reported.
#include <algorithm>

#include "protocols/fixture.hpp"

namespace tagwire::test {
namespace {

constexpr std::size_t kShort = 20, kEager = 5000, kParts = 20000, kRndv = 300000;
constexpr std::size_t kKinds[] = {kShort, kEager, kParts, kRndv};

class MsgFlags : public MsgTest {
  protected:
    /// Both know each other, so that sends begin at once.
    void connect() {
        send(node(0), node(1), {}, 1);
        send(node(1), node(0), {}, 1);
        Bytes nothing;
        receive(node(0), &nothing, 1);
        receive(node(1), &nothing, 1);
    }
    tw_completion_t receive(Node& at, Bytes* data, std::uint64_t tag) {
        int mark = 0;
        const tw_op_t how = op(&mark);
        EXPECT_EQ(tw_tag_recv(at.worker(), data->data(), data->size(), tag, 0, &how, nullptr),
                  TW_INPROGRESS);
        return end_of(at, &mark);
    }
    bool has_ended(const Node& at, const void* context) const {
        return std::ranges::any_of(
            at.done, [&](const tw_completion_t& done) { return done.context == context; });
    }
};

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
        tw_op_t drop{};
        drop.flags = TW_OP_PEEK | TW_OP_DISCARD;
        EXPECT_EQ(tw_tag_recv(b.worker(), nullptr, 0, 3, 0, &drop, nullptr), TW_OK);
        EXPECT_EQ(end_of(a, &sent).status, TW_OK);
        drop.flags = TW_OP_PEEK;
        EXPECT_EQ(tw_tag_recv(b.worker(), nullptr, 0, 3, 0, &drop, nullptr), TW_ERR_NO_MESSAGE);
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

TEST_F(MsgFlags, a_peek_tells_what_is_there_and_leaves_it) {
    connect();
    Node& a = node(0);
    Node& b = node(1);
    for (const std::size_t length : kKinds) {
        const Bytes data = pattern(length, 1);
        int sent = 0;
        tw_op_t how = op(&sent, TW_OP_IMM);
        how.imm = 77;
        send_unexpected(a, b, data, 3, how);
        run_some();
        Bytes copy(length);
        tw_completion_t done{};
        tw_op_t peek{};
        peek.flags = TW_OP_PEEK;
        peek.done = &done;
        ASSERT_EQ(tw_tag_recv(b.worker(), copy.data(), length, 3, 0, &peek, nullptr), TW_OK);
        EXPECT_EQ(done.message_length, length);
        EXPECT_EQ(done.imm, 77U);
        EXPECT_EQ(done.source, a.id());
        EXPECT_EQ(done.ep, b.to(a));
        EXPECT_EQ(done.flags, unsigned{TW_DONE_RECV | TW_DONE_TAGGED | TW_DONE_IMM | TW_DONE_PEEK});
        if (done.buffer != nullptr) {
            EXPECT_EQ(copy, data);
        } else {
            EXPECT_EQ(length, offloads() ? std::max(length, kParts) : kRndv);
        }
        Bytes received(length);
        EXPECT_EQ(receive(b, &received, 3).status, TW_OK);
        EXPECT_EQ(received, data);
        EXPECT_EQ(end_of(a, &sent).status, TW_OK);
    }
}

TEST_F(MsgFlags, a_peek_that_finds_nothing_is_an_error_in_the_queue) {
    Node& a = node(0);
    int mark = 0;
    const tw_op_t peek = op(&mark, TW_OP_PEEK);
    ASSERT_EQ(tw_tag_recv(a.worker(), nullptr, 0, 3, 0, &peek, nullptr), TW_INPROGRESS);
    EXPECT_EQ(end_of(a, &mark).status, TW_ERR_NO_MESSAGE);
}

TEST_F(MsgFlags, a_claimed_message_is_only_for_its_claim) {
    connect();
    Node& a = node(0);
    Node& b = node(1);
    for (const std::size_t length : kKinds) {
        const Bytes data = pattern(length, 1);
        int sent = 0;
        const tw_op_t how = op(&sent);
        send_unexpected(a, b, data, 3, how);
        tw_completion_t found{};
        tw_op_t peek{};
        peek.flags = TW_OP_PEEK | TW_OP_CLAIM;
        peek.done = &found;
        ASSERT_EQ(tw_tag_recv(b.worker(), nullptr, 0, 3, 0, &peek, nullptr), TW_OK);
        ASSERT_NE(found.message, nullptr);
        peek.flags = TW_OP_PEEK;
        peek.done = nullptr;
        EXPECT_EQ(tw_tag_recv(b.worker(), nullptr, 0, 3, 0, &peek, nullptr), TW_ERR_NO_MESSAGE);
        Bytes received(length);
        int got = 0;
        tw_op_t claim = op(&got, TW_OP_CLAIM);
        claim.message = found.message;
        ASSERT_EQ(tw_tag_recv(b.worker(), received.data(), length, 0, 0, &claim, nullptr),
                  TW_INPROGRESS);
        const tw_completion_t done = end_of(b, &got);
        EXPECT_EQ(done.status, TW_OK);
        EXPECT_EQ(done.flags, unsigned{TW_DONE_RECV | TW_DONE_TAGGED | TW_DONE_CLAIM});
        EXPECT_EQ(received, data);
        EXPECT_EQ(end_of(a, &sent).status, TW_OK);
        EXPECT_EQ(tw_tag_recv(b.worker(), received.data(), length, 0, 0, &claim, nullptr),
                  TW_ERR_INVALID_PARAM);
    }
}

TEST_F(MsgFlags, a_claimed_message_can_be_discarded) {
    connect();
    Node& a = node(0);
    Node& b = node(1);
    for (const std::size_t length : kKinds) {
        const Bytes data = pattern(length, 1);
        int sent = 0;
        const tw_op_t how = op(&sent, TW_OP_MATCH_COMPLETE);
        send_unexpected(a, b, data, 3, how);
        tw_completion_t found{};
        tw_op_t peek{};
        peek.flags = TW_OP_PEEK | TW_OP_CLAIM;
        peek.done = &found;
        ASSERT_EQ(tw_tag_recv(b.worker(), nullptr, 0, 3, 0, &peek, nullptr), TW_OK);
        tw_op_t drop{};
        drop.flags = TW_OP_CLAIM | TW_OP_DISCARD;
        drop.message = found.message;
        EXPECT_EQ(tw_tag_recv(b.worker(), nullptr, 0, 0, 0, &drop, nullptr), TW_OK);
        EXPECT_EQ(end_of(a, &sent).status, TW_OK);
    }
}

TEST_F(MsgFlags, ignored_bits_do_not_count) {
    connect();
    Node& a = node(0);
    Node& b = node(1);
    Bytes buffer(4);
    int mark = 0;
    const tw_op_t how = op(&mark);
    ASSERT_EQ(tw_tag_recv(b.worker(), buffer.data(), 4, 0x1200, 0xff, &how, nullptr),
              TW_INPROGRESS);
    send(a, b, pattern(4, 1), 0x1300);
    send(a, b, pattern(4, 2), 0x12ab);
    EXPECT_EQ(end_of(b, &mark).tag, 0x12abU);
    EXPECT_EQ(buffer, pattern(4, 2));
    // The same for messages that wait.
    send(a, b, pattern(4, 3), 0x13cd);
    run_some();
    ASSERT_EQ(tw_tag_recv(b.worker(), buffer.data(), 4, 0xcd, ~std::uint64_t{0xff}, &how, nullptr),
              TW_INPROGRESS);
    EXPECT_EQ(end_of(b, &mark).tag, 0x13cdU);
    EXPECT_EQ(receive(b, &buffer, 0x1300).status, TW_OK);
}

TEST_F(MsgFlags, the_earliest_posted_receive_wins) {
    connect();
    Node& a = node(0);
    Node& b = node(1);
    Bytes buffers[4] = {Bytes(4), Bytes(4), Bytes(4), Bytes(4)};
    int marks[4];
    const std::uint64_t ignored[] = {0, ~std::uint64_t{0}, 0xff, 0};
    for (int i = 0; i < 4; ++i) {
        tw_op_t how = op(&marks[i]);
        how.source = i == 2 ? b.to(a) : nullptr;
        ASSERT_EQ(tw_tag_recv(b.worker(), buffers[i].data(), 4, 5, ignored[i], &how, nullptr),
                  TW_INPROGRESS);
    }
    for (std::uint64_t i = 0; i < 4; ++i)
        send(a, b, pattern(4, i), 5);
    for (std::uint64_t i = 0; i < 4; ++i) {
        EXPECT_EQ(end_of(b, &marks[i]).status, TW_OK);
        EXPECT_EQ(buffers[i], pattern(4, i)) << i;
    }
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
    EXPECT_EQ(tw_ep_close(a.to(b), TW_EP_CLOSE_FORCE, nullptr, nullptr), TW_OK);
    a.progress();
    ASSERT_EQ(a.done.size(), 1U);
    EXPECT_EQ(a.done[0].status, TW_ERR_CANCELED);
    EXPECT_EQ(a.done[0].flags, unsigned{TW_DONE_SEND | TW_DONE_TAGGED});
}

TEST_F(MsgFlags, a_directed_receive_takes_its_peer_only) {
    Node& a = node(0);
    Node& b = node(1);
    Node& c = node(2);
    const Bytes from_a = pattern(50, 1), from_b = pattern(50, 2);
    Bytes directed(50), any(50);
    int directed_got = 0, any_got = 0;
    tw_op_t how = op(&directed_got);
    how.source = c.to(b);
    ASSERT_EQ(tw_tag_recv(c.worker(), directed.data(), 50, 1, 0, &how, nullptr), TW_INPROGRESS);
    const tw_op_t from_any = op(&any_got);
    ASSERT_EQ(tw_tag_recv(c.worker(), any.data(), 50, 1, 0, &from_any, nullptr), TW_INPROGRESS);
    send(a, c, from_a, 1);
    EXPECT_EQ(end_of(c, &any_got).source, a.id());
    EXPECT_EQ(any, from_a);
    send(b, c, from_b, 1);
    EXPECT_EQ(end_of(c, &directed_got).source, b.id());
    EXPECT_EQ(directed, from_b);
}

TEST_F(MsgFlags, a_multi_receive_made_in_a_callback_has_all_that_waits_before_the_next_receive) {
    connect();
    struct Greedy {
        tw_worker_h worker;
        std::vector<std::uint64_t> many, later;  // first bytes of what came
        Bytes buffer = Bytes(100'000), small = Bytes(100);
        bool is_begun = false;

        void begin() {
            is_begun = true;
            const tw_op_t op = how(TW_OP_MULTI_RECV, [](const tw_completion_t* done) {
                auto& self = *static_cast<Greedy*>(done->context);
                if ((done->flags & TW_DONE_MULTI_RECV) != 0)
                    return;
                self.many.push_back(
                    std::to_integer<std::uint64_t>(*static_cast<const std::byte*>(done->buffer)));
                self.ask();
            });
            EXPECT_EQ(tw_msg_recv(worker, buffer.data(), buffer.size(), &op, nullptr),
                      TW_INPROGRESS);
        }
        void ask() {
            const tw_op_t op = how(0, [](const tw_completion_t* done) {
                auto& self = *static_cast<Greedy*>(done->context);
                self.later.push_back(std::to_integer<std::uint64_t>(self.small[0]));
            });
            EXPECT_EQ(tw_msg_recv(worker, small.data(), small.size(), &op, nullptr), TW_INPROGRESS);
        }
        tw_op_t how(unsigned flags, tw_complete_cb_t complete) {
            tw_op_t op{};
            op.flags = TW_OP_COMPLETION | flags;
            op.context = this;
            op.complete = complete;
            return op;
        }
    };
    Node& a = node(0);
    Node& b = node(1);
    Greedy greedy{b.worker(), {}, {}};
    tw_op_t first = greedy.how(
        0, [](const tw_completion_t* done) { static_cast<Greedy*>(done->context)->begin(); });
    Bytes none(8);
    for (unsigned i = 0; i < 5; ++i) {
        const Bytes data(50, std::byte{static_cast<unsigned char>(i)});
        ASSERT_GE(tw_msg_send(a.to(b), data.data(), data.size(), nullptr, nullptr), TW_OK);
    }
    run_some();
    ASSERT_EQ(tw_tag_recv(b.worker(), none.data(), none.size(), 1, 0, &first, nullptr),
              TW_INPROGRESS);
    ASSERT_GE(tw_tag_send(a.to(b), none.data(), none.size(), 1, nullptr, nullptr), TW_OK);
    run_until([&] { return greedy.many.size() + greedy.later.size() == 5; });
    EXPECT_EQ(greedy.many, (std::vector<std::uint64_t>{0, 1, 2, 3, 4}));
    EXPECT_TRUE(greedy.later.empty());
    EXPECT_TRUE(greedy.is_begun);
}

TEST_F(MsgFlags, a_multi_receive_takes_messages_until_it_is_full) {
    connect();
    Node& a = node(0);
    Node& b = node(1);
    tw_worker_attr_t attr{};
    ASSERT_EQ(tw_worker_query(b.worker(), &attr), TW_OK);
    const std::size_t lengths[] = {100, 5000, 0, 70000, 20000};
    std::size_t total = 0;
    for (const std::size_t length : lengths)
        total += length;
    Bytes buffer(total + attr.multi_recv_bytes_min - 1);
    int mark = 0;
    const Bytes early = pattern(lengths[0], 0);
    ASSERT_GE(tw_msg_send(a.to(b), early.data(), early.size(), nullptr, nullptr), TW_OK);
    run_some();
    const tw_op_t how = op(&mark, TW_OP_MULTI_RECV);
    ASSERT_EQ(tw_msg_recv(b.worker(), buffer.data(), buffer.size(), &how, nullptr), TW_INPROGRESS);
    std::vector<Bytes> data{early};
    for (std::size_t i = 1; i < std::size(lengths); ++i) {
        data.push_back(pattern(lengths[i], i));
        ASSERT_GE(tw_msg_send(a.to(b), data[i].data(), lengths[i], nullptr, nullptr), TW_OK);
    }
    run_until([&] { return b.done.size() == std::size(lengths) + 1; });
    std::sort(b.done.begin(), b.done.end() - 1,
              [](const auto& x, const auto& y) { return x.buffer < y.buffer; });
    EXPECT_EQ(b.done.back().flags, unsigned{TW_DONE_RECV | TW_DONE_MULTI_RECV});
    const std::byte* at = buffer.data();
    for (std::size_t i = 0; i < std::size(lengths); ++i) {
        const auto found = std::ranges::find_if(b.done, [&](const tw_completion_t& done) {
            return done.buffer == at && done.length == lengths[i];
        });
        ASSERT_NE(found, b.done.end()) << i;
        EXPECT_TRUE(std::equal(data[i].begin(), data[i].end(), at)) << i;
        at += lengths[i];
    }
}

TEST_F(MsgFlags, a_worker_has_limits_of_its_own) {
    connect();
    Node& a = node(0);
    Node& b = node(1);
    tw_worker_attr_t attr{};
    ASSERT_EQ(tw_worker_query(a.worker(), &attr), TW_OK);
    const tw_worker_limits_t smaller = {
        .multi_recv_bytes_min = 10, .buffered_bytes_limit = 0, .buffered_bytes_min = 0};
    ASSERT_EQ(tw_worker_set_limits(b.worker(), &smaller), TW_OK);
    const tw_worker_limits_t crossed = {
        .multi_recv_bytes_min = 0, .buffered_bytes_limit = 10, .buffered_bytes_min = 11};
    EXPECT_EQ(tw_worker_set_limits(b.worker(), &crossed), TW_ERR_EXCEEDS_LIMIT);
    const tw_worker_limits_t beyond = {.multi_recv_bytes_min = TW_WORKER_LIMIT_MAX + 1,
                                       .buffered_bytes_limit = 0,
                                       .buffered_bytes_min = 0};
    EXPECT_EQ(tw_worker_set_limits(b.worker(), &beyond), TW_ERR_EXCEEDS_LIMIT);
    tw_worker_attr_t changed{};
    ASSERT_EQ(tw_worker_query(b.worker(), &changed), TW_OK);
    EXPECT_EQ(changed.multi_recv_bytes_min, 10U);
    EXPECT_EQ(changed.buffered_bytes_limit, attr.buffered_bytes_limit);
    ASSERT_EQ(tw_worker_query(a.worker(), &changed), TW_OK);
    EXPECT_EQ(changed.multi_recv_bytes_min, attr.multi_recv_bytes_min);

    Bytes buffer(100);
    int mark = 0;
    const tw_op_t how = op(&mark, TW_OP_MULTI_RECV);
    ASSERT_EQ(tw_msg_recv(b.worker(), buffer.data(), buffer.size(), &how, nullptr), TW_INPROGRESS);
    const Bytes data = pattern(45, 0);
    for (int i = 0; i < 2; ++i)
        ASSERT_GE(tw_msg_send(a.to(b), data.data(), data.size(), nullptr, nullptr), TW_OK);
    run_until([&] { return b.done.size() == 2; });
    EXPECT_EQ(b.done.back().flags & TW_DONE_MULTI_RECV, 0U);  // 10 bytes are left
    ASSERT_GE(tw_msg_send(a.to(b), data.data(), 1, nullptr, nullptr), TW_OK);
    run_until([&] { return b.done.size() == 4; });
    EXPECT_NE(b.done.back().flags & TW_DONE_MULTI_RECV, 0U);
}

TEST_F(MsgFlags, a_receive_is_cancelled_once) {
    connect();
    Node& a = node(0);
    Node& b = node(1);
    Bytes buffer(10);
    int mark = 0;
    const tw_op_t how = op(&mark);
    tw_request_h request = nullptr;
    ASSERT_EQ(tw_tag_recv(b.worker(), buffer.data(), 10, 5, 0, &how, &request), TW_INPROGRESS);
    EXPECT_EQ(tw_request_cancel(request), TW_OK);
    EXPECT_EQ(end_of(b, &mark).status, TW_ERR_CANCELED);
    send(a, b, pattern(10, 1), 5);
    EXPECT_EQ(receive(b, &buffer, 5).status, TW_OK);
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
    tw_op_t peek{};
    peek.flags = TW_OP_PEEK;
    EXPECT_EQ(tw_tag_recv(b.worker(), nullptr, 0, 3, 0, &peek, nullptr), TW_ERR_NO_MESSAGE);
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
    // What ends within the call is reported only if that is asked for, and then in progress.
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
    std::vector<std::byte> memory(tw_request_bytes() + 64);
    void* aligned = memory.data();
    std::size_t room = memory.size();
    ASSERT_NE(std::align(64, tw_request_bytes(), aligned, room), nullptr);
    Bytes buffer(10);
    int mark = 0;
    tw_op_t how = op(&mark);
    how.request = aligned;
    tw_request_h request = nullptr;
    ASSERT_EQ(tw_tag_recv(b.worker(), buffer.data(), 10, 5, 0, &how, &request), TW_INPROGRESS);
    EXPECT_EQ(static_cast<void*>(request), aligned);
    send(a, b, pattern(10, 1), 5);
    EXPECT_EQ(end_of(b, &mark).status, TW_OK);
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
         {std::uint32_t{TW_OP_DISCARD}, TW_OP_PEEK | std::uint32_t{TW_OP_CLAIM} | TW_OP_DISCARD,
          std::uint32_t{TW_OP_CLAIM}, std::uint32_t{TW_OP_MULTI_RECV}, std::uint32_t{TW_OP_INJECT},
          std::uint32_t{TW_OP_FENCE}, 1U << 31}) {
        EXPECT_EQ(answer(flags), TW_ERR_INVALID_PARAM) << flags;
    }
    tw_op_t how{};
    how.flags = TW_OP_PEEK;
    EXPECT_EQ(tw_tag_send(a.to(a), buffer.data(), 10, 5, &how, nullptr), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_tag_send(nullptr, buffer.data(), 10, 5, nullptr, nullptr), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_tag_send(a.to(a), nullptr, 10, 5, nullptr, nullptr), TW_ERR_INVALID_PARAM);
    tw_iov_t list[TW_IOV_MAX + 1]{};
    EXPECT_EQ(tw_tag_sendv(a.to(a), list, TW_IOV_MAX + 1, 5, nullptr, nullptr),
              TW_ERR_INVALID_PARAM);
}

}  // namespace
}  // namespace tagwire::test
