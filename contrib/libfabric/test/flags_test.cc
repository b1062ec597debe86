// SPDX-License-Identifier: BSD-3-Clause
// Flags of sends and receives, and cancelling.
#include "pair.hpp"

namespace tagwire::fi_test {

namespace {

class FiFlags : public Pair {};

TEST_F(FiFlags, an_injected_buffer_may_be_used_again_at_once) {
    open();
    const std::size_t length = info->tx_attr->inject_size;
    Text text = text_of(length);
    retry([&] { return fi_tinject(a.ep.get(), text.data(), length, to_b, 1); });
    std::fill(text.begin(), text.end(), '!');
    tsendmsg("x", 2, FI_INJECT);
    next(a.tx);
    Text got(length, ' ');
    trecv(got, 1);
    next(b.rx);
    EXPECT_EQ(got, text_of(length));
    const Text longer = text_of(length + 1);
    EXPECT_EQ(fi_tinject(a.ep.get(), longer.data(), longer.size(), to_b, 1), -FI_EMSGSIZE);
}

TEST_F(FiFlags, levels_of_completion) {
    open();
    for (const std::size_t length : {8UL, 70000UL}) {
        const Text text = text_of(length);
        for (const std::uint64_t level : {FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE}) {
            Text got(length, ' ');
            trecv(got, 1);
            tsendmsg(text, 1, level);
            next(b.rx);
            next(a.tx);
        }
        for (const std::uint64_t level :
             {std::uint64_t{FI_DELIVERY_COMPLETE}, std::uint64_t{FI_MATCH_COMPLETE}}) {
            Text got(length, ' ');
            tsendmsg(text, 1, level);
            EXPECT_TRUE(is_empty(a.tx)) << "nobody has matched it";
            trecv(got, 1);
            next(b.rx);
            next(a.tx);
        }
    }
}

TEST_F(FiFlags, a_level_may_be_the_default_of_the_endpoint) {
    open({.tx_op_flags = FI_MATCH_COMPLETE});
    tsend("text", 1);
    EXPECT_TRUE(is_empty(a.tx));
    Text got(4, ' ');
    trecv(got, 1);
    next(b.rx);
    next(a.tx);
    tsendmsg("text", 1, 0);  // flags of this call replace it
    next(a.tx);
}

TEST_F(FiFlags, a_fenced_message_waits_for_those_before_it) {
    open();
    int marks[2] = {};
    tsendmsg("first", 1, FI_MATCH_COMPLETE, &marks[0]);
    tsendmsg("second", 2, FI_FENCE, &marks[1]);
    Text got(6, ' ');
    trecv(got, 2);
    EXPECT_TRUE(is_empty(b.rx));
    EXPECT_TRUE(is_empty(a.tx));
    Text first(5, ' ');
    trecv(first, 1);
    next(b.rx);
    next(b.rx);
    EXPECT_EQ(next(a.tx).op_context, &marks[0]);
    EXPECT_EQ(next(a.tx).op_context, &marks[1]);
}

TEST_F(FiFlags, a_peek_tells_of_a_message_and_leaves_it) {
    open();
    fi_context context{};
    Text got(10, ' ');
    ASSERT_EQ(trecvmsg(got, 1, FI_PEEK, &context), 0);
    const auto nothing = next_error(b.rx);
    EXPECT_EQ(nothing.err, FI_ENOMSG);
    EXPECT_EQ(nothing.op_context, &context);

    tsendmsg("peeked", 1, FI_REMOTE_CQ_DATA);
    run_some();
    for (int i = 0; i < 2; ++i) {
        ASSERT_EQ(trecvmsg(got, 1, FI_PEEK, &context), 0);
        fi_addr_t source = FI_ADDR_NOTAVAIL;
        const auto entry = next(b.rx, &source);
        EXPECT_EQ(entry.op_context, &context);
        EXPECT_EQ(entry.flags, kTaggedRecv | FI_REMOTE_CQ_DATA);
        EXPECT_EQ(entry.len, 6U);
        EXPECT_EQ(entry.data, 0xda7aU);
        EXPECT_EQ(entry.tag, 1U);
        EXPECT_EQ(source, to_a);
        EXPECT_EQ(entry.buf, nullptr);  // a peek copies nothing
        EXPECT_EQ(got, Text(10, ' '));
    }
    trecv(got, 1);
    next(b.rx);
    ASSERT_EQ(trecvmsg(got, 1, FI_PEEK, &context), 0);
    EXPECT_EQ(next_error(b.rx).err, FI_ENOMSG);
}

TEST_F(FiFlags, a_claimed_message_is_for_its_claim_alone) {
    open();
    for (const std::size_t length : {6UL, 70000UL}) {
        fi_context context{};
        Text got(length, ' ');
        Text other(length, ' ');
        tsend(text_of(length), 1);
        run_some();
        ASSERT_EQ(trecvmsg(got, 1, FI_PEEK | FI_CLAIM, &context), 0);
        EXPECT_EQ(next(b.rx).len, length);
        trecv(other, 1);
        EXPECT_TRUE(is_empty(b.rx));
        ASSERT_EQ(trecvmsg(got, 1, FI_CLAIM, &context), 0);
        EXPECT_EQ(next(b.rx).op_context, &context);
        EXPECT_EQ(got, text_of(length));
        tsend(text_of(length), 1);
        next(b.rx);
    }
}

TEST_F(FiFlags, messages_are_discarded_by_a_peek_or_by_a_claim) {
    open();
    fi_context context{};
    Text got(70000, ' ');
    int mark = 0;
    tsendmsg(text_of(70000), 1, FI_MATCH_COMPLETE, &mark);
    tsendmsg(text_of(10), 1, FI_MATCH_COMPLETE, &mark);
    run_some();
    ASSERT_EQ(trecvmsg(got, 1, FI_PEEK | FI_DISCARD, &context), 0);
    EXPECT_EQ(next(b.rx).len, 70000U);
    EXPECT_EQ(next(a.tx).op_context, &mark);
    ASSERT_EQ(trecvmsg(got, 1, FI_PEEK | FI_CLAIM, &context), 0);
    next(b.rx);
    ASSERT_EQ(trecvmsg(got, 1, FI_CLAIM | FI_DISCARD, &context), 0);
    EXPECT_EQ(next(b.rx).op_context, &context);
    EXPECT_EQ(next(a.tx).op_context, &mark);
    ASSERT_EQ(trecvmsg(got, 1, FI_PEEK, &context), 0);
    EXPECT_EQ(next_error(b.rx).err, FI_ENOMSG);
}

TEST_F(FiFlags, flags_that_do_not_go_together_are_refused) {
    open();
    fi_context context{};
    Text got(4, ' ');
    EXPECT_LT(trecvmsg(got, 1, FI_DISCARD, &context), 0);
    EXPECT_LT(trecvmsg(got, 1, FI_CLAIM, &context), 0) << "nothing was claimed";
    EXPECT_LT(trecvmsg(got, 1, FI_PEEK | FI_CLAIM | FI_DISCARD, &context), 0);
    EXPECT_LT(trecvmsg(got, 1, FI_MULTI_RECV, &context), 0);
    EXPECT_LT(trecvmsg(got, 1, FI_INJECT, &context), 0);
    fi_msg_tagged msg{};
    msg.addr = to_b;
    EXPECT_LT(fi_tsendmsg(a.ep.get(), &msg, FI_PEEK), 0);
    EXPECT_LT(fi_tsendmsg(a.ep.get(), &msg, FI_COMMIT_COMPLETE), 0);
    msg.addr = 99;
    EXPECT_EQ(fi_tsendmsg(a.ep.get(), &msg, 0), -FI_EINVAL);
}

TEST_F(FiFlags, a_receive_is_cancelled_once) {
    open();
    int mark = 0;
    Text got(4, ' ');
    trecv(got, 1, 0, &mark);
    EXPECT_EQ(fi_cancel(&b.ep->fid, &mark), 0);
    const auto error = next_error(b.rx);
    EXPECT_EQ(error.err, FI_ECANCELED);
    EXPECT_EQ(error.op_context, &mark);
    EXPECT_EQ(fi_cancel(&b.ep->fid, &mark), -FI_ENOENT);
    Text later(4, ' ');
    trecv(later, 1);
    tsend("text", 1);
    next(b.rx);
    EXPECT_EQ(later, "text");
}

TEST_F(FiFlags, one_buffer_takes_many_messages) {
    open({.caps = FI_MSG | FI_MULTI_RECV, .rx_op_flags = FI_MULTI_RECV});
    const std::size_t free_min = 64;
    ASSERT_EQ(
        fi_setopt(&b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &free_min, sizeof free_min),
        0);
    std::size_t told = 0;
    std::size_t length = sizeof told;
    ASSERT_EQ(fi_getopt(&b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &told, &length), 0);
    EXPECT_EQ(told, free_min);
    Text room(1000, ' ');
    int mark = 0;
    ASSERT_EQ(fi_recv(b.ep.get(), room.data(), room.size(), nullptr, FI_ADDR_UNSPEC, &mark), 0);
    const Text text = text_of(300);
    for (int i = 0; i < 3; ++i)
        retry([&] { return fi_send(a.ep.get(), text.data(), 300, nullptr, to_b, nullptr); });
    for (std::size_t i = 0; i < 3; ++i) {
        const auto entry = next(b.rx);
        EXPECT_EQ(entry.op_context, &mark);
        EXPECT_EQ(entry.flags, kMsgRecv);
        EXPECT_EQ(entry.buf, room.data() + 300 * i);
        EXPECT_EQ(room.substr(300 * i, 300), text);
    }
    EXPECT_TRUE(is_empty(b.rx)) << "100 bytes are left";
    retry([&] { return fi_send(a.ep.get(), text.data(), 40, nullptr, to_b, nullptr); });
    EXPECT_EQ(next(b.rx).len, 40U);
    const auto released = next(b.rx);
    EXPECT_EQ(released.flags, std::uint64_t{FI_MULTI_RECV});
    EXPECT_EQ(released.op_context, &mark);
}

TEST_F(FiFlags, only_what_asks_for_it_is_reported_by_a_selective_queue) {
    open({.bind_flags = FI_SELECTIVE_COMPLETION});
    int mark = 0;
    Text got(4, ' ');
    trecv(got, 1);
    tsend("text", 1);
    EXPECT_TRUE(is_empty(a.tx));
    EXPECT_TRUE(is_empty(b.rx));
    EXPECT_EQ(got, "text");
    ASSERT_EQ(trecvmsg(got, 1, FI_COMPLETION, &mark), 0);
    tsendmsg("more", 1, FI_COMPLETION, &mark);
    EXPECT_EQ(next(a.tx).op_context, &mark);
    EXPECT_EQ(next(b.rx).op_context, &mark);
    Text small(1, ' ');
    trecv(small, 1);
    tsend("text", 1);
    EXPECT_EQ(next_error(b.rx).err, FI_ETRUNC) << "errors always are";
}

}  // namespace

}  // namespace tagwire::fi_test
