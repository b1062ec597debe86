// SPDX-License-Identifier: BSD-3-Clause
// Probes, receives of what they take, receives of several messages or of one peer, and which of
// them matches.
#include <algorithm>

#include "protocols/pair_test.hpp"

namespace tagwire::test {
namespace {

class MsgReceives : public PairTest {};

TEST_F(MsgReceives, a_probe_tells_what_is_there_and_leaves_it) {
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
        tw_message_info_t info{};
        ASSERT_EQ(tw_tag_probe(b.worker(), 3, 0, nullptr, &info, nullptr), TW_OK);
        EXPECT_EQ(info.struct_bytes, sizeof info);
        EXPECT_EQ(info.length, length);
        EXPECT_EQ(info.tag, 3U);
        EXPECT_EQ(info.imm, 77U);
        EXPECT_EQ(info.source, a.id());
        EXPECT_EQ(info.ep, b.to(a));
        EXPECT_EQ(info.flags, unsigned{TW_DONE_RECV | TW_DONE_TAGGED | TW_DONE_IMM});
        EXPECT_EQ(tw_tag_probe(b.worker(), 3, 0, b.to(a), nullptr, nullptr), TW_OK);
        EXPECT_EQ(tw_tag_probe(b.worker(), 3, 0, b.to(b), nullptr, nullptr), TW_ERR_NO_MESSAGE);
        EXPECT_EQ(tw_msg_probe(b.worker(), nullptr, &info, nullptr), TW_ERR_NO_MESSAGE);
        Bytes received(length);
        EXPECT_EQ(receive(b, &received, 3).status, TW_OK);
        EXPECT_EQ(received, data);
        EXPECT_EQ(end_of(a, &sent).status, TW_OK);
    }
}

TEST_F(MsgReceives, a_probe_of_untagged_messages_finds_those_alone) {
    connect();
    Node& a = node(0);
    Node& b = node(1);
    const Bytes data = pattern(kShort, 1);
    ASSERT_GE(tw_msg_send(a.to(b), data.data(), kShort, nullptr, nullptr), TW_OK);
    tw_message_info_t info{};
    run_until([&] { return tw_msg_probe(b.worker(), nullptr, &info, nullptr) == TW_OK; });
    EXPECT_EQ(info.flags, unsigned{TW_DONE_RECV});
    EXPECT_EQ(info.tag, 0U);
    EXPECT_EQ(info.length, kShort);
    EXPECT_EQ(probe(b.worker(), 0, ~std::uint64_t{0}), TW_ERR_NO_MESSAGE);
    tw_message_h message = nullptr;
    ASSERT_EQ(tw_msg_probe(b.worker(), b.to(a), nullptr, &message), TW_OK);
    EXPECT_EQ(tw_msg_probe(b.worker(), nullptr, nullptr, nullptr), TW_ERR_NO_MESSAGE);
    Bytes received(kShort);
    tw_op_t how{};
    how.info = &info;
    info.length = 0;
    EXPECT_EQ(tw_message_recv(b.worker(), message, received.data(), kShort, &how, nullptr), TW_OK);
    EXPECT_EQ(info.length, kShort);
    EXPECT_EQ(received, data);
}

TEST_F(MsgReceives, a_probe_of_what_cannot_be_is_refused) {
    Node& a = node(0);
    Node& b = node(1);
    tw_message_h message = nullptr;
    EXPECT_EQ(probe(a.worker(), 3), TW_ERR_NO_MESSAGE);
    EXPECT_EQ(tw_tag_probe(nullptr, 3, 0, nullptr, nullptr, &message), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_msg_probe(nullptr, nullptr, nullptr, &message), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_tag_probe(a.worker(), 3, 0, b.to(a), nullptr, &message), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(message, nullptr);
    EXPECT_EQ(tw_message_drop(nullptr, nullptr), TW_ERR_INVALID_PARAM);
}

TEST_F(MsgReceives, a_message_that_was_taken_is_for_its_receive_alone) {
    connect();
    Node& a = node(0);
    Node& b = node(1);
    for (const std::size_t length : kKinds) {
        const Bytes data = pattern(length, 1);
        int sent = 0;
        const tw_op_t how = op(&sent);
        send_unexpected(a, b, data, 3, how);
        tw_message_h message = take(b.worker(), 3);
        ASSERT_NE(message, nullptr);
        EXPECT_EQ(probe(b.worker(), 3), TW_ERR_NO_MESSAGE);
        Bytes received(length);
        int got = 0;
        const tw_op_t told = op(&got);
        EXPECT_EQ(tw_message_recv(a.worker(), message, received.data(), length, &told, nullptr),
                  TW_ERR_INVALID_PARAM);
        ASSERT_EQ(tw_message_recv(b.worker(), message, received.data(), length, &told, nullptr),
                  TW_INPROGRESS);
        const tw_completion_t done = end_of(b, &got);
        EXPECT_EQ(done.status, TW_OK);
        EXPECT_EQ(done.flags, unsigned{TW_DONE_RECV | TW_DONE_TAGGED});
        EXPECT_EQ(done.tag, 3U);
        EXPECT_EQ(received, data);
        EXPECT_EQ(end_of(a, &sent).status, TW_OK);
        EXPECT_EQ(tw_message_recv(b.worker(), message, received.data(), length, &told, nullptr),
                  TW_ERR_INVALID_PARAM);
        EXPECT_EQ(tw_message_drop(b.worker(), message), TW_ERR_INVALID_PARAM);
    }
}

TEST_F(MsgReceives, a_message_that_was_taken_is_received_into_a_list_or_cut) {
    connect();
    Node& a = node(0);
    Node& b = node(1);
    for (const std::size_t length : kKinds) {
        const Bytes data = pattern(length, 1);
        for (const bool is_cut : {false, true}) {
            int sent = 0, got = 0;
            const tw_op_t how = op(&sent), told = op(&got);
            send_unexpected(a, b, data, 3, how);
            tw_message_h message = take(b.worker(), 3);
            ASSERT_NE(message, nullptr);
            Bytes received(length);
            const tw_iov_t list[] = {{received.data(), 7},
                                     {received.data() + 7, length - 7 - (is_cut ? 1 : 0)}};
            ASSERT_EQ(tw_message_recvv(b.worker(), message, list, 2, &told, nullptr),
                      TW_INPROGRESS);
            const tw_completion_t done = end_of(b, &got);
            EXPECT_EQ(done.status, is_cut ? TW_ERR_MESSAGE_TRUNCATED : TW_OK);
            EXPECT_EQ(done.message_length, length);
            EXPECT_EQ(done.length, is_cut ? length - 1 : length);
            EXPECT_TRUE(std::equal(data.begin(),
                                   data.begin() + static_cast<std::ptrdiff_t>(done.length),
                                   received.begin()));
            EXPECT_EQ(end_of(a, &sent).status, TW_OK);
        }
    }
}

TEST_F(MsgReceives, a_message_that_was_taken_can_be_dropped) {
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
    }
}

TEST_F(MsgReceives, ignored_bits_do_not_count) {
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

TEST_F(MsgReceives, the_earliest_posted_receive_wins) {
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

TEST_F(MsgReceives, a_directed_receive_takes_its_peer_only) {
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

TEST_F(MsgReceives, a_multi_receive_made_in_a_callback_has_all_that_waits_before_the_next_receive) {
    connect();
    struct Greedy {
        tw_worker_h worker;
        std::vector<std::uint64_t> many, later;  // first bytes of what came
        Bytes buffer = Bytes(100'000), small = Bytes(100);
        bool is_begun = false;

        void begin() {
            is_begun = true;
            const tw_op_t op = how(0, [](const tw_completion_t* done) {
                auto& self = *static_cast<Greedy*>(done->context);
                if ((done->flags & TW_DONE_MULTI_RECV) != 0)
                    return;
                self.many.push_back(
                    std::to_integer<std::uint64_t>(*static_cast<const std::byte*>(done->buffer)));
                self.ask();
            });
            EXPECT_EQ(tw_msg_recv_multi(worker, buffer.data(), buffer.size(), &op, nullptr),
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

TEST_F(MsgReceives, a_multi_receive_takes_messages_until_it_is_full) {
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
    const tw_op_t how = op(&mark);
    ASSERT_EQ(tw_msg_recv_multi(b.worker(), buffer.data(), buffer.size(), &how, nullptr),
              TW_INPROGRESS);
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

TEST_F(MsgReceives, a_worker_has_limits_of_its_own) {
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
    const tw_op_t how = op(&mark);
    ASSERT_EQ(tw_msg_recv_multi(b.worker(), buffer.data(), buffer.size(), &how, nullptr),
              TW_INPROGRESS);
    const Bytes data = pattern(45, 0);
    for (int i = 0; i < 2; ++i)
        ASSERT_GE(tw_msg_send(a.to(b), data.data(), data.size(), nullptr, nullptr), TW_OK);
    run_until([&] { return b.done.size() == 2; });
    EXPECT_EQ(b.done.back().flags & TW_DONE_MULTI_RECV, 0U);  // 10 bytes are left
    ASSERT_GE(tw_msg_send(a.to(b), data.data(), 1, nullptr, nullptr), TW_OK);
    run_until([&] { return b.done.size() == 4; });
    EXPECT_NE(b.done.back().flags & TW_DONE_MULTI_RECV, 0U);
}

TEST_F(MsgReceives, a_receive_is_cancelled_once) {
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

}  // namespace
}  // namespace tagwire::test
