// SPDX-License-Identifier: BSD-3-Clause
// Flush, close, failure, budgets, invalid addresses.
#include <algorithm>
#include <array>
#include <cstdlib>

#include "protocols/fixture.hpp"

namespace tagwire::test {
namespace {

class MsgEnds : public MsgTest {
  protected:
    tw_completion_t flush(Node& at, tw_ep_h ep) {
        int mark = 0;
        const tw_op_t how = op(&mark);
        const tw_status_t status = tw_ep_flush(ep, TW_FLUSH_DELIVERED, &how, nullptr);
        if (status == TW_OK)
            return {};
        EXPECT_EQ(status, TW_INPROGRESS);
        return end_of(at, &mark);
    }
    void close(Node& at, tw_ep_h ep) {
        int mark = 0;
        const tw_op_t how = op(&mark);
        if (tw_ep_close(ep, TW_FLUSH_DELIVERED, &how, nullptr) == TW_INPROGRESS) {
            EXPECT_EQ(end_of(at, &mark).status, TW_OK);
        }
    }
};

TEST_F(MsgEnds, a_flush_ends_when_the_peer_has_everything) {
    Node& a = node(0);
    Node& b = node(1);
    std::vector<Bytes> data;
    for (std::size_t i = 0; i < 10; ++i) {
        data.push_back(pattern(i * 100, i));
        ASSERT_GE(tw_tag_send(a.to(b), data[i].data(), data[i].size(), i, nullptr, nullptr), TW_OK);
    }
    EXPECT_EQ(flush(a, a.to(b)).status, TW_OK);
    a.destroy();
    for (std::size_t i = 0; i < 10; ++i)
        expect_message(b, data[i], i);
}

TEST_F(MsgEnds, a_flush_waits_for_a_rendezvous) {
    Node& a = node(0);
    Node& b = node(1);
    const Bytes data = pattern(300000, 1);
    int sent = 0, flushed = 0;
    const tw_op_t how = op(&sent), flush_op = op(&flushed);
    ASSERT_EQ(tw_tag_send(a.to(b), data.data(), data.size(), 1, &how, nullptr), TW_INPROGRESS);
    ASSERT_EQ(tw_ep_flush(a.to(b), TW_FLUSH_DELIVERED, &flush_op, nullptr), TW_INPROGRESS);
    run_some();
    EXPECT_TRUE(a.done.empty());
    expect_message(b, data, 1);
    EXPECT_EQ(end_of(a, &flushed).status, TW_OK);
    EXPECT_EQ(end_of(a, &sent).status, TW_OK);
}

TEST_F(MsgEnds, a_closed_endpoint_has_delivered_and_can_be_made_anew) {
    Node& a = node(0);
    Node& b = node(1);
    for (std::uint64_t round = 0; round < 5; ++round) {
        const Bytes data = pattern(offloads() ? 8000 : 20000, round);  // not by rendezvous
        ASSERT_GE(tw_tag_send(a.to(b), data.data(), data.size(), round, nullptr, nullptr), TW_OK);
        close(a, a.to(b));
        EXPECT_EQ(tw_ep_find(a.worker(), b.id()), nullptr);
        expect_message(b, data, round);
        send(b, a, data, round);
        expect_message(a, data, round);
        if (round % 2 == 0)
            close(b, b.to(a));
    }
    EXPECT_TRUE(a.failures.empty() && b.failures.empty());
}

/// Receives again from its peer, by a new endpoint, whenever that has failed.
struct Stubborn {
    Node& self;
    Node& peer;
    Bytes buffer = Bytes(64);
    unsigned ends = 0;

