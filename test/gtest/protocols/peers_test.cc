// SPDX-License-Identifier: BSD-3-Clause
// Peers that come, leave, and fail: what is under way then, and what is heard of them.
#include "protocols/fixture.hpp"

namespace tagwire::test {
namespace {

class MsgPeers : public MsgTest {
  protected:
    void close(Node& at, tw_ep_h ep) {
        int mark = 0;
        const tw_op_t how = op(&mark);
        if (tw_ep_close(ep, TW_FLUSH_DELIVERED, &how, nullptr) == TW_INPROGRESS) {
            EXPECT_EQ(end_of(at, &mark).status, TW_OK);
        }
    }
    static std::size_t endpoints(const Node& at) {
        tw_worker_attr_t attr{};
        EXPECT_EQ(tw_worker_query(at.worker(), &attr), TW_OK);
        return attr.endpoints;
    }
    void greet(Node& from, Node& to) {
        send(from, to, {}, 9);
        expect_message(to, {}, 9);
    }
};

// The one with the lower id asks whether it may leave, the other one answers that it has.
TEST_F(MsgPeers, an_endpoint_to_oneself_that_was_closed_while_it_greeted_can_be_made_anew) {
    for (int calls = 0; calls < 16; ++calls) {
        Node self(context_.get());
        self.to(self);
        for (int i = 0; i < calls; ++i)
            self.progress();
        EXPECT_EQ(tw_ep_close(self.to(self), TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
        int sent = 0, got = 0;
        const tw_op_t how = op(&sent, TW_OP_DELIVERY_COMPLETE), receive = op(&got);
        char byte = 0;
        ASSERT_EQ(tw_tag_recv(self.worker(), &byte, 1, 1, 0, &receive, nullptr), TW_INPROGRESS);
        ASSERT_EQ(tw_tag_send(self.to(self), "x", 1, 1, &how, nullptr), TW_INPROGRESS);
        run_until([&] {
            self.progress();
            return self.done.size() == 2;
        });
        for (const tw_completion_t& done : self.done)
            EXPECT_EQ(done.status, TW_OK) << calls;
        EXPECT_TRUE(self.failures.empty()) << calls;
        EXPECT_EQ(self.counter("garbage"), 0U) << calls;
    }
}

class MsgUnasked : private Settings, public MsgPeers {
  protected:
    static constexpr std::size_t kMost = 4;
    MsgUnasked() : Settings({{"TAGWIRE_UNASKED_PEERS_MAX", std::to_string(kMost)}}) {}
};

TEST_F(MsgUnasked, more_peers_than_may_come_unasked_are_sent_away) {
    constexpr std::size_t kCome = 3 * kMost;
    Node& server = node(0);
    for (std::size_t i = 1; i <= kCome; ++i)
        ASSERT_GE(tw_tag_send(node(i).to(server), "x", 1, 1, nullptr, nullptr), TW_OK);
    std::size_t refused = 0;
    run_until([&] {
        refused = 0;
        for (std::size_t i = 1; i <= kCome; ++i)
            refused += node(i).failures.empty() ? 0 : 1;
        return refused == kCome - kMost && endpoints(server) == kMost;
    });
    for (std::size_t i = 1; i <= kCome; ++i) {
        if (!node(i).failures.empty()) {
            EXPECT_EQ(node(i).failures[0].second, TW_ERR_CONNECTION_RESET);
        }
    }
    // The program may ask for any number, and then has room for another one that it has not.
    Node& late = node(kCome + 1);
    greet(server, late);
    for (std::size_t i = 1; i <= kCome; ++i) {
        if (node(i).failures.empty()) {
            tw_ep_h ep = nullptr;
            ASSERT_EQ(tw_ep_create_to(server.worker(), node(i).id(), nullptr, &ep), TW_OK);
            break;
        }
    }
    greet(node(kCome + 2), server);
    run_some();
    EXPECT_TRUE(late.failures.empty());
    EXPECT_TRUE(node(kCome + 2).failures.empty());
    EXPECT_TRUE(server.failures.empty());
}

// A short message ends its receive at once, a long one takes steps. With one buffer or several.
TEST_F(MsgPeers, a_directed_receive_outlives_the_endpoint_that_it_was_posted_with) {
    for (const auto& [length, buffers] :
         {std::pair{10, 1U}, std::pair{10, 2U}, std::pair{20000, 1U}, std::pair{20000, 2U}}) {
        Node& b = node(node(0).id() < node(1).id() ? 0 : 1);
        Node& a = node(node(0).id() < node(1).id() ? 1 : 0);
        greet(a, b);
        greet(b, a);
        int mark = 0;
        tw_op_t how = op(&mark);
        how.source = a.to(b);
        Bytes buffer(static_cast<std::size_t>(length));
        const std::size_t first = buffer.size() / buffers;
        const tw_iov_t iov[] = {{buffer.data(), first},
                                {buffer.data() + first, buffer.size() - first}};
        ASSERT_EQ(tw_tag_recvv(a.worker(), iov, buffers, 1, 0, &how, nullptr), TW_INPROGRESS);
        close(a, a.to(b));
        close(b, b.to(a));
        run_until([&] { return a.description().find("has left") != std::string::npos; });
        a.to(b);
        run_some();
        const Bytes data = pattern(buffer.size(), 1);
        send(b, a, data, 1);
        EXPECT_EQ(end_of(a, &mark).status, TW_OK);
        EXPECT_EQ(buffer, data);
        destroy_nodes();
    }
}

TEST_F(MsgPeers, a_receiver_replies_to_whom_it_knows_from_a_message_alone) {
    Node& client = node(0);
    Node& server = node(1);
    int asked = 0, told = 0;
    const tw_op_t question = op(&asked), reply = op(&told);
    Bytes buffer(10), answer(10);
    ASSERT_EQ(tw_tag_recv(server.worker(), buffer.data(), 10, 1, 0, &question, nullptr),
              TW_INPROGRESS);
    ASSERT_EQ(tw_tag_recv(client.worker(), answer.data(), 10, 2, 0, &reply, nullptr),
              TW_INPROGRESS);
    tw_ep_h ep = nullptr;
    EXPECT_EQ(tw_ep_create_to(server.worker(), client.id(), nullptr, &ep), TW_ERR_NO_ELEM)
        << "it has not come yet";
    send(client, server, pattern(10, 1), 1);
    const tw_completion_t done = end_of(server, &asked);
    EXPECT_EQ(done.source, client.id());
    EXPECT_EQ(done.ep, nullptr);
    ASSERT_EQ(tw_ep_create_to(server.worker(), done.source, &server, &ep), TW_OK);
    EXPECT_EQ(tw_ep_find(server.worker(), client.id()), ep);
    EXPECT_EQ(tw_ep_user_data(ep), &server);
    tw_ep_h again = nullptr;
    EXPECT_EQ(tw_ep_create_to(server.worker(), done.source, nullptr, &again),
              TW_ERR_ALREADY_EXISTS);
    EXPECT_EQ(again, nullptr);
    ASSERT_GE(tw_tag_send(ep, pattern(10, 2).data(), 10, 2, nullptr, nullptr), TW_OK);
    EXPECT_EQ(end_of(client, &told).status, TW_OK);
    EXPECT_EQ(answer, pattern(10, 2));
}

TEST_F(MsgPeers, a_receive_only_worker_hears_of_a_peer_that_closes) {
    Node& client = node(0);
    Node& server = node(1);
    for (std::size_t round = 1; round <= 3; ++round) {
        greet(client, server);
        close(client, client.to(server));
        run_until([&] {
            return server.events.size() == 2 * round && client.events.size() == 2 * round &&
                   endpoints(server) == 0 && endpoints(client) == 0;
        });
        EXPECT_EQ(server.events[2 * round - 2], (Node::PeerEvent{client.id(), TW_PEER_UP, TW_OK}));
        EXPECT_EQ(server.events.back(), (Node::PeerEvent{client.id(), TW_PEER_CLOSED, TW_OK}));
        EXPECT_EQ(client.events.back(), (Node::PeerEvent{server.id(), TW_PEER_CLOSED, TW_OK}));
    }
    EXPECT_TRUE(client.failures.empty() && server.failures.empty());
}

TEST_F(MsgPeers, a_program_with_an_endpoint_hears_that_the_other_one_has_closed_and_comes_back) {
    Node& client = node(0);
    Node& server = node(1);
    greet(client, server);
    greet(server, client);
    using Events = std::vector<Node::PeerEvent>;
    const std::uint64_t id = client.id();
    Events expected{{id, TW_PEER_UP, TW_OK}};
    for (int round = 0; round < 2; ++round) {
        close(client, client.to(server));
        expected.push_back({id, TW_PEER_LEFT, TW_OK});
        run_until([&] { return server.events.size() == expected.size(); });
        const Bytes late = pattern(10, 1);
        send(server, client, late, 2);
        expect_message(client, late, 2);
        greet(client, server);
        expected.push_back({id, TW_PEER_BACK, TW_OK});
        run_until([&] { return server.events.size() == expected.size(); });
    }
    EXPECT_EQ(server.events, expected);
    close(client, client.to(server));
    close(server, server.to(client));
    run_until([&] { return endpoints(server) == 0 && endpoints(client) == 0; });
    EXPECT_EQ(server.events.back(), (Node::PeerEvent{id, TW_PEER_CLOSED, TW_OK}));
    EXPECT_TRUE(client.failures.empty() && server.failures.empty());
}

TEST_F(MsgPeers, a_worker_that_goes_in_order_has_not_failed) {
    Node& client = node(0);
    Node& server = node(1);
    Node& third = node(2);
    const std::uint64_t id = client.id();
    greet(client, server);
    greet(client, third);
    greet(third, client);
    client.destroy();
    run_until([&] { return server.events.size() == 2 && third.failures.size() == 1; });
    EXPECT_EQ(server.events[1], (Node::PeerEvent{id, TW_PEER_CLOSED, TW_ERR_NOT_CONNECTED}));
    EXPECT_TRUE(server.failures.empty());
    EXPECT_EQ(third.failures[0].second, TW_ERR_NOT_CONNECTED);
    run_until([&] { return third.events.size() == 2; });
    EXPECT_EQ(third.events[1], (Node::PeerEvent{id, TW_PEER_CLOSED, TW_ERR_NOT_CONNECTED}));
}

// Whatever of the first contact is still on its way, or lies unread in a socket.
TEST_F(MsgPeers, a_worker_that_goes_in_order_right_after_connecting_has_not_failed) {
    constexpr int kCallsMax = 24;
    for (const bool both_send : {false, true}) {
        for (int calls = 0; calls < kCallsMax; ++calls) {
            SCOPED_TRACE(testing::Message() << calls << " calls" << (both_send ? ", both" : ""));
            Node server(context_.get());
            Node client(context_.get());
            const std::uint64_t id = client.id();
            int sent = 0;
            const tw_op_t how = op(&sent);
            tw_tag_send(client.to(server), nullptr, 0, 9, &how, nullptr);
            if (both_send)
                tw_tag_send(server.to(client), nullptr, 0, 9, &how, nullptr);
            const auto progress = [&] {
                client.progress();
                server.progress();
            };
            run_until([&] {
                progress();
                return !server.events.empty() && server.counter("rx_unexpected") == 1;
            });
            for (int i = 0; i < calls; ++i)
                progress();
            client.destroy();
            run_until([&] {
                server.progress();
                return server.events.size() == 2 ||
                       (!server.failures.empty() && server.events.size() != 1);
            });
            ASSERT_EQ(server.events.size(), 2U);
            EXPECT_EQ(server.events[1],
                      (Node::PeerEvent{id, TW_PEER_CLOSED, TW_ERR_NOT_CONNECTED}));
            for (const auto& [ep, status] : server.failures)
                EXPECT_EQ(status, TW_ERR_NOT_CONNECTED);
        }
    }
}

TEST_F(MsgPeers, a_worker_that_goes_amid_a_message_has_failed) {
    Node& client = node(0);
    Node& server = node(1);
    const std::uint64_t id = client.id();
    greet(client, server);
    const Bytes data = pattern(300000, 1);
    int mark = 0;
    send_unexpected(client, server, data, 1, op(&mark, TW_OP_DELIVERY_COMPLETE));
    client.destroy();
    run_until([&] { return server.events.size() == 2; });
    EXPECT_EQ(server.events[1].worker_id, id);
    EXPECT_EQ(server.events[1].event, TW_PEER_FAILED);
    EXPECT_NE(server.events[1].status, TW_ERR_NOT_CONNECTED);
}

TEST_F(MsgPeers, a_forced_close_is_in_order_here_and_a_failure_there) {
    Node& a = node(0);
    Node& b = node(1);
    greet(a, b);
    greet(b, a);
    EXPECT_EQ(tw_ep_close(a.to(b), TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
    EXPECT_EQ(a.events.size(), 1U) << "told in progress only";
    run_until([&] { return a.events.size() == 2 && b.events.size() == 2; });
    EXPECT_EQ(a.events[1], (Node::PeerEvent{b.id(), TW_PEER_CLOSED, TW_ERR_CANCELED}));
    EXPECT_EQ(b.events[1], (Node::PeerEvent{a.id(), TW_PEER_FAILED, TW_ERR_CONNECTION_RESET}));
    ASSERT_EQ(b.failures.size(), 1U);
    EXPECT_EQ(b.failures[0].second, TW_ERR_CONNECTION_RESET);
}

TEST_F(MsgPeers, a_worker_forgets_peers_that_have_gone_but_nothing_that_is_kept_of_them) {
    if (transports() != "sm")
        GTEST_SKIP() << "what is remembered does not depend on the transport";
    constexpr int kPeers = 400;
    constexpr std::size_t kRememberedMax = 250;
    Node& server = node(0);
    Node& lasting = node(1);
    greet(server, lasting);
    greet(lasting, server);
    int mark = 0;
    tw_op_t from_lasting = op(&mark);
    from_lasting.source = server.to(lasting);
    const Bytes data = pattern(10, 5);
    for (int i = 0; i < kPeers; ++i) {
        Node client(context_.get());
        const unsigned more = i == 0 ? 1 : 0;
        for (unsigned sent = 0; sent < 1 + more; ++sent)
            ASSERT_GE(tw_tag_send(client.to(server), data.data(), 10, 5 + sent, nullptr, nullptr),
                      TW_OK);
        const std::uint64_t before = server.counter("rx_unexpected");
        run_until([&] {
            client.progress();
            return server.counter("rx_unexpected") > before + more;
        });
        if (i > 0)
            expect_message(server, data, 5);
    }
    const std::string text = server.description();
    const std::size_t at = text.find(" connected, ");
    ASSERT_NE(at, std::string::npos) << text;
    EXPECT_LT(std::stoul(text.substr(at + 12)), kRememberedMax);
    // The first message of all is still there, and nobody is taken for somebody else.
    Bytes buffer(10);
    ASSERT_EQ(tw_tag_recv(server.worker(), buffer.data(), 10, 6, 0, &from_lasting, nullptr),
              TW_INPROGRESS);
    run_some();
    EXPECT_TRUE(server.done.empty());
    send(lasting, server, pattern(10, 7), 6);
    EXPECT_EQ(end_of(server, &mark).status, TW_OK);
    EXPECT_EQ(buffer, pattern(10, 7));
    expect_message(server, data, 6);
}

TEST_F(MsgPeers, a_worker_that_cannot_be_reached_is_told_of_once_with_the_reason) {
    if (transports() != "sm")
        GTEST_SKIP() << "a verbs device does not know whether anybody is there";
    Bytes address;
    {
        const Node gone(context_.get());
        address = gone.address();
    }
    Node& a = node(0);
    const tw_ep_params_t params{
        .address = address.data(), .address_length = address.size(), .user_data = nullptr};
    ::testing::internal::CaptureStderr();
    for (int i = 0; i < 3; ++i) {
        tw_ep_h ep = nullptr;
        EXPECT_EQ(tw_ep_create(a.worker(), &params, &ep), TW_ERR_UNREACHABLE);
    }
    const std::string log = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(log.find("over sm:memory: nothing accepts connections there"), std::string::npos)
        << log;
    EXPECT_EQ(log.find("cannot be reached"), log.rfind("cannot be reached")) << log;
    EXPECT_EQ(log.find("error"), std::string::npos) << log;
}

TEST_F(MsgPeers, a_worker_hears_nothing_of_itself) {
    Node& a = node(0);
    greet(a, a);
    close(a, a.to(a));
    run_until([&] { return endpoints(a) == 0; });
    EXPECT_TRUE(a.events.empty());
}

/// Reads of long messages take many steps.
class MsgLongRead : private Settings, public MsgTest {
  protected:
    static constexpr std::size_t kRead = std::size_t{32} << 20;

    MsgLongRead() : Settings({{"TAGWIRE_RNDV_THRESHOLD", "128k"}, {"TAGWIRE_SM_CMA", "off"}}) {}
};

TEST_F(MsgLongRead, a_read_ends_as_its_endpoint_does) {
    if (transports() != "sm")
        GTEST_SKIP() << "elsewhere a device reads, and the read may end first";
    Node& sender = node(0);
    Node& reader = node(1);
    const Bytes data = pattern(kRead, 1);
    Bytes buffer(kRead);
    int mark = 0;
    const tw_op_t how = op(&mark);
    ASSERT_EQ(tw_tag_recv(reader.worker(), buffer.data(), kRead, 1, 0, &how, nullptr),
              TW_INPROGRESS);
    ASSERT_GE(tw_tag_send(sender.to(reader), data.data(), kRead, 1, nullptr, nullptr), TW_OK);
    run_until([&] { return reader.counter("rndv_get") == 1; });
    ASSERT_TRUE(reader.done.empty());
    ASSERT_GE(tw_ep_close(reader.to(sender), TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
    run_until([&] { return !reader.done.empty(); });
    ASSERT_EQ(reader.done.size(), 1U);
    EXPECT_EQ(reader.done[0].status, TW_ERR_CANCELED);
}

}  // namespace
}  // namespace tagwire::test
