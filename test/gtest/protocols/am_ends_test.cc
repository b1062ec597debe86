// SPDX-License-Identifier: BSD-3-Clause
// Active messages at their ends: flush, cancel, peers that go, a budget that is used up.
#include "protocols/am_inbox.hpp"

namespace tagwire::test {
namespace {

TEST_F(MsgAm, a_flush_ends_when_all_handlers_have_run) {
    AmInbox inbox(to(), kAmId);
    std::deque<Bytes> sent;
    int mark = 0, flushed = 0;
    for (int i = 0; i < 10; ++i) {
        for (const std::size_t length : kAmKinds) {
            sent.push_back(pattern(length, 1));
            begin(from(), to(), {}, sent.back(), &mark, i % 2 == 1 ? TW_OP_FENCE : 0);
        }
    }
    const tw_op_t how = op(&flushed);
    ASSERT_EQ(tw_ep_flush(from().to(to()), TW_FLUSH_DELIVERED, &how, nullptr), TW_INPROGRESS);
    EXPECT_EQ(end_of(from(), &flushed).status, TW_OK);
    EXPECT_EQ(inbox.seen.size(), sent.size());
    for (std::size_t i = 0; i < sent.size(); ++i)
        EXPECT_EQ(inbox.seen[i].data, sent[i]);
}

TEST_F(MsgAm, a_rendezvous_that_was_not_received_is_cancelled) {
    AmInbox inbox(to(), kAmId, Act::kKeep);
    const Bytes data = pattern(kRndv, 1);
    int sent = 0, got = 0;
    tw_request_h request = nullptr;
    const tw_op_t how = op(&sent), at = op(&got);
    ASSERT_EQ(
        tw_am_send(from().to(to()), kAmId, nullptr, 0, data.data(), data.size(), &how, &request),
        TW_INPROGRESS);
    run_until([&] { return inbox.has(1); });
    ASSERT_TRUE(inbox.seen[0].is_rndv);
    ASSERT_EQ(tw_request_cancel(request), TW_OK);
    EXPECT_EQ(end_of(from(), &sent).status, TW_ERR_CANCELED);
    Bytes received(kRndv);
    ASSERT_EQ(
        tw_message_recv(to().worker(), inbox.seen[0].message, received.data(), kRndv, &at, nullptr),
        TW_INPROGRESS);
    EXPECT_EQ(end_of(to(), &got).status, TW_ERR_CANCELED);
    // One that is released leaves no trace either.
    ASSERT_EQ(
        tw_am_send(from().to(to()), kAmId, nullptr, 0, data.data(), data.size(), &how, &request),
        TW_INPROGRESS);
    run_until([&] { return inbox.has(2); });
    ASSERT_EQ(tw_request_cancel(request), TW_OK);
    EXPECT_EQ(end_of(from(), &sent).status, TW_ERR_CANCELED);
    inbox.release(inbox.seen[1]);
    run_some();
    EXPECT_TRUE(keeps_nothing(to()));
    EXPECT_EQ(from().counter("garbage"), 0U);
    EXPECT_EQ(to().counter("garbage"), 0U);
}

TEST_F(MsgAm, a_message_that_has_gone_is_handled_although_it_was_cancelled) {
    AmInbox inbox(to(), kAmId);
    connect();
    for (const std::size_t length : {kShort, kEager}) {
        const Bytes data = pattern(length, 1);
        int sent = 0;
        tw_request_h request = nullptr;
        const tw_op_t how = op(&sent, TW_OP_DELIVERY_COMPLETE);
        ASSERT_EQ(tw_am_send(from().to(to()), kAmId, nullptr, 0, data.data(), data.size(), &how,
                             &request),
                  TW_INPROGRESS);
        ASSERT_EQ(tw_request_cancel(request), TW_OK);
        EXPECT_EQ(end_of(from(), &sent).status, TW_OK);
        run_until([&] { return inbox.has(1); });
        EXPECT_EQ(inbox.seen[0].data, data);
        inbox.seen.clear();
    }
}

TEST_F(MsgAm, what_was_kept_outlives_its_sender_but_for_data_that_is_still_there) {
    AmInbox inbox(to(), kAmId, Act::kKeep);
    std::deque<Bytes> sent;
    int mark = 0, got = 0;
    for (const std::size_t length : kAmKinds) {
        sent.push_back(pattern(length, 3));
        begin(from(), to(), pattern(30, 1), sent.back(), &mark);
    }
    run_until([&] { return inbox.has(std::size(kAmKinds)); });
    ASSERT_EQ(tw_ep_close(from().to(to()), TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
    for (std::size_t i = 0; i < sent.size(); ++i)
        EXPECT_EQ(end_of(from(), &mark).status, inbox.seen[i].is_rndv ? TW_ERR_CANCELED : TW_OK);
    run_until([&] {
        return std::ranges::any_of(to().events,
                                   [](const auto& event) { return event.event != TW_PEER_UP; });
    });
    for (std::size_t i = 0; i < sent.size(); ++i) {
        const AmInbox::Message& message = inbox.seen[i];
        EXPECT_EQ(std::memcmp(message.kept_header, pattern(30, 1).data(), 30), 0);
        Bytes received(sent[i].size());
        const tw_op_t how = op(&got);
        ASSERT_EQ(tw_message_recv(to().worker(), message.message, received.data(), received.size(),
                                  &how, nullptr),
                  TW_INPROGRESS);
        EXPECT_EQ(end_of(to(), &got).status, message.is_rndv ? TW_ERR_CONNECTION_RESET : TW_OK);
        EXPECT_TRUE(message.is_rndv || received == sent[i]);
    }
    EXPECT_TRUE(keeps_nothing(to()));
}

TEST_F(MsgAm, a_handler_may_close_by_force) {
    // The sender learns of it by seven retries, each time.
    const Settings settings({{"TAGWIRE_RC_TIMEOUT", "8ms"}, {"TAGWIRE_DC_TIMEOUT", "8ms"}});
    renew_context();
    for (const Act act : {Act::kUse, Act::kKeep, Act::kDrop}) {
        for (const std::size_t length : kAmKinds) {
            destroy_nodes();
            AmInbox inbox(to(), kAmId, act);
            tw_ep_h ep = to().to(from());
            const auto close = [&](const tw_am_t& am) {
                EXPECT_EQ(am.ep, ep);
                EXPECT_EQ(tw_ep_close(ep, TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
                tw_message_h message = nullptr;
                if (act != Act::kKeep) {
                    EXPECT_NE(tw_am_keep(const_cast<tw_am_t*>(&am), &message), TW_OK);
                }
            };
            inbox.also = close;
            const Bytes data = pattern(length, 3);
            int mark = 0;
            begin(from(), to(), pattern(30, 1), data, &mark, TW_OP_DELIVERY_COMPLETE);
            EXPECT_LT(end_of(from(), &mark).status, TW_OK);
            ASSERT_EQ(inbox.seen.size(), 1U);
            if (act == Act::kKeep)
                inbox.release(inbox.seen[0]);
            EXPECT_TRUE(keeps_nothing(to()));
        }
    }
}

/// A handler that receives what is long, keeps every second other message, and counts ends.
struct Counting {
    static void take(void* arg, tw_am_t* am) {
        auto& self = *static_cast<Counting*>(arg);
        tw_message_h message = nullptr;
        if ((am->flags & TW_AM_RNDV) != 0) {
            tw_op_t how{};
            how.flags = TW_OP_COMPLETION;
            how.context = &self;
            how.complete = [](const tw_completion_t* done) {
                ++static_cast<Counting*>(done->context)->ends;
            };
            Bytes& buffer = self.buffers.emplace_back(am->length);
            EXPECT_EQ(tw_message_recv(am->worker, am->message, buffer.data(), buffer.size(), &how,
                                      nullptr),
                      TW_INPROGRESS);
        } else if (++self.seen % 2 == 0 && tw_am_keep(am, &message) == TW_OK) {
            self.kept.push_back(message);
        }
    }

    std::deque<Bytes> buffers;
    std::vector<tw_message_h> kept;
    std::size_t ends = 0, seen = 0;
};

TEST_F(MsgAm, each_operation_ends_once_in_whatever_phase_an_endpoint_is_closed_by_force) {
    constexpr int kRounds = 8;
    constexpr std::size_t kLengths[] = {kShort, kRndv, kParts, 0, kEager, 4 * kRndv};
    for (int round = 0; round < kRounds; ++round) {
        destroy_nodes();
        Counting counting;
        ASSERT_EQ(tw_am_register(to().worker(), kAmId, &Counting::take, &counting), TW_OK);
        const bool by_sender = round % 2 == 0;
        tw_ep_h ep = by_sender ? from().to(to()) : to().to(from());
        std::deque<Bytes> sent;
        int mark = 0;
        for (const std::size_t length : kLengths) {
            sent.push_back(pattern(length, 1));
            begin(from(), to(), pattern(40, 1), sent.back(), &mark,
                  length % 3 == 0 ? TW_OP_DELIVERY_COMPLETE : 0);
        }
        for (int step = 0; step < round * round * 4; ++step) {
            from().progress();
            to().progress();
        }
        ASSERT_EQ(tw_ep_close(ep, TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
        run_until([&] { return from().done.size() >= std::size(kLengths); });
        run_some();
        // A transport that is full cannot tell the receiver, which gives up by itself then.
        tw_ep_h other = nullptr;
        if (counting.ends < counting.buffers.size() &&
            tw_ep_create_to(to().worker(), from().id(), nullptr, &other) == TW_OK) {
            EXPECT_EQ(tw_ep_close(other, TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
        }
        run_until([&] { return counting.ends == counting.buffers.size(); });
        EXPECT_EQ(from().done.size(), std::size(kLengths)) << round;
        EXPECT_EQ(counting.ends, counting.buffers.size());
        for (tw_message_h message : counting.kept)
            EXPECT_EQ(tw_message_drop(to().worker(), message), TW_OK);
        EXPECT_TRUE(keeps_nothing(to())) << to().description();
    }
}

TEST_F(MsgAm, a_worker_ends_with_messages_that_its_program_has) {
    AmInbox inbox(to(), kAmId, Act::kKeep);
    std::deque<Bytes> sent;
    int mark = 0;
    for (const std::size_t length : kAmKinds) {
        sent.push_back(pattern(length, 3));
        begin(from(), to(), {}, sent.back(), &mark, TW_OP_DELIVERY_COMPLETE);
    }
    run_until([&] { return inbox.has(std::size(kAmKinds)); });
    forget_last_node();
    for (std::size_t i = 0; i < sent.size(); ++i) {
        const tw_status_t status = end_of(from(), &mark).status;
        EXPECT_TRUE(status == TW_OK || inbox.seen[i].is_rndv) << tw_status_string(status);
    }
}

/// Its budget is small.
class MsgAmBudget : private Settings, public MsgAm {
  protected:
    MsgAmBudget()
        : Settings({{"TAGWIRE_UNEXPECTED_BYTES", "256k"},
                    {"TAGWIRE_UNEXPECTED_MAX", "200"},
                    {"TAGWIRE_RNDV_THRESHOLD", "8000"},
                    {"TAGWIRE_RNDV_SCHEME", "auto"}}) {}
};

TEST_F(MsgAmBudget, a_program_that_keeps_everything_pauses_its_sender_and_nothing_is_lost) {
    AmInbox inbox(to(), kAmId, Act::kKeep);
    constexpr unsigned kMessages = 1000;
    constexpr std::size_t kLength = 2000;
    std::deque<Bytes> sent;
    unsigned next = 0;
    const auto send_next = [&] {
        if (next == kMessages)
            return false;
        if (sent.size() == next)
            sent.push_back(pattern(next % 4 == 0 ? 8 : kLength, next));
        const tw_status_t status =
            tw_am_send(from().to(to()), kAmId, &next, sizeof next, sent.back().data(),
                       sent.back().size(), nullptr, nullptr);
        if (status == TW_ERR_NO_RESOURCE)
            return false;
        EXPECT_GE(status, TW_OK);
        ++next;
        return true;
    };
    run_until([&] {
        send_next();
        return to().counter("paused") > 0;
    });
    EXPECT_GT(to().counter("paused_eager"), 0U);
    run_until([&] { return !send_next(); });
    EXPECT_LT(next, kMessages);
    std::size_t taken = 0;
    int got = 0;
    run_until([&] {
        send_next();
        for (; taken < inbox.seen.size(); ++taken) {
            AmInbox::Message& message = inbox.seen[taken];
            unsigned number = 0;
            std::memcpy(&number, message.header.data(), sizeof number);
            EXPECT_EQ(number, taken);
            const tw_op_t how = op(&got);
            message.data.assign(message.length, {});
            EXPECT_EQ(tw_message_recv(to().worker(), message.message, message.data.data(),
                                      message.length, &how, nullptr),
                      TW_INPROGRESS);
        }
        return taken == kMessages;
    });
    for (unsigned i = 0; i < kMessages; ++i)
        EXPECT_EQ(end_of(to(), &got).status, TW_OK);
    for (unsigned i = 0; i < kMessages; ++i)
        EXPECT_EQ(inbox.seen[i].data, sent[i]) << i;
    EXPECT_TRUE(keeps_nothing(to()));
    EXPECT_TRUE(to().failures.empty());
}

}  // namespace
}  // namespace tagwire::test