    void post() {
        tw_op_t how{};
        how.source = self.to(peer);
        how.context = this;
        how.complete = [](const tw_completion_t* done) {
            auto& stubborn = *static_cast<Stubborn*>(done->context);
            // More than it may: a failure, and no endless loop.
            if (++stubborn.ends < 10)
                stubborn.post();
        };
        EXPECT_EQ(tw_tag_recv(self.worker(), buffer.data(), buffer.size(), 7, 0, &how, nullptr),
                  TW_INPROGRESS);
    }
};

TEST_F(MsgEnds, a_receive_that_is_posted_when_an_endpoint_fails_waits_for_the_next_one) {
    Node& a = node(0);
    Node& b = node(1);
    for (Node* from : {&a, &b}) {
        Node& to = from == &a ? b : a;
        send(*from, to, {}, 9);
        expect_message(to, {}, 9);
    }
    Stubborn first{a, b}, second{a, b};
    first.post();
    second.post();
    ASSERT_EQ(tw_ep_close(b.to(a), TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
    run_until([&] { return first.ends > 0 && second.ends > 0; });
    run_some();
    EXPECT_EQ(first.ends, 1U);
    EXPECT_EQ(second.ends, 1U);
    const Bytes data = pattern(64, 1);
    send(b, a, data, 7);
    run_until([&] { return first.ends + second.ends == 3; });
    EXPECT_TRUE(first.buffer == data || second.buffer == data);
    a.destroy();
}

TEST_F(MsgEnds, endpoints_that_both_sides_closed_are_gone) {
    Node& a = node(0);
    Node& b = node(1);
    send(a, b, pattern(20, 1), 1);
    expect_message(b, pattern(20, 1), 1);
    b.to(a);
    close(a, a.to(b));
    close(b, b.to(a));
    const auto endpoints = [](Node& node) {
        tw_worker_attr_t attr{};
        EXPECT_EQ(tw_worker_query(node.worker(), &attr), TW_OK);
        return attr.endpoints;
    };
    run_until([&] { return endpoints(a) == 0 && endpoints(b) == 0; });
}

TEST_F(MsgEnds, the_peers_of_a_worker_that_goes_hear_of_it_without_speaking) {
    Node& a = node(0);
    Node& b = node(1);
    send(a, b, {}, 9);
    expect_message(b, {}, 9);
    send(b, a, {}, 9);
    expect_message(a, {}, 9);
    a.destroy();
    constexpr int kRounds = 50'000'000;
    for (int i = 0; b.failures.empty() && i < kRounds; ++i)
        b.progress();
    EXPECT_EQ(b.failures.size(), 1U);
}

TEST_F(MsgEnds, a_message_that_arrived_is_not_lost_with_the_worker_that_took_it) {
    constexpr std::uint64_t kMessages = 4;
    constexpr int kLooks = 1000;
    for (const std::uint32_t flag : {TW_OP_TRANSMIT_COMPLETE, TW_OP_DELIVERY_COMPLETE}) {
        Node a(context_.get());
        Node b(context_.get());
        const auto both_until = [&](const auto& is_over) {
            for (int i = 1; !is_over(); ++i) {
                b.progress();
                if (i % kLooks == 0)
                    a.progress();
            }
        };
        ASSERT_GE(tw_tag_send(a.to(b), nullptr, 0, 9, nullptr, nullptr), TW_OK);
        ASSERT_GE(tw_tag_send(b.to(a), nullptr, 0, 9, nullptr, nullptr), TW_OK);
        both_until(
            [&] { return a.counter("rx_unexpected") > 0 && b.counter("rx_unexpected") > 0; });
        const Bytes data = pattern(100, 1);
        std::array<Bytes, kMessages> received;
        for (std::uint64_t i = 0; i < kMessages; ++i) {
            received[i].resize(data.size());
            const tw_op_t how = op(&received[i]);
            ASSERT_EQ(tw_tag_recv(b.worker(), received[i].data(), data.size(), i, 0, &how, nullptr),
                      TW_INPROGRESS);
        }
        for (std::uint64_t i = 0; i < kMessages; ++i) {
            const tw_op_t how = op(&received[i], flag);
            ASSERT_GE(tw_tag_send(a.to(b), data.data(), data.size(), i, &how, nullptr), TW_OK);
        }
        both_until([&] { return b.done.size() == kMessages; });
        b.destroy();
        while (a.failures.empty())
            a.progress();
        ASSERT_EQ(a.done.size(), kMessages);
        for (const tw_completion_t& done : a.done)
            EXPECT_EQ(done.status, TW_OK) << "flag " << flag;
    }
}

TEST_F(MsgEnds, an_endpoint_that_went_before_its_peer_had_answered_can_be_made_anew) {
    constexpr int kLooks = 20000;
    Node& a = node(0);
    Node& b = node(1);
    for (std::uint64_t round = 0; round < 3; ++round) {
        const tw_ep_h early = a.to(b);
        for (int i = 0; i < kLooks; ++i)
            b.progress();
        EXPECT_EQ(tw_ep_close(early, TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
        // The answer comes when nobody wants it any more; the peer has not heard of that.
        for (int i = 0; i < kLooks; ++i)
            a.progress();
        const Bytes data = pattern(30, round);
        send(a, b, data, round);
        expect_message(b, data, round);
        EXPECT_EQ(tw_ep_close(a.to(b), TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
        run_some();
    }
    EXPECT_TRUE(a.failures.empty());
}

TEST_F(MsgEnds, what_a_forced_close_took_back_is_not_received) {
    Node& a = node(0);
    Node& b = node(1);
    send(a, b, {}, 9);
    expect_message(b, {}, 9);
    const bool is_shared = lane_transport() == "sm";
    Bytes data = pattern(300000, 1), received(300000);
    tw_mem_h mapped = nullptr;
    if (is_shared) {  // where a handle is no obstacle
        ASSERT_EQ(tw_mem_map(context_.get(), data.data(), data.size(), nullptr, &mapped), TW_OK);
    }
    int sent = 0, got = 0;
    tw_op_t how = op(&sent);
    how.mem = mapped;
    const tw_op_t receive = op(&got);
    ASSERT_EQ(tw_tag_send(a.to(b), data.data(), data.size(), 1, &how, nullptr), TW_INPROGRESS);
    run_some();
    EXPECT_EQ(tw_ep_close(a.to(b), TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
    std::ranges::fill(data, std::byte{0xee});
    // The peer has not heard of it.
    ASSERT_EQ(tw_tag_recv(b.worker(), received.data(), received.size(), 1, 0, &receive, nullptr),
              TW_INPROGRESS);
    send(a, b, {}, 9);
    EXPECT_LT(end_of(b, &got).status, TW_OK);
    expect_message(b, {}, 9);
    if (mapped != nullptr) {
        EXPECT_EQ(tw_mem_unmap(context_.get(), mapped), TW_OK);
    }
}

// Whatever moves the data, a buffer whose operation has ended is not written any more.
TEST_F(MsgEnds, what_a_forced_close_gave_back_is_not_written) {
    constexpr std::size_t kReads = 6;
    constexpr std::size_t kEach = std::size_t{1} << 20;
    constexpr int kStepsMax = 40;
    const std::byte poison{0xa5};
    const Bytes data = pattern(kEach, 1);
    tw_mem_h source = nullptr;
    ASSERT_EQ(
        tw_mem_map(context_.get(), const_cast<std::byte*>(data.data()), kEach, nullptr, &source),
        TW_OK);
    for (int steps = 0; steps < kStepsMax; steps += 3) {
        Node a(context_.get());
        Node b(context_.get());
        std::array<Bytes, kReads> buffers;
        std::array<tw_mem_h, kReads> targets{};
        for (std::size_t i = 0; i < kReads; ++i) {
            buffers[i].resize(kEach);
            ASSERT_EQ(tw_mem_map(context_.get(), buffers[i].data(), kEach, nullptr, &targets[i]),
                      TW_OK);
            tw_op_t receive = op(&buffers[i]), sent{};
            receive.mem = targets[i];
            receive.source = a.to(b);
            sent.mem = source;
            ASSERT_EQ(tw_tag_recv(a.worker(), buffers[i].data(), kEach, i, 0, &receive, nullptr),
                      TW_INPROGRESS);
            ASSERT_GE(tw_tag_send(b.to(a), data.data(), kEach, i, &sent, nullptr), TW_OK);
        }
        const auto step = [&] {
            a.progress();
            b.progress();
        };
        while (a.counter("rx_rndv") + a.done.size() == 0)
            step();
        for (int i = 0; i < steps; ++i)
            step();
        EXPECT_EQ(tw_ep_close(a.to(b), TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
        while (a.done.size() < kReads)
            a.progress();
        for (Bytes& buffer : buffers)
            std::ranges::fill(buffer, poison);
        for (int i = 0; i < 500; ++i)
            step();
        for (std::size_t i = 0; i < kReads; ++i) {
            EXPECT_EQ(std::ranges::count(buffers[i], poison), std::ptrdiff_t{kEach});
            EXPECT_EQ(tw_mem_unmap(context_.get(), targets[i]), TW_OK);
        }
        EXPECT_EQ(a.done.size(), kReads);
    }
    EXPECT_EQ(tw_mem_unmap(context_.get(), source), TW_OK);
}

TEST_F(MsgEnds, a_worker_that_goes_ends_what_its_peers_have_with_it) {
    Node& a = node(0);
    Node& b = node(1);
    Node& c = node(2);
    send(a, b, {}, 9);
    send(b, a, {}, 9);
    send(c, a, {}, 8);
    expect_message(a, {}, 9);
    const Bytes data = pattern(300000, 1);
    int sent = 0, directed = 0, early = 0;
    const tw_op_t how = op(&sent);
    tw_op_t receive = op(&directed);
    receive.source = a.to(b);
    Bytes buffer(10), first(10);
    // A message sent before the end is still received.
    ASSERT_GE(tw_tag_send(b.to(a), pattern(10, 3).data(), 10, 3, nullptr, nullptr), TW_OK);
    run_some();
    ASSERT_EQ(tw_tag_recv(a.worker(), buffer.data(), 10, 1, 0, &receive, nullptr), TW_INPROGRESS);
    ASSERT_EQ(tw_tag_send(a.to(b), data.data(), data.size(), 1, &how, nullptr), TW_INPROGRESS);
    run_some();
    const tw_ep_h dead = a.to(b);
    b.destroy();
    const tw_completion_t done = end_of(a, &sent);
    EXPECT_TRUE(done.status == TW_ERR_NOT_CONNECTED || done.status == TW_ERR_CONNECTION_RESET ||
                done.status == TW_ERR_ENDPOINT_TIMEOUT)
        << tw_status_string(done.status);
    EXPECT_LT(end_of(a, &directed).status, TW_OK);
    run_until([&] { return !a.failures.empty(); });
    ASSERT_EQ(a.failures.size(), 1U);
    EXPECT_EQ(a.failures[0].first, dead);
    EXPECT_LT(tw_tag_send(dead, data.data(), 1, 1, nullptr, nullptr), TW_OK);
    EXPECT_EQ(tw_ep_close(dead, TW_FLUSH_DELIVERED, nullptr, nullptr), a.failures[0].second);
    const tw_op_t from_any = op(&early);
    ASSERT_EQ(tw_tag_recv(a.worker(), first.data(), 10, 3, 0, &from_any, nullptr), TW_INPROGRESS);
    EXPECT_EQ(end_of(a, &early).status, TW_OK);
    EXPECT_EQ(first, pattern(10, 3));
    // The others are not concerned.
    ASSERT_GE(tw_tag_send(c.to(a), data.data(), data.size(), 4, nullptr, nullptr), TW_OK);
    expect_message(a, data, 4);
    EXPECT_TRUE(c.failures.empty());
}

TEST_F(MsgEnds, a_message_that_is_half_here_ends_with_its_sender) {
    Node& a = node(0);
    Node& b = node(1);
    send(b, a, {}, 9);
    expect_message(a, {}, 9);
    const Bytes data = pattern(300000, 1);
    ASSERT_GE(tw_tag_send(b.to(a), data.data(), data.size(), 1, nullptr, nullptr), TW_OK);
    run_some();
    tw_message_h message = take(a.worker(), 1);
    ASSERT_NE(message, nullptr);
    const tw_ep_h dead = a.to(b);
    b.destroy();
    run_until([&] { return !a.failures.empty(); });
    EXPECT_EQ(a.failures[0].first, dead);
    Bytes buffer(data.size());
    EXPECT_EQ(tw_message_recv(a.worker(), message, buffer.data(), buffer.size(), nullptr, nullptr),
              TW_ERR_CONNECTION_RESET);
}

TEST_F(MsgEnds, a_peer_whose_share_is_used_up_keeps_its_data) {
    Node& a = node(0);
    Node& b = node(1);
    constexpr std::size_t kLength = 4000;
    const char* const budget = std::getenv("TAGWIRE_UNEXPECTED_BYTES");
    const bool is_small = budget != nullptr;
    const Bytes data = pattern(kLength, 1);
    constexpr int kMessages = 3000;
    int queued = 0, sent = 0;
    for (; sent < kMessages; ++sent) {
        tw_status_t status = TW_ERR_NO_RESOURCE;
        while ((status = tw_tag_send(a.to(b), data.data(), kLength, 1, nullptr, nullptr)) ==
               TW_ERR_NO_RESOURCE) {
            a.progress();
            b.progress();
            if (++queued > 1000000)
                break;
        }
        if (status == TW_ERR_NO_RESOURCE)
            break;
        b.progress();
        a.progress();
    }
    const Bytes other = pattern(70000, 2);
    if (!is_small) {
        ASSERT_GE(tw_tag_send(a.to(b), other.data(), other.size(), 2, nullptr, nullptr), TW_OK);
        expect_message(b, other, 2);
    } else {
        EXPECT_GT(b.counter("paused_eager"), 0U);
        EXPECT_GT(sent, 100);  // more than the budget has room for as data
    }
    for (int i = 0; i < std::min(sent, kMessages / 2); ++i)
        expect_message(b, data, 1);
}

TEST_F(MsgEnds, addresses_that_cannot_be_are_refused) {
    Node& a = node(0);
    Node& b = node(1);
    const Bytes address = b.address();
    EXPECT_LE(address.size(), std::size_t{TW_ADDRESS_BYTES_MAX});
    tw_ep_h ep = nullptr;
    for (std::size_t i = 0; i < address.size(); ++i) {
        Bytes broken = address;
        broken[i] ^= std::byte{1};
        const tw_ep_params_t params{
            .address = broken.data(), .address_length = broken.size(), .user_data = nullptr};
        EXPECT_EQ(tw_ep_create(a.worker(), &params, &ep), TW_ERR_INVALID_ADDR) << i;
        const tw_ep_params_t shorter{
            .address = address.data(), .address_length = i, .user_data = nullptr};
        EXPECT_EQ(tw_ep_create(a.worker(), &shorter, &ep), TW_ERR_INVALID_ADDR) << i;
    }
    std::uint64_t id = 0;
    EXPECT_EQ(tw_address_worker_id(address.data(), address.size(), &id), TW_OK);
    EXPECT_EQ(id, b.id());
    a.to(b);
    const tw_ep_params_t params{
        .address = address.data(), .address_length = address.size(), .user_data = nullptr};
    EXPECT_EQ(tw_ep_create(a.worker(), &params, &ep), TW_ERR_ALREADY_EXISTS);
}

TEST_F(MsgEnds, transports_that_are_not_there_are_named) {
    tw_context_params_t params{};
    tw_context_h context = nullptr;
    const auto create = [&](const char* transports) {
        params.transports = transports;
        const tw_status_t status = tw_context_create(&params, &context);
        EXPECT_EQ(context, nullptr) << transports;
        return status;
    };
    for (const char* absent :
         {"roce,sm:other", "sm,roce", "sm,sm:other", "roce", "sm,^roce", "^roce", "sm,^sm"})
        EXPECT_EQ(create(absent), TW_ERR_NO_DEVICE) << absent;
    for (const char* wrong : {",", "sm,", "sm,^", "auto:lo"})
        EXPECT_EQ(create(wrong), TW_ERR_INVALID_PARAM) << wrong;
}

/// A program that makes the endpoint anew as soon as it is told of an end.
struct Reopening {
    Node* at;
    Node* to;
    tw_ep_h ep = nullptr;
    static void ended(const tw_completion_t* done) {
        auto& self = *static_cast<Reopening*>(done->context);
        self.ep = self.at->to(*self.to);
    }
};

TEST_F(MsgEnds, an_endpoint_is_made_anew_where_the_end_of_the_last_one_is_told) {
    Node& a = node(0);
    send(a, a, {}, 1);
    expect_message(a, {}, 1);
    // A receive that names its source ends when the connection goes.
    Reopening reopening{&a, &a};
    tw_op_t how{};
    how.context = &reopening;
    how.complete = Reopening::ended;
    how.source = a.to(a);
    Bytes buffer(10);
    ASSERT_EQ(tw_tag_recv(a.worker(), buffer.data(), 10, 2, 0, &how, nullptr), TW_INPROGRESS);
    close(a, a.to(a));
    run_until([&] { return reopening.ep != nullptr; });
    run_some();
    send(a, a, pattern(30, 1), 3);
    expect_message(a, pattern(30, 1), 3);
    EXPECT_EQ(a.to(a), reopening.ep);
}

TEST_F(MsgEnds, an_endpoint_is_made_anew_where_a_close_that_failed_is_told) {
    Node& a = node(0);
    Node& b = node(1);
    send(a, b, {}, 1);
    expect_message(b, {}, 1);
    Reopening reopening{&b, &a};
    tw_op_t how{};
    how.context = &reopening;
    how.complete = Reopening::ended;
    ASSERT_GE(tw_tag_send(b.to(a), pattern(300000, 1).data(), 300000, 2, nullptr, nullptr), TW_OK);
    ASSERT_EQ(tw_ep_close(b.to(a), TW_FLUSH_DELIVERED, &how, nullptr), TW_INPROGRESS);
    EXPECT_EQ(tw_ep_close(a.to(b), TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
    send(a, b, {}, 3);
    expect_message(b, {}, 3);
    run_until([&] { return reopening.ep != nullptr; });
    run_some();
    EXPECT_EQ(b.to(a), reopening.ep);
}

TEST_F(MsgEnds, a_close_that_is_over_at_once_is_told_as_any_other) {
    Node& a = node(0);
    Node& b = node(1);
    int closed = 0;
    const tw_op_t how = op(&closed);
    ASSERT_EQ(tw_ep_close(a.to(b), TW_CLOSE_FORCE, &how, nullptr), TW_INPROGRESS);
    const tw_completion_t done = end_of(a, &closed);
    EXPECT_EQ(done.status, TW_OK);
    EXPECT_EQ(done.flags, unsigned{TW_DONE_FLUSH});
    tw_op_t quiet{};
    quiet.context = &closed;
    EXPECT_EQ(tw_ep_close(a.to(b), TW_CLOSE_FORCE, &quiet, nullptr), TW_OK);
}

TEST_F(MsgEnds, a_close_takes_no_flags_of_messages) {
    Node& a = node(0);
    const tw_ep_h ep = a.to(node(1));
    tw_op_t wrong{};
    wrong.flags = TW_OP_INJECT;
    EXPECT_EQ(tw_ep_close(ep, TW_FLUSH_DELIVERED, &wrong, nullptr), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_ep_close(ep, static_cast<tw_flush_level_t>(3), nullptr, nullptr),
              TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_ep_flush(ep, TW_CLOSE_FORCE, nullptr, nullptr), TW_ERR_INVALID_PARAM);
    int closed = 0;
    const tw_op_t how = op(&closed);
    ASSERT_EQ(tw_ep_close(ep, TW_FLUSH_DELIVERED, &how, nullptr), TW_INPROGRESS);
    EXPECT_EQ(end_of(a, &closed).status, TW_OK);
}

TEST_F(MsgEnds, mapped_memory_needs_no_copy) {
    Node& a = node(0);
    Node& b = node(1);
    Bytes data = pattern(300000, 1), received(300000);
    tw_mem_h from = nullptr, to = nullptr;
    ASSERT_EQ(tw_mem_map(context_.get(), data.data(), data.size(), nullptr, &from), TW_OK);
    ASSERT_EQ(tw_mem_map(context_.get(), received.data(), received.size(), nullptr, &to), TW_OK);
    int sent = 0, got = 0;
    tw_op_t how = op(&sent), receive = op(&got);
    how.mem = from;
    receive.mem = to;
    ASSERT_EQ(tw_tag_recv(b.worker(), received.data(), received.size(), 1, 0, &receive, nullptr),
              TW_INPROGRESS);
    ASSERT_EQ(tw_tag_send(a.to(b), data.data(), data.size(), 1, &how, nullptr), TW_INPROGRESS);
    EXPECT_EQ(end_of(a, &sent).status, TW_OK);
    EXPECT_EQ(end_of(b, &got).status, TW_OK);
    EXPECT_EQ(received, data);
    if (lane_transport() != "ud") {
        EXPECT_EQ(b.counter("rndv_get"), 1U);
    }
    how.mem = to;
    EXPECT_EQ(tw_tag_send(a.to(b), data.data(), data.size(), 1, &how, nullptr),
              TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_mem_unmap(context_.get(), from), TW_OK);
    EXPECT_EQ(tw_mem_unmap(context_.get(), to), TW_OK);
}

}  // namespace
}  // namespace tagwire::test
