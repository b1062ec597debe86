// SPDX-License-Identifier: BSD-3-Clause
// Messages of all lengths, expected and unexpected, tagged and not.
#include <algorithm>
#include <iterator>
#include <numeric>
#include <string_view>

#include "protocols/fixture.hpp"

namespace tagwire::test {
namespace {

constexpr std::size_t kSendLengths[] = {
    0,    1,    8,    63,    64,    95,    96,    97,    112,    1000,   4096,    8191,   8192,
    8240, 8256, 8300, 16384, 32767, 32768, 65535, 65536, 100000, 262144, 1048576, 5000000};

class MsgSend : public MsgTest {};

TEST_F(MsgSend, expected_messages_of_all_lengths_arrive) {
    Node& a = node(0);
    Node& b = node(1);
    for (const std::size_t length : kSendLengths) {
        const Bytes data = pattern(length, length);
        Bytes received(length + 1, std::byte{0xee});
        int sent = 0, got = 0;
        const tw_op_t receive = op(&got), transmit = op(&sent);
        ASSERT_EQ(tw_tag_recv(b.worker(), received.data(), length, 7, 0, &receive, nullptr),
                  TW_INPROGRESS);
        ASSERT_EQ(tw_tag_send(a.to(b), data.data(), length, 7, &transmit, nullptr), TW_INPROGRESS);
        const tw_completion_t done = end_of(b, &got);
        EXPECT_EQ(done.status, TW_OK) << length;
        EXPECT_EQ(done.length, length);
        EXPECT_EQ(done.message_length, length);
        EXPECT_EQ(done.tag, 7U);
        EXPECT_EQ(done.source, a.id());
        EXPECT_EQ(done.flags, unsigned{TW_DONE_RECV | TW_DONE_TAGGED});
        EXPECT_EQ(end_of(a, &sent).status, TW_OK);
        EXPECT_EQ(received.back(), std::byte{0xee});
        received.pop_back();
        EXPECT_EQ(received, data) << length;
    }
}

TEST_F(MsgSend, unexpected_messages_of_all_lengths_arrive_in_order) {
    Node& a = node(0);
    Node& b = node(1);
    std::vector<Bytes> data;
    int sent[std::size(kSendLengths)];
    for (std::size_t i = 0; i < std::size(kSendLengths); ++i)
        data.push_back(pattern(kSendLengths[i], i));
    for (std::size_t i = 0; i < std::size(kSendLengths); ++i) {
        const tw_op_t transmit = op(&sent[i]);
        ASSERT_EQ(tw_tag_send(a.to(b), data[i].data(), data[i].size(), 9, &transmit, nullptr),
                  TW_INPROGRESS);
    }
    run_until([&] { return b.counter("rx_unexpected") == std::size(kSendLengths); });
    for (std::size_t i = 0; i < std::size(kSendLengths); ++i) {
        Bytes received(kSendLengths[i]);
        int got = 0;
        const tw_op_t receive = op(&got);
        ASSERT_EQ(
            tw_tag_recv(b.worker(), received.data(), received.size(), 9, 0, &receive, nullptr),
            TW_INPROGRESS);
        EXPECT_EQ(end_of(b, &got).message_length, kSendLengths[i]);
        EXPECT_EQ(received, data[i]) << kSendLengths[i];
        EXPECT_EQ(end_of(a, &sent[i]).status, TW_OK);
    }
}

TEST_F(MsgSend, untagged_messages_do_not_meet_tagged_receives) {
    Node& a = node(0);
    Node& b = node(1);
    const Bytes data = pattern(100, 1);
    Bytes tagged(100), untagged(100);
    int tag_got = 0, msg_got = 0;
    const tw_op_t tag_op = op(&tag_got), msg_op = op(&msg_got);
    ASSERT_EQ(tw_tag_recv(b.worker(), tagged.data(), 100, 0, ~std::uint64_t{0}, &tag_op, nullptr),
              TW_INPROGRESS);
    ASSERT_EQ(tw_msg_recv(b.worker(), untagged.data(), 100, &msg_op, nullptr), TW_INPROGRESS);
    ASSERT_EQ(tw_msg_send(a.to(b), data.data(), 100, nullptr, nullptr), TW_INPROGRESS);
    const tw_completion_t done = end_of(b, &msg_got);
    EXPECT_EQ(done.flags, unsigned{TW_DONE_RECV});
    EXPECT_EQ(untagged, data);
    EXPECT_TRUE(b.done.empty());
}

TEST_F(MsgSend, a_longer_message_is_truncated_with_both_lengths) {
    Node& a = node(0);
    Node& b = node(1);
    for (const std::size_t length :
         {std::size_t{50}, std::size_t{5000}, std::size_t{20000}, std::size_t{300000}}) {
        const Bytes data = pattern(length, 3);
        Bytes received(length, std::byte{0});
        int sent = 0, got = 0;
        const tw_op_t receive = op(&got), transmit = op(&sent);
        ASSERT_EQ(tw_tag_recv(b.worker(), received.data(), length / 2, 7, 0, &receive, nullptr),
                  TW_INPROGRESS);
        ASSERT_EQ(tw_tag_send(a.to(b), data.data(), length, 7, &transmit, nullptr), TW_INPROGRESS);
        const tw_completion_t done = end_of(b, &got);
        EXPECT_EQ(done.status, TW_ERR_MESSAGE_TRUNCATED);
        EXPECT_EQ(done.length, length / 2);
        EXPECT_EQ(done.message_length, length);
        EXPECT_EQ(end_of(a, &sent).status, TW_OK);
        EXPECT_TRUE(std::equal(data.begin(), data.begin() + static_cast<long>(length / 2),
                               received.begin()));
        EXPECT_EQ(received[length / 2], std::byte{0});
    }
}

TEST_F(MsgSend, the_immediate_arrives_with_messages_of_all_kinds) {
    Node& a = node(0);
    Node& b = node(1);
    for (const std::size_t length :
         {std::size_t{8}, std::size_t{5000}, std::size_t{20000}, std::size_t{300000}}) {
        const Bytes data = pattern(length, 3);
        Bytes received(length);
        int got = 0;
        const tw_op_t receive = op(&got);
        ASSERT_EQ(tw_tag_recv(b.worker(), received.data(), length, 7, 0, &receive, nullptr),
                  TW_INPROGRESS);
        int sent = 0;
        tw_op_t transmit = op(&sent, TW_OP_IMM);
        transmit.imm = 0xfedcba9876543210;
        ASSERT_EQ(tw_tag_send(a.to(b), data.data(), length, 7, &transmit, nullptr), TW_INPROGRESS);
        const tw_completion_t done = end_of(b, &got);
        EXPECT_EQ(done.imm, 0xfedcba9876543210);
        EXPECT_EQ(done.flags, unsigned{TW_DONE_RECV | TW_DONE_TAGGED | TW_DONE_IMM});
        EXPECT_EQ(received, data);
        EXPECT_EQ(end_of(a, &sent).status, TW_OK);
    }
}

TEST_F(MsgSend, lists_are_gathered_and_scattered) {
    Node& a = node(0);
    Node& b = node(1);
    for (const std::size_t length :
         {std::size_t{40}, std::size_t{3000}, std::size_t{20000}, std::size_t{400000}}) {
        Bytes data = pattern(length, 3);
        Bytes received(length);
        const std::size_t third = length / 3;
        const tw_iov_t from[] = {{data.data(), 1},
                                 {nullptr, 0},
                                 {data.data() + 1, third},
                                 {data.data() + 1 + third, length - third - 1}};
        const tw_iov_t to[] = {{received.data(), 2 * third},
                               {received.data() + 2 * third, length - 2 * third}};
        int sent = 0, got = 0;
        const tw_op_t receive = op(&got), transmit = op(&sent);
        ASSERT_EQ(tw_tag_recvv(b.worker(), to, 2, 7, 0, &receive, nullptr), TW_INPROGRESS);
        ASSERT_EQ(tw_tag_sendv(a.to(b), from, 4, 7, &transmit, nullptr), TW_INPROGRESS);
        EXPECT_EQ(end_of(b, &got).status, TW_OK);
        EXPECT_EQ(end_of(a, &sent).status, TW_OK);
        EXPECT_EQ(received, data) << length;
    }
}

TEST_F(MsgSend, a_worker_sends_to_itself) {
    Node& a = node(0);
    for (const std::size_t length :
         {std::size_t{0}, std::size_t{8}, std::size_t{9000}, std::size_t{200000}}) {
        const Bytes data = pattern(length, 3);
        Bytes received(length);
        int sent = 0, got = 0;
        const tw_op_t receive = op(&got), transmit = op(&sent);
        ASSERT_EQ(tw_tag_recv(a.worker(), received.data(), length, 7, 0, &receive, nullptr),
                  TW_INPROGRESS);
        ASSERT_EQ(tw_tag_send(a.to(a), data.data(), length, 7, &transmit, nullptr), TW_INPROGRESS);
        EXPECT_EQ(end_of(a, &got).source, a.id());
        EXPECT_EQ(end_of(a, &sent).status, TW_OK);
        EXPECT_EQ(received, data);
    }
}

TEST_F(MsgSend, connects_that_cross_become_one) {
    Node& a = node(0);
    Node& b = node(1);
    a.to(b);
    b.to(a);
    const Bytes data = pattern(20, 1);
    for (int round = 0; round < 3; ++round) {
        for (auto [from, to] : {std::pair{&a, &b}, std::pair{&b, &a}}) {
            Bytes received(20);
            int got = 0;
            const tw_op_t receive = op(&got);
            ASSERT_EQ(tw_tag_recv(to->worker(), received.data(), 20, 7, 0, &receive, nullptr),
                      TW_INPROGRESS);
            send(*from, *to, data, 7);
            EXPECT_EQ(end_of(*to, &got).ep, to->to(*from));
        }
    }
    tw_worker_attr_t attr{};
    ASSERT_EQ(tw_worker_query(a.worker(), &attr), TW_OK);
    EXPECT_EQ(attr.endpoints, 1U);
}

TEST_F(MsgSend, the_lane_is_the_first_transport_that_was_named) {
    Node& a = node(0);
    Node& b = node(1);
    send(a, b, pattern(20, 1), 7);
    std::string found;
    const auto look = [](void* arg, const char* key, const char* value) {
        if (std::string_view(key).starts_with("endpoint_"))
            *static_cast<std::string*>(arg) = value;
    };
    ASSERT_EQ(tw_worker_describe(a.worker(), look, &found), TW_OK);
    EXPECT_EQ(found, "ready over " + lane_transport());
}

TEST_F(MsgSend, messages_of_many_lengths_keep_their_order) {
    Node& a = node(0);
    Node& b = node(1);
    constexpr int kMessages = 400;
    std::vector<Bytes> data, received;
    std::vector<int> marks(kMessages);
    for (int i = 0; i < kMessages; ++i) {
        const std::size_t length =
            static_cast<std::size_t>(i * 7919 % 97) * (i % 5 == 0 ? 1000 : 10);
        data.push_back(pattern(length, static_cast<std::uint64_t>(i)));
        received.emplace_back(std::size_t{100000});
    }
    for (int i = 0; i < kMessages; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const tw_op_t receive = op(&marks[at]);
        if (i % 2 == 0) {
            ASSERT_EQ(tw_tag_recv(b.worker(), received[at].data(), received[at].size(), 1, 0,
                                  &receive, nullptr),
                      TW_INPROGRESS);
        }
    }
    for (int i = 0; i < kMessages; ++i) {
        const auto at = static_cast<std::size_t>(i);
        tw_status_t status = TW_ERR_NO_RESOURCE;
        while ((status = tw_tag_send(a.to(b), data[at].data(), data[at].size(), 1, nullptr,
                                     nullptr)) == TW_ERR_NO_RESOURCE)
            a.progress();
        ASSERT_GE(status, TW_OK);
    }
    for (int i = 0; i < kMessages / 2; ++i) {
        const auto at = static_cast<std::size_t>(i) * 2;
        EXPECT_EQ(end_of(b, &marks[at]).message_length, data[static_cast<std::size_t>(i)].size());
    }
    for (int i = kMessages / 2; i < kMessages; ++i) {
        Bytes rest(100000);
        int got = 0;
        const tw_op_t receive = op(&got);
        ASSERT_EQ(tw_tag_recv(b.worker(), rest.data(), rest.size(), 1, 0, &receive, nullptr),
                  TW_INPROGRESS);
        const tw_completion_t done = end_of(b, &got);
        ASSERT_EQ(done.message_length, data[static_cast<std::size_t>(i)].size());
        rest.resize(done.length);
        EXPECT_EQ(rest, data[static_cast<std::size_t>(i)]) << i;
    }
}

/// The last completion that a callback was given, and the number of calls.
struct Told {
    tw_completion_t done{};
    int times = 0;

