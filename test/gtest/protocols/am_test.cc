// SPDX-License-Identifier: BSD-3-Clause
// Active messages: handlers get header and data, in order, and keep, receive or drop them.
#include "protocols/am_inbox.hpp"

namespace tagwire::test {
namespace {

TEST_F(MsgAm, header_and_data_of_every_length_arrive) {
    constexpr std::size_t kHeaders[] = {0, 1, 8, 9, 100, TW_AM_HEADER_MAX};
    constexpr std::size_t kLengths[] = {0,    1,    7,    8,    9,    16,     87,    88,
                                        95,   96,   97,   103,  104,  105,    144,   145,
                                        500,  3800, 4032, 4048, 4064, 4096,   8000,  8224,
                                        8232, 8240, 8256, 8300, 9000, kParts, 65536, kRndv};
    AmInbox inbox(to(), kAmId);
    connect();
    for (const std::size_t header_length : kHeaders) {
        for (const std::size_t length : kLengths) {
            SCOPED_TRACE(std::to_string(header_length) + " and " + std::to_string(length));
            const Bytes header = pattern(header_length, 3), data = pattern(length, length);
            int mark = 0;
            send_plainly(from(), to(), header, data);
            begin(from(), to(), header, data, &mark);
            run_until([&] { return inbox.has(2); });
            ASSERT_EQ(inbox.seen.size(), 2U);
            for (const AmInbox::Message& message : inbox.seen) {
                EXPECT_EQ(message.header, header);
                EXPECT_EQ(message.data, data);
                EXPECT_EQ(message.source, from().id());
            }
            const tw_completion_t done = end_of(from(), &mark);
            EXPECT_EQ(done.status, TW_OK);
            EXPECT_EQ(done.flags, std::uint32_t{TW_DONE_SEND | TW_DONE_AM});
            EXPECT_EQ(done.length, length);
            EXPECT_EQ(done.tag, kAmId);
            inbox.seen.clear();
        }
    }
    EXPECT_TRUE(keeps_nothing(to()));
}

TEST_F(MsgAm, data_is_gathered_and_scattered) {
    AmInbox inbox(to(), kAmId, Act::kKeep);
    for (const std::size_t length : {kShort, kEager, kParts, kRndv}) {
        Bytes data = pattern(length, 1), received(length);
        const tw_iov_t out[] = {{data.data(), 5}, {data.data() + 5, length - 5}};
        const tw_iov_t in[] = {{received.data(), length - 3}, {received.data() + length - 3, 3}};
        int sent = 0, got = 0;
        const tw_op_t how = op(&sent), at = op(&got);
        ASSERT_EQ(tw_am_sendv(from().to(to()), kAmId, "head", 4, out, 2, &how, nullptr),
                  TW_INPROGRESS);
        run_until([&] { return inbox.has(1); });
        ASSERT_EQ(tw_message_recvv(to().worker(), inbox.seen[0].message, in, 2, &at, nullptr),
                  TW_INPROGRESS);
        const tw_completion_t done = end_of(to(), &got);
        EXPECT_EQ(done.status, TW_OK);
        EXPECT_EQ(done.length, length);
        EXPECT_EQ(done.tag, kAmId);
        EXPECT_EQ(done.source, from().id());
        EXPECT_EQ(received, data);
        EXPECT_EQ(end_of(from(), &sent).status, TW_OK);
        inbox.seen.clear();
    }
    EXPECT_TRUE(keeps_nothing(to()));
}

TEST_F(MsgAm, handlers_run_in_the_order_of_the_sends_among_other_messages) {
    std::vector<unsigned> order;
    AmInbox inbox(to(), kAmId);
    inbox.also = [&](const tw_am_t& am) {
        unsigned number = 0;
        std::memcpy(&number, am.header, sizeof number);
        order.push_back(number);
    };
    connect();
    constexpr unsigned kMessages = 120;
    struct Posted {
        std::vector<unsigned>* order;
        unsigned number;
    };
    std::deque<Posted> posted;
    std::deque<Bytes> sent;
    for (unsigned i = 0; i < kMessages; i += 3) {
        posted.push_back({&order, 0});
        tw_op_t how{};
        how.context = &posted.back();
        how.complete = [](const tw_completion_t* done) {
            const auto& its = *static_cast<Posted*>(done->context);
            its.order->push_back(its.number);
        };
        ASSERT_EQ(
            tw_msg_recv(to().worker(), &posted.back().number, sizeof(unsigned), &how, nullptr),
            TW_INPROGRESS);
    }
    for (unsigned i = 0; i < kMessages; ++i) {
        sent.push_back(pattern(kAmKinds[i / 3 % std::size(kAmKinds)], i));
        tw_status_t status = TW_ERR_NO_RESOURCE;
        run_until([&] {
            tw_op_t inject{};
            inject.flags = TW_OP_INJECT;
            status = i % 3 == 0
                         ? tw_msg_send(from().to(to()), &i, sizeof i, &inject, nullptr)
                         : tw_am_send(from().to(to()), kAmId, &i, sizeof i, sent.back().data(),
                                      sent.back().size(), nullptr, nullptr);
            return status != TW_ERR_NO_RESOURCE;
        });
        ASSERT_GE(status, TW_OK);
    }
    run_until([&] { return order.size() == kMessages && inbox.has(kMessages / 3 * 2); });
    ASSERT_EQ(order.size(), kMessages);
    for (unsigned i = 0; i < kMessages; ++i)
        EXPECT_EQ(order[i], i);
    for (unsigned i = 0, at = 0; i < kMessages; ++i)
        if (i % 3 != 0) {
            EXPECT_EQ(inbox.seen[at++].data, sent[i]) << i;
        }
}

TEST_F(MsgAm, what_a_handler_keeps_stays_until_it_is_released) {
    constexpr unsigned kRounds = 5;
    AmInbox inbox(to(), kAmId, Act::kKeep);
    std::deque<Bytes> sent;
    int mark = 0;
    for (unsigned i = 0; i < kRounds; ++i) {
        for (const std::size_t length : kAmKinds) {
            sent.push_back(pattern(length, i));
            begin(from(), to(), pattern(i * 50, i), sent.back(), &mark);
        }
    }
    run_until([&] { return inbox.has(kRounds * std::size(kAmKinds)); });
    ASSERT_EQ(inbox.seen.size(), sent.size());
    EXPECT_FALSE(keeps_nothing(to()));
    for (std::size_t i = 0; i < sent.size(); ++i) {
        AmInbox::Message& message = inbox.seen[i];
        const std::size_t header_length = message.header.size();
        EXPECT_EQ(header_length, i / std::size(kAmKinds) * 50);
        EXPECT_EQ(message.length, sent[i].size());
        EXPECT_TRUE(header_length == 0 ||
                    std::memcmp(message.kept_header, message.header.data(), header_length) == 0);
        if (message.is_rndv) {
            EXPECT_EQ(message.kept_data, nullptr);
        } else {
            ASSERT_NE(message.kept_data, nullptr);
            EXPECT_TRUE(sent[i].empty() ||
                        std::memcmp(message.kept_data, sent[i].data(), sent[i].size()) == 0);
        }
        inbox.release(message);
    }
    for (std::size_t i = 0; i < sent.size(); ++i)
        EXPECT_EQ(end_of(from(), &mark).status, TW_OK);
    EXPECT_TRUE(keeps_nothing(to()));
}

TEST_F(MsgAm, header_and_data_are_there_until_the_handler_returns_whatever_it_does) {
    for (const bool keeps : {false, true}) {
        for (const bool receives : {false, true}) {
            AmInbox inbox(to(), kAmId, keeps ? Act::kKeep : Act::kUse);
            std::deque<Bytes> received;
            int got = 0;
            inbox.also = [&](const tw_am_t& am) {
                const tw_op_t how = op(&got);
                Bytes& buffer = received.emplace_back(am.length);
                const bool has_name = am.message != nullptr;
                EXPECT_EQ(has_name && !receives ? tw_message_drop(am.worker, am.message) : TW_OK,
                          TW_OK);
                if (has_name && receives) {
                    EXPECT_EQ(tw_message_recv(am.worker, am.message, buffer.data(), buffer.size(),
                                              &how, nullptr),
                              TW_INPROGRESS);
                }
                const AmInbox::Message& seen = inbox.seen.back();
                EXPECT_TRUE(std::equal(seen.header.begin(), seen.header.end(),
                                       static_cast<const std::byte*>(am.header)));
                EXPECT_TRUE(am.data == nullptr ||
                            std::equal(seen.data.begin(), seen.data.end(),
                                       static_cast<const std::byte*>(am.data)));
            };
            for (const std::size_t length : kAmKinds) {
                const Bytes data = pattern(length, length);
                int sent = 0;
                begin(from(), to(), pattern(77, 1), data, &sent);
                EXPECT_EQ(end_of(from(), &sent).status, TW_OK);
                run_until([&] { return received.size() == inbox.seen.size(); });
            }
            run_until([&] { return inbox.seen.size() == std::size(kAmKinds); });
            run_some();
            EXPECT_TRUE(keeps_nothing(to()));
            to().done.clear();
        }
    }
}

TEST_F(MsgAm, a_message_is_received_later_into_a_buffer_of_the_program_once) {
    AmInbox inbox(to(), kAmId, Act::kKeep);
    for (const std::size_t length : kAmKinds) {
        const Bytes data = pattern(length, 9);
        int sent = 0, got = 0;
        begin(from(), to(), pattern(10, 1), data, &sent);
        run_until([&] { return inbox.has(1); });
        run_some();
        EXPECT_EQ(std::ranges::any_of(from().done,
                                      [&](const auto& done) { return done.context == &sent; }),
                  !inbox.seen[0].is_rndv);
        Bytes received(length + 1, std::byte{0xee});
        const tw_op_t how = op(&got);
        const tw_message_h message = inbox.seen[0].message;
        ASSERT_EQ(tw_message_recv(to().worker(), message, received.data(), length, &how, nullptr),
                  TW_INPROGRESS);
        EXPECT_EQ(tw_message_recv(to().worker(), message, received.data(), length, &how, nullptr),
                  TW_ERR_INVALID_PARAM);
        EXPECT_EQ(tw_message_drop(to().worker(), message), TW_ERR_INVALID_PARAM);
        const tw_completion_t done = end_of(to(), &got);
        EXPECT_EQ(done.status, TW_OK);
        EXPECT_EQ(done.flags, std::uint32_t{TW_DONE_RECV | TW_DONE_AM});
        EXPECT_EQ(done.length, length);
        EXPECT_EQ(received.back(), std::byte{0xee});
        received.pop_back();
        EXPECT_EQ(received, data);
        EXPECT_EQ(end_of(from(), &sent).status, TW_OK);
        inbox.seen.clear();
    }
    EXPECT_TRUE(keeps_nothing(to()));
}

TEST_F(MsgAm, a_buffer_that_is_too_short_gets_the_start) {
    AmInbox inbox(to(), kAmId, Act::kKeep);
    for (const std::size_t length : {kShort, kEager, kParts, kRndv}) {
        const Bytes data = pattern(length, 2);
        int sent = 0, got = 0;
        begin(from(), to(), {}, data, &sent);
        run_until([&] { return inbox.has(1); });
        Bytes start(length / 2);
        const tw_op_t how = op(&got);
        ASSERT_EQ(tw_message_recv(to().worker(), inbox.seen[0].message, start.data(), start.size(),
                                  &how, nullptr),
                  TW_INPROGRESS);
        const tw_completion_t done = end_of(to(), &got);
        EXPECT_EQ(done.status, TW_ERR_MESSAGE_TRUNCATED);
        EXPECT_EQ(done.length, length / 2);
        EXPECT_EQ(done.message_length, length);
        EXPECT_TRUE(std::equal(start.begin(), start.end(), data.begin()));
        EXPECT_EQ(end_of(from(), &sent).status, TW_OK);
        inbox.seen.clear();
    }
}

TEST_F(MsgAm, a_message_that_its_handler_drops_ends_for_its_sender) {
    AmInbox inbox(to(), kAmId, Act::kDrop);
    for (const std::uint32_t level :
         {0U, std::uint32_t{TW_OP_MATCH_COMPLETE}, std::uint32_t{TW_OP_DELIVERY_COMPLETE}}) {
        for (const std::size_t length : kAmKinds) {
            const Bytes data = pattern(length, 2);
            int sent = 0;
            begin(from(), to(), {}, data, &sent, level);
            EXPECT_EQ(end_of(from(), &sent).status, TW_OK);
        }
    }
    run_until([&] { return inbox.seen.size() == 3 * std::size(kAmKinds); });
    EXPECT_TRUE(keeps_nothing(to()));
}

TEST_F(MsgAm, an_id_without_a_handler_drops_its_messages) {
    AmInbox inbox(to(), kAmId);
    AmInbox removed(to(), 3);
    ASSERT_EQ(tw_am_register(to().worker(), 3, nullptr, nullptr), TW_OK);
    std::uint64_t dropped = 0;
    for (const unsigned id : {3U, 6U, unsigned{TW_AM_ID_MAX}}) {
        for (const std::size_t length : kAmKinds) {
            const Bytes data = pattern(length, 2), behind = pattern(length, 3);
            int first = 0, second = 0;
            begin(from(), to(), {}, data, &first, TW_OP_DELIVERY_COMPLETE, id);
            begin(from(), to(), {}, behind, &second);
            const tw_status_t status = end_of(from(), &first).status;
            run_until([&] { return inbox.has(1); });
            EXPECT_EQ(status, inbox.seen[0].is_rndv ? TW_ERR_NO_ELEM : TW_OK);
            EXPECT_EQ(inbox.seen[0].data, behind);
            EXPECT_EQ(end_of(from(), &second).status, TW_OK);
            EXPECT_EQ(to().counter("am_dropped"), ++dropped);
            inbox.seen.clear();
        }
    }
    EXPECT_TRUE(removed.seen.empty());
    EXPECT_TRUE(keeps_nothing(to()));
}

TEST_F(MsgAm, ids_reach_from_0_to_65535) {
    AmInbox first(to(), 0), last(to(), TW_AM_ID_MAX);
    send_plainly(from(), to(), {}, {}, 0);
    send_plainly(from(), to(), pattern(3, 1), {}, TW_AM_ID_MAX);
    run_until([&] { return first.has(1) && last.has(1); });
    EXPECT_EQ(last.seen[0].header, pattern(3, 1));
    AmInbox second(to(), 0);  // in place of the first
    send_plainly(from(), to(), {}, {}, 0);
    run_until([&] { return second.has(1); });
    EXPECT_EQ(first.seen.size(), 1U);
}

TEST_F(MsgAm, a_handler_replies_to_a_sender_that_it_did_not_know) {
    AmInbox requests(to(), kAmId), replies(from(), kAmId);
    requests.also = [&](const tw_am_t& am) {
        tw_ep_h ep = am.ep;
        if (ep == nullptr) {
            ASSERT_EQ(tw_ep_create_to(am.worker, am.source, nullptr, &ep), TW_OK);
        }
        EXPECT_GE(tw_am_send(ep, kAmId, am.header, am.header_length, nullptr, 0, nullptr, nullptr),
                  TW_OK);
    };
    for (std::size_t i = 1; i <= 3; ++i) {
        send_plainly(from(), to(), pattern(i, i), pattern(8, i));
        run_until([&] { return replies.has(i); });
        EXPECT_EQ(replies.seen[i - 1].header, pattern(i, i));
        EXPECT_EQ(replies.seen[i - 1].ep, from().to(to()));
    }
    EXPECT_EQ(requests.seen[0].ep, nullptr);
    EXPECT_EQ(requests.seen[1].ep, to().to(from()));
}

TEST_F(MsgAm, levels_of_completion_wait_for_the_handler) {
    AmInbox inbox(to(), kAmId);
    connect();
    for (const std::uint32_t level :
         {std::uint32_t{TW_OP_TRANSMIT_COMPLETE}, std::uint32_t{TW_OP_MATCH_COMPLETE},
          std::uint32_t{TW_OP_DELIVERY_COMPLETE}}) {
        for (const std::size_t length : kAmKinds) {
            const Bytes data = pattern(length, 4);
            int sent = 0;
            begin(from(), to(), pattern(5, 5), data, &sent, level);
            bool was_handled = true;
            run_until([&] {
                const bool is_over = has_ended(from(), &sent);
                if (is_over && level != TW_OP_TRANSMIT_COMPLETE)
                    was_handled = inbox.has(1);
                return is_over;
            });
            EXPECT_TRUE(was_handled) << length;
            EXPECT_EQ(end_of(from(), &sent).status, TW_OK);
            run_until([&] { return inbox.has(1); });
            EXPECT_EQ(inbox.seen[0].data, data);
            inbox.seen.clear();
        }
    }
}

TEST_F(MsgAm, injected_messages_leave_their_buffers_at_once) {
    tw_worker_attr_t attr{};
    ASSERT_EQ(tw_worker_query(from().worker(), &attr), TW_OK);
    const std::size_t most = attr.inject_bytes_max;
    AmInbox inbox(to(), kAmId);
    Bytes header = pattern(10, 1), data = pattern(most - 10, 2);
    const Bytes header_before = header, data_before = data;
    constexpr std::size_t kMessages = 50;
    for (std::size_t i = 0; i < kMessages; ++i) {  // the first ones wait for the connection
        int mark = 0;
        const tw_op_t how = op(&mark, TW_OP_INJECT);
        header = header_before;
        data = data_before;
        ASSERT_EQ(tw_am_send(from().to(to()), kAmId, header.data(), header.size(), data.data(),
                             data.size(), &how, nullptr),
                  TW_INPROGRESS);
        std::ranges::fill(header, std::byte{0xee});
        std::ranges::fill(data, std::byte{0xee});
    }
    run_until([&] { return inbox.has(kMessages); });
    for (const AmInbox::Message& message : inbox.seen) {
        EXPECT_EQ(message.header, header_before);
        EXPECT_EQ(message.data, data_before);
    }
    tw_op_t inject{};
    inject.flags = TW_OP_INJECT;
    EXPECT_EQ(tw_am_send(from().to(to()), kAmId, header.data(), header.size(), data.data(),
                         data.size() + 1, &inject, nullptr),
              TW_ERR_EXCEEDS_LIMIT);
}

TEST_F(MsgAm, invalid_calls_are_refused) {
    tw_worker_h worker = to().worker();
    tw_ep_h ep = from().to(to());
    tw_message_h message = nullptr;
    Bytes bytes(TW_AM_HEADER_MAX + 1);
    const auto ignore = [](void*, tw_am_t*) {};
    EXPECT_EQ(tw_am_register(nullptr, 1, ignore, nullptr), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_am_register(worker, TW_AM_ID_MAX + 1, ignore, nullptr), TW_ERR_INVALID_PARAM);
    const auto send = [&](tw_ep_h to, unsigned id, const void* header, std::size_t header_length,
                          const void* data, std::size_t length, std::uint32_t flags = 0) {
        tw_op_t how{};
        how.flags = flags;
        return tw_am_send(to, id, header, header_length, data, length, &how, nullptr);
    };
    EXPECT_EQ(send(nullptr, 1, nullptr, 0, nullptr, 0), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(send(ep, TW_AM_ID_MAX + 1, nullptr, 0, nullptr, 0), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(send(ep, 1, nullptr, 1, nullptr, 0), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(send(ep, 1, nullptr, 0, nullptr, 1), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(send(ep, 1, bytes.data(), bytes.size(), nullptr, 0), TW_ERR_EXCEEDS_LIMIT);
    EXPECT_EQ(send(ep, 1, nullptr, 0, nullptr, 0, TW_OP_IMM), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(send(ep, 1, nullptr, 0, nullptr, 0, 1U << 31), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_am_sendv(ep, 1, nullptr, 0, nullptr, 1, nullptr, nullptr), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_am_keep(nullptr, &message), TW_ERR_INVALID_PARAM);
    const auto receive = [&](tw_message_h what, std::uint32_t flags) {
        tw_op_t how{};
        how.flags = flags;
        return tw_message_recv(worker, what, bytes.data(), 8, &how, nullptr);
    };
    EXPECT_EQ(receive(nullptr, 0), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_message_drop(worker, nullptr), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_message_drop(nullptr, nullptr), TW_ERR_INVALID_PARAM);
    AmInbox inbox(to(), 1, Act::kKeep);
    inbox.also = [&](const tw_am_t& am) {
        EXPECT_EQ(tw_am_keep(const_cast<tw_am_t*>(&am), &message), TW_ERR_INVALID_PARAM);
    };
    send_plainly(from(), to(), {}, pattern(8, 1), 1);
    run_until([&] { return inbox.has(1); });
    EXPECT_EQ(receive(inbox.seen[0].message, TW_OP_IMM), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(receive(inbox.seen[0].message, 1U << 31), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(receive(inbox.seen[0].message, 0), TW_OK);
}

}  // namespace
}  // namespace tagwire::test
