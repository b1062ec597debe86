// SPDX-License-Identifier: BSD-3-Clause
// A worker keeps messages that nobody receives within its budget, whoever sent them: honest peers
// that come and go, and peers that ignore what they are told.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <numeric>

#include "protocols/impostor.hpp"
#include "protocols/wire/limits.hpp"

namespace tagwire::test {
namespace {

constexpr std::uint64_t kBudget = std::uint64_t{4} << 20;
constexpr std::uint64_t kOnItsWay = proto::kWindowBytes;  // what is never held against a peer
constexpr std::uint64_t kNobodys = 99;                    // a tag

struct Kept {
    std::uint64_t messages = 0, bytes = 0, orphans = 0;
};

Kept kept(const Node& node) {
    const std::string text = node.description();
    const std::size_t at = text.find("unexpected: ");
    Kept result;
    EXPECT_NE(at, std::string::npos);
    EXPECT_EQ(std::sscanf(text.c_str() + at,
                          "unexpected: %" SCNu64 " messages in %" SCNu64 " bytes, %" SCNu64,
                          &result.messages, &result.bytes, &result.orphans),
              3);
    return result;
}

class MsgBudget : private Settings, public MsgTest {
  protected:
    MsgBudget()
        : Settings({{"TAGWIRE_UNEXPECTED_BYTES", std::to_string(kBudget)},
                    {"TAGWIRE_UNEXPECTED_MAX", "20000"}}) {}