    static void hear(const tw_completion_t* done) {
        auto& told = *static_cast<Told*>(done->context);
        told.done = *done;
        ++told.times;
    }
    tw_op_t op() {
        tw_op_t result{};
        result.context = this;
        result.complete = hear;
        return result;
    }
};

// Nothing but buffer, tag and callback: operations that take the fast path where there is one.
TEST_F(MsgSend, plain_messages_of_all_short_lengths_end_in_callbacks) {
    for (const tw_thread_mode_t mode : {TW_THREAD_SINGLE, TW_THREAD_MULTI}) {
        Node a(context_.get(), mode), b(context_.get(), mode);
        const auto until = [&](const Told& told) {
            run_until([&] {
                a.progress();
                b.progress();
                return told.times > 0;
            });
        };
        for (std::size_t length = 0; length <= 130; ++length) {
            for (const bool is_tagged : {true, false}) {
                const Bytes data = pattern(length, length);
                Bytes received(length + 1, std::byte{0xee});
                Told told;
                const tw_op_t receive = told.op();
                const tw_status_t posted =
                    is_tagged
                        ? tw_tag_recv(b.worker(), received.data(), length, 3, 0, &receive, nullptr)
                        : tw_msg_recv(b.worker(), received.data(), length, &receive, nullptr);
                ASSERT_EQ(posted, TW_INPROGRESS);
                const tw_status_t sent =
                    is_tagged ? tw_tag_send(a.to(b), data.data(), length, 3, nullptr, nullptr)
                              : tw_msg_send(a.to(b), data.data(), length, nullptr, nullptr);
                ASSERT_GE(sent, TW_OK);
                until(told);
                EXPECT_EQ(told.times, 1);
                EXPECT_EQ(told.done.status, TW_OK);
                EXPECT_EQ(told.done.length, length);
                EXPECT_EQ(told.done.message_length, length);
                EXPECT_EQ(told.done.tag, is_tagged ? 3U : 0U);
                EXPECT_EQ(told.done.source, a.id());
                EXPECT_EQ(told.done.flags,
                          unsigned{TW_DONE_RECV} | (is_tagged ? unsigned{TW_DONE_TAGGED} : 0U));
                EXPECT_EQ(received.back(), std::byte{0xee});
                received.pop_back();
                EXPECT_EQ(received, data) << length;
            }
        }
    }
}

// The usage of MPI over libfabric: an immediate with every message, receives from one source.
TEST_F(MsgSend, plain_messages_with_an_immediate_end_in_directed_receives) {
    constexpr std::size_t kLonger[] = {255, 256, 257, 1000, 4096, 8191, 8192, 8240, 20000};
    std::vector<std::size_t> lengths(131);
    std::iota(lengths.begin(), lengths.end(), std::size_t{0});
    lengths.insert(lengths.end(), std::begin(kLonger), std::end(kLonger));
    for (const tw_thread_mode_t mode : {TW_THREAD_SINGLE, TW_THREAD_MULTI}) {
        Node a(context_.get(), mode), b(context_.get(), mode), other(context_.get(), mode);
        const auto until = [&](const Told& told) {
            run_until([&] {
                for (Node* each : {&a, &b, &other})
                    each->progress();
                return told.times > 0;
            });
        };
        for (const std::size_t length : lengths) {
            const bool is_tagged = length % 4 != 3;
            const auto post = [&](Bytes& into, Told& told, tw_ep_h source) {
                tw_op_t how = told.op();
                how.source = source;
                return is_tagged ? tw_tag_recv(b.worker(), into.data(), length, 3, 0, &how, nullptr)
                                 : tw_msg_recv(b.worker(), into.data(), length, &how, nullptr);
            };
            const auto send = [&](Node& from, const Bytes& data, std::uint64_t imm) {
                tw_op_t how{};
                how.flags = TW_OP_IMM;
                how.imm = imm;
                return is_tagged ? tw_tag_send(from.to(b), data.data(), length, 3, &how, nullptr)
                                 : tw_msg_send(from.to(b), data.data(), length, &how, nullptr);
            };
            const Bytes data = pattern(length, length), others = pattern(length, length + 1);
            Bytes directed(length + 1, std::byte{0xee}), any(length + 1, std::byte{0xee});
            Told told, told_any;
            ASSERT_EQ(post(directed, told, b.to(a)), TW_INPROGRESS);
            ASSERT_EQ(post(any, told_any, nullptr), TW_INPROGRESS);
            // The first receive is not for the other's message.
            ASSERT_GE(send(other, others, length + 7), TW_OK);
            until(told_any);
            EXPECT_EQ(told.times, 0);
            ASSERT_GE(send(a, data, ~std::uint64_t{0} - length), TW_OK);
            until(told);
            EXPECT_EQ(told.done.imm, ~std::uint64_t{0} - length);
            EXPECT_EQ(told_any.done.imm, length + 7);
            for (const Told* each : {&told, &told_any}) {
                EXPECT_EQ(each->times, 1);
                EXPECT_EQ(each->done.status, TW_OK);
                EXPECT_EQ(each->done.length, length);
                EXPECT_EQ(each->done.message_length, length);
                EXPECT_EQ(each->done.tag, is_tagged ? 3U : 0U);
                EXPECT_EQ(each->done.source, (each == &told ? a : other).id());
                EXPECT_EQ(each->done.flags, unsigned{TW_DONE_RECV | TW_DONE_IMM} |
                                                (is_tagged ? unsigned{TW_DONE_TAGGED} : 0U));
            }
            EXPECT_EQ(directed.back(), std::byte{0xee});
            EXPECT_EQ(any.back(), std::byte{0xee});
            directed.pop_back();
            any.pop_back();
            EXPECT_EQ(directed, data) << length;
            EXPECT_EQ(any, others) << length;
        }
    }
}

// A short message that is longer than its plain receive, and one that is cancelled.
TEST_F(MsgSend, plain_receives_are_truncated_and_cancelled_as_any) {
    Node& a = node(0);
    Node& b = node(1);
    const Bytes data = pattern(24, 1);
    Bytes received(10);
    Told cut, cancelled;
    const tw_op_t first = cut.op(), second = cancelled.op();
    tw_request_h request = nullptr;
    ASSERT_EQ(tw_tag_recv(b.worker(), received.data(), 10, 1, 0, &first, nullptr), TW_INPROGRESS);
    ASSERT_EQ(tw_tag_recv(b.worker(), received.data(), 10, 2, 0, &second, &request), TW_INPROGRESS);
    ASSERT_GE(tw_tag_send(a.to(b), data.data(), data.size(), 1, nullptr, nullptr), TW_OK);
    run_until([&] { return cut.times > 0; });
    EXPECT_EQ(cut.done.status, TW_ERR_MESSAGE_TRUNCATED);
    EXPECT_EQ(cut.done.length, 10U);
    EXPECT_EQ(cut.done.message_length, data.size());
    EXPECT_EQ(received, Bytes(data.begin(), data.begin() + 10));
    EXPECT_EQ(tw_request_cancel(request), TW_OK);
    run_until([&] { return cancelled.times > 0; });
    EXPECT_EQ(cancelled.done.status, TW_ERR_CANCELED);
    EXPECT_EQ(cancelled.done.request, request);
}

/// Takes the next message of a crowd in the callback of the one before.
struct Crowd {
    tw_worker_h worker;
    int received = 0;
    int depth = 0;
    int deepest = 0;

