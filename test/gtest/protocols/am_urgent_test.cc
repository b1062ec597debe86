// SPDX-License-Identifier: BSD-3-Clause
// Urgent active messages (TW_OP_URGENT): they pass a pause and what waits at their sender.
#include <algorithm>
#include <cstdint>

#include "protocols/am_inbox.hpp"

namespace tagwire::test {
namespace {

constexpr unsigned kUrgentId = 9;

class MsgAmUrgent : private Settings, public MsgAm {
  protected:
    MsgAmUrgent()
        : Settings({{"TAGWIRE_UNEXPECTED_BYTES", "256k"},
                    {"TAGWIRE_UNEXPECTED_MAX", "200"},
                    {"TAGWIRE_REQUESTS_MAX", "256"},
                    {"TAGWIRE_TCP_SNDBUF", "32k"},
                    {"TAGWIRE_TCP_RCVBUF", "32k"},
                    {"TAGWIRE_RNDV_THRESHOLD", "8000"},
                    {"TAGWIRE_RNDV_SCHEME", "auto"}}) {}

    /// The receiver has as many messages that nobody receives as it takes.
    void be_paused() {
        run_until([&] {
            tw_tag_send(from().to(to()), nullptr, 0, 1, nullptr, nullptr);
            return is_paused();
        });
    }
    bool is_paused() {
        return from().description().find("paused by the peer") != std::string::npos;
    }
    tw_status_t try_send(const Bytes& data, std::uint32_t flags, int* mark,
                         unsigned id = kUrgentId) {
        const tw_op_t how = op(mark, flags);
        return tw_am_send(from().to(to()), id, nullptr, 0, data.data(), data.size(), &how, nullptr);
    }
    /// Its end has been polled.
    void send_urgent(const Bytes& data) {
        int mark = 0;
        ASSERT_EQ(try_send(data, TW_OP_URGENT, &mark), TW_INPROGRESS);
        EXPECT_EQ(end_of(from(), &mark).status, TW_OK);
    }
};

TEST_F(MsgAmUrgent, they_pass_a_pause_with_their_data) {
    AmInbox inbox(to(), kUrgentId);
    be_paused();
    int mark = 0;
    EXPECT_EQ(tw_am_send(from().to(to()), kUrgentId, nullptr, 0, nullptr, 0, nullptr, nullptr),
              TW_ERR_NO_RESOURCE)
        << "one that is not urgent";
    std::deque<Bytes> sent;
    for (const std::size_t length : {std::size_t{0}, std::size_t{8}, std::size_t{100},
                                     std::size_t{5000}, std::size_t{TW_AM_URGENT_MAX}})
        send_urgent(sent.emplace_back(pattern(length, length)));
    run_until([&] { return inbox.seen.size() == sent.size(); });
    for (std::size_t i = 0; i < sent.size(); ++i) {
        EXPECT_FALSE(inbox.seen[i].is_rndv);
        EXPECT_EQ(inbox.seen[i].data, sent[i]) << i;
    }
    EXPECT_TRUE(is_paused());
    const tw_op_t plain = op(&mark);
    EXPECT_EQ(tw_tag_send(from().to(to()), nullptr, 0, 1, &plain, nullptr), TW_ERR_NO_RESOURCE);
}

TEST_F(MsgAmUrgent, they_pass_paused_messages_that_have_all_requests) {
    AmInbox inbox(to(), kUrgentId);
    tw_ep_h const ep = from().to(to());
    run_some();
    tw_op_t how{};
    how.flags = TW_OP_INJECT;
    const auto is_sent = [&] {
        return tw_tag_send(ep, nullptr, 0, 1, &how, nullptr) != TW_ERR_NO_RESOURCE;
    };
    // The sender does not read that it is paused until all of its requests wait.
    for (int i = 0; i < 1000 && to().counter("paused") == 0; ++i) {
        is_sent();
        to().progress();
    }
    while (is_sent()) {
    }
    run_until([&] { return is_paused(); });
    how.flags = TW_OP_URGENT | TW_OP_INJECT;
    const Bytes data = pattern(200, 1);
    for (std::size_t i = 0; i < 300; ++i) {
        run_until([&] {
            return tw_am_send(ep, kUrgentId, nullptr, 0, data.data(), data.size(), &how, nullptr) >=
                   TW_OK;
        });
    }
    run_until([&] { return inbox.seen.size() == 300; });
}

TEST_F(MsgAmUrgent, no_number_of_them_is_too_much_for_a_receiver_that_keeps_none) {
    AmInbox inbox(to(), kUrgentId, Act::kUse);
    be_paused();
    const Bytes data = pattern(TW_AM_URGENT_MAX, 1);
    constexpr std::size_t kMessages = 1200;  // more than a paused peer may have on its way
    for (std::size_t i = 0; i < kMessages; ++i) {
        send_urgent(data);
        run_until([&] { return inbox.seen.size() == i + 1; });
        inbox.seen.back() = {};
    }
    EXPECT_TRUE(to().failures.empty());
    EXPECT_TRUE(from().failures.empty());
}

TEST_F(MsgAmUrgent, they_keep_their_order_and_pass_what_waits) {
    AmInbox urgent(to(), kUrgentId);
    AmInbox plain(to(), kAmId);
    // Both kinds take turns, so not each passes all that waits.
    std::size_t plain_before_first = SIZE_MAX;
    urgent.also = [&](const tw_am_t&) {
        plain_before_first = std::min(plain_before_first, plain.seen.size());
    };
    // The receiver makes no progress: some of these wait, the last one perhaps in part.
    from().to(to());
    run_some();
    std::deque<Bytes> sent;
    int plain_mark = 0;
    const auto waits = [&] { return from().description().find(" waiting") != std::string::npos; };
    for (std::size_t i = 0; i < 100000 && (i % 10 != 0 || !waits()); ++i) {
        sent.push_back(pattern(i % 50 == 0 ? 7000 : 60, i));
        const tw_status_t status = try_send(sent.back(), 0, &plain_mark, kAmId);
        if (status == TW_ERR_NO_RESOURCE) {
            sent.pop_back();
            break;
        }
        ASSERT_EQ(status, TW_INPROGRESS);
        from().progress();
    }
    ASSERT_TRUE(waits()) << from().description();
    std::deque<Bytes> sent_urgently;
    int urgent_mark = 0;
    for (std::size_t i = 0; i < 20; ++i) {
        sent_urgently.push_back(pattern(i % 3 == 0 ? TW_AM_URGENT_MAX : i, 100 + i));
        ASSERT_EQ(try_send(sent_urgently.back(), TW_OP_URGENT, &urgent_mark), TW_INPROGRESS);
    }
    run_until([&] {
        return urgent.seen.size() == sent_urgently.size() && plain.seen.size() == sent.size();
    });
    for (std::size_t i = 0; i < sent_urgently.size(); ++i)
        EXPECT_EQ(urgent.seen[i].data, sent_urgently[i]) << i;
    for (std::size_t i = 0; i < sent.size(); ++i)
        EXPECT_EQ(plain.seen[i].data, sent[i]) << i;
    EXPECT_LT(plain_before_first, sent.size());
}

TEST_F(MsgAmUrgent, one_with_a_fence_is_behind_all_before_it) {
    AmInbox urgent(to(), kUrgentId);
    AmInbox plain(to(), kAmId);
    std::size_t plain_before = 0;
    urgent.also = [&](const tw_am_t&) {
        plain_before = urgent.seen.size() == 1 ? plain.seen.size() : plain_before;
    };
    from().to(to());
    run_some();
    std::deque<Bytes> sent;
    int plain_mark = 0;
    for (std::size_t i = 0; i < 200; ++i) {
        sent.push_back(pattern(3000, i));
        ASSERT_EQ(try_send(sent.back(), TW_OP_DELIVERY_COMPLETE, &plain_mark, kAmId),
                  TW_INPROGRESS);
    }
    int mark = 0;
    const Bytes first = pattern(8, 1);
    const Bytes second = pattern(8, 2);
    ASSERT_EQ(try_send(first, TW_OP_URGENT | TW_OP_FENCE, &mark), TW_INPROGRESS);
    ASSERT_EQ(try_send(second, TW_OP_URGENT, &mark), TW_INPROGRESS);
    run_until([&] { return urgent.seen.size() == 2; });
    EXPECT_EQ(plain_before, sent.size());
    EXPECT_EQ(urgent.seen[0].data, first);
    EXPECT_EQ(urgent.seen[1].data, second);
}

TEST_F(MsgAmUrgent, a_flush_is_behind_those_before_it_although_messages_are_paused) {
    AmInbox urgent(to(), kUrgentId);
    be_paused();
    const Bytes data = pattern(TW_AM_URGENT_MAX, 1);
    int marks[40];
    for (int& mark : marks)
        ASSERT_EQ(try_send(data, TW_OP_URGENT, &mark), TW_INPROGRESS);
    int flushed = 0;
    const tw_op_t how = op(&flushed);
    ASSERT_EQ(tw_ep_flush(from().to(to()), TW_FLUSH_DELIVERED, &how, nullptr), TW_INPROGRESS);
    EXPECT_EQ(end_of(from(), &flushed).status, TW_OK);
    EXPECT_EQ(urgent.seen.size(), std::size(marks));
}

TEST_F(MsgAmUrgent, one_that_waits_can_be_cancelled_and_ends_with_its_endpoint) {
    int marks[2000];
    const Bytes data = pattern(TW_AM_URGENT_MAX, 1);
    tw_request_h last = nullptr;
    tw_ep_h const ep = from().to(to());
    std::size_t count = 0;
    for (int& mark : marks) {
        const tw_op_t how = op(&mark, TW_OP_URGENT);
        const tw_status_t status =
            tw_am_send(ep, kUrgentId, nullptr, 0, data.data(), data.size(), &how, &last);
        if (status == TW_ERR_NO_RESOURCE)
            break;
        ASSERT_EQ(status, TW_INPROGRESS);
        ++count;
    }
    EXPECT_EQ(tw_request_cancel(last), TW_OK);
    EXPECT_EQ(end_of(from(), &marks[count - 1]).status, TW_ERR_CANCELED);
    EXPECT_GE(tw_ep_close(ep, TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
    for (std::size_t i = 0; i + 1 < count; ++i)
        end_of(from(), &marks[i]);
}

TEST_F(MsgAmUrgent, what_cannot_be_urgent_is_refused) {
    int mark = 0;
    EXPECT_EQ(try_send(pattern(TW_AM_URGENT_MAX + 1, 1), TW_OP_URGENT, &mark),
              TW_ERR_EXCEEDS_LIMIT);
    for (const std::uint32_t level : {TW_OP_TRANSMIT_COMPLETE, TW_OP_DELIVERY_COMPLETE,
                                      TW_OP_MATCH_COMPLETE, TW_OP_SENT_COMPLETE})
        EXPECT_EQ(try_send({}, TW_OP_URGENT | level, &mark), TW_ERR_INVALID_PARAM);
    const tw_op_t how = op(&mark, TW_OP_URGENT);
    EXPECT_EQ(tw_tag_send(from().to(to()), nullptr, 0, 1, &how, nullptr), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_msg_send(from().to(to()), nullptr, 0, &how, nullptr), TW_ERR_INVALID_PARAM);
}

}  // namespace
}  // namespace tagwire::test