    /// The impostor sends `message` very often, or until the victim fails it, whatever it is told.
    /// Returns the most messages and bytes that were kept.
    Kept flood(Impostor& impostor, const Bytes& message) {
        Kept most;
        for (int i = 0; i < 200'000 && node(0).failures.empty(); ++i) {
            impostor.try_send(proto::AmId::kEager, message);
            if (i % 64 != 0)
                continue;
            impostor.run(node(0), 16);
            impostor.taken(proto::AmId::kControl);
            const Kept now = kept(node(0));
            most = {std::max(most.messages, now.messages), std::max(most.bytes, now.bytes), 0};
        }
        return most;
    }
    void greet(Impostor& impostor) {
        ASSERT_NO_FATAL_FAILURE(impostor.greet(node(0)));
        const Bytes address = impostor.address();
        const tw_ep_params_t params{
            .address = address.data(), .address_length = address.size(), .user_data = nullptr};
        tw_ep_h ep = nullptr;
        ASSERT_EQ(tw_ep_create(node(0).worker(), &params, &ep), TW_OK);
        impostor.run(node(0));
    }
    void expect_flood_ends(std::size_t bytes) {
        Impostor impostor(contact_of_transports());
        ASSERT_NO_FATAL_FAILURE(greet(impostor));
        const Kept most = flood(impostor, impostor.eager(proto::kTagged, kNobodys, Bytes(bytes)));
        ASSERT_EQ(node(0).failures.size(), 1U) << most.messages << " messages, " << most.bytes;
        EXPECT_EQ(node(0).failures.front().second, TW_ERR_EXCEEDS_LIMIT);
        EXPECT_LE(most.bytes, kBudget + kOnItsWay);
        EXPECT_LE(kept(node(0)).messages, 0U) << "what it has sent goes with it";
        EXPECT_EQ(kept(node(0)).bytes, 0U);
        // Others are not concerned.
        send(node(1), node(0), pattern(100, 1), 5);
        expect_message(node(0), pattern(100, 1), 5);
    }
};

TEST_F(MsgBudget, a_peer_that_does_not_heed_a_hold_loses_its_endpoint) {
    expect_flood_ends(4000);
}

TEST_F(MsgBudget, messages_of_no_bytes_take_memory_too) {
    expect_flood_ends(0);
}

// Each leaves with what it has sent, before anybody has told it to stop.
TEST_F(MsgBudget, messages_of_peers_that_are_gone_count) {
    constexpr int kPeers = 40;
    const Bytes data = pattern(4000, 1);
    Node& self = node(0);
    std::uint64_t most = 0;
    for (int i = 0; i < kPeers; ++i) {
        Node& peer = node(1);
        for (int sent = 0; sent < 200; ++sent) {
            if (tw_tag_send(peer.to(self), data.data(), data.size(), kNobodys, nullptr, nullptr) ==
                TW_ERR_NO_RESOURCE)
                break;
            peer.progress();
            self.progress();
            most = std::max(most, kept(self).bytes);
        }
        // It closes in order, or is gone.
        if (i % 2 == 0) {
            tw_ep_close(peer.to(self), TW_FLUSH_DELIVERED, nullptr, nullptr);
            run_some();
        }
        forget_last_node();
        run_some();
    }
    EXPECT_LE(most, kBudget + kOnItsWay + data.size() * 2);
    EXPECT_GT(kept(self).orphans, 0U) << "what was sent in full can be received";
    EXPECT_GT(self.counter("orphans_dropped"), 0U);
    expect_message(self, data, kNobodys);
    EXPECT_TRUE(self.failures.empty());
}

TEST_F(MsgBudget, all_peers_together_are_held_back_and_nothing_is_lost) {
    constexpr std::size_t kPeers = 6, kEach = 6000;
    Node& self = node(0);
    std::uint64_t sent[kPeers] = {}, received = 0, most = 0;
    std::vector<std::uint64_t> numbers(kEach);
    std::iota(numbers.begin(), numbers.end(), 0);
    const auto send_some = [&] {
        for (std::size_t i = 0; i < kPeers; ++i) {
            Node& peer = node(i + 1);
            for (int burst = 0; burst < 8 && sent[i] < kEach; ++burst) {
                if (tw_tag_send(peer.to(self), &numbers[sent[i]], sizeof numbers[0], i, nullptr,
                                nullptr) < TW_OK)
                    break;
                ++sent[i];
            }
        }
        most = std::max(most, kept(self).bytes);
    };
    for (std::size_t i = 0; i < kPeers; ++i) {
        send(self, node(i + 1), {}, 9);  // connected both ways
        expect_message(node(i + 1), {}, 9);
    }
    for (std::size_t i = 0; i < kEach; ++i) {
        send_some();
        for (std::size_t j = 0; j <= kPeers; ++j)
            node(j).progress();
    }
    EXPECT_GT(self.counter("paused"), 0U);
    std::uint64_t next[kPeers] = {};
    run_until([&] {
        send_some();
        for (std::size_t i = 0; i < kPeers; ++i) {
            std::uint64_t number = 0;
            while (probe(self.worker(), i) == TW_OK) {
                int mark = 0;
                const tw_op_t how = op(&mark);
                EXPECT_EQ(tw_tag_recv(self.worker(), &number, sizeof number, i, 0, &how, nullptr),
                          TW_INPROGRESS);
                EXPECT_EQ(end_of(self, &mark).status, TW_OK);
                EXPECT_EQ(number, next[i]++);
                ++received;
            }
        }
        return received == kPeers * kEach;
    });
    EXPECT_LE(most, kBudget);
    for (std::size_t i = 0; i <= kPeers; ++i)
        EXPECT_TRUE(node(i).failures.empty());
    EXPECT_EQ(kept(self).bytes, 0U);
}

// A cancel names one of many messages; that one goes, and no other.
TEST_F(MsgBudget, a_cancel_finds_its_message_among_many) {
    Node& a = node(0);
    Node& b = node(1);
    constexpr std::size_t kMany = 500;
    std::vector<int> marks(kMany);
    std::vector<tw_request_h> requests(kMany);
    for (std::size_t i = 0; i < kMany; ++i) {
        const tw_op_t how = op(&marks[i], TW_OP_MATCH_COMPLETE);
        ASSERT_EQ(tw_tag_send(a.to(b), &i, sizeof i, 3, &how, &requests[i]), TW_INPROGRESS);
        run_until([&] { return b.counter("rx_unexpected") == i + 1; });
    }
    for (std::size_t i = 0; i < kMany; i += 2)
        EXPECT_EQ(tw_request_cancel(requests[i]), TW_OK);
    for (std::size_t i = 0; i < kMany; i += 2)
        EXPECT_EQ(end_of(a, &marks[i]).status, TW_ERR_CANCELED);
    EXPECT_EQ(kept(b).messages, kMany / 2);
    for (std::size_t i = 1; i < kMany; i += 2) {
        std::size_t number = 0;
        int mark = 0;
        const tw_op_t how = op(&mark);
        ASSERT_EQ(tw_tag_recv(b.worker(), &number, sizeof number, 3, 0, &how, nullptr),
                  TW_INPROGRESS);
        EXPECT_EQ(end_of(b, &mark).status, TW_OK);
        EXPECT_EQ(number, i);
        EXPECT_EQ(end_of(a, &marks[i]).status, TW_OK);
    }
    EXPECT_EQ(kept(b).bytes, 0U);
}

}  // namespace
}  // namespace tagwire::test