    void take() {
        tw_op_t op{};
        op.flags = TW_OP_COMPLETION;
        op.context = this;
        op.complete = [](const tw_completion_t* done) {
            auto& crowd = *static_cast<Crowd*>(done->context);
            crowd.deepest = std::max(crowd.deepest, ++crowd.depth);
            ++crowd.received;
            crowd.take();
            --crowd.depth;
        };
        EXPECT_EQ(tw_tag_recv(worker, nullptr, 0, 5, 0, &op, nullptr), TW_INPROGRESS);
    }
};

TEST_F(MsgSend, no_callback_runs_in_the_call_that_made_its_operation) {
    Node& a = node(0);
    Node& b = node(1);
    constexpr int kMessages = 200;
    for (int i = 0; i < kMessages; ++i)
        ASSERT_GE(tw_tag_send(a.to(b), nullptr, 0, 5, nullptr, nullptr), TW_OK);
    run_until([&] { return b.counter("rx_unexpected") == kMessages; });
    Crowd crowd{b.worker()};
    crowd.take();
    EXPECT_EQ(crowd.received, 0);
    run_until([&] { return crowd.received == kMessages; });
    EXPECT_EQ(crowd.deepest, 1);
}

// A program may send, and then compute or wait for something else.
TEST_F(MsgSend, messages_that_were_sent_at_once_arrive_without_the_sender) {
    Node& a = node(0);
    Node& b = node(1);
    for (Node* from : {&a, &b}) {
        Node& to = from == &a ? b : a;
        send(*from, to, {}, 9);
        expect_message(to, {}, 9);
    }
    run_some();
    const tw_ep_h ep = a.to(b);
    constexpr std::size_t kLengths[] = {0, 8, 100, 1000, 0, 8};
    const Bytes data = pattern(1000, 1);
    std::uint64_t sent = 0;
    for (const std::size_t length : kLengths)
        sent += tw_tag_send(ep, data.data(), length, 1, nullptr, nullptr) == TW_OK ? 1 : 0;
    // By its device, which may answer later: then progress is needed.
    if (offloads())
        GTEST_SKIP() << "sends of tagged messages end later";
    ASSERT_EQ(sent, std::size(kLengths));
    const std::uint64_t before = b.counter("rx_unexpected");
    constexpr int kSteps = 2'000'000;
    for (int i = 0; i < kSteps && b.counter("rx_unexpected") < before + sent; ++i)
        b.progress();
    EXPECT_EQ(b.counter("rx_unexpected"), before + sent);
}

}  // namespace
}  // namespace tagwire::test
