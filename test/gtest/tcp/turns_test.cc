// SPDX-License-Identifier: BSD-3-Clause
// One call of progress delivers a bounded number of frames, and no connection keeps another one
// from its turn; flushes that wait for what the kernel has not taken.
#include <gtest/gtest.h>
#include <uct/api/tagwire_uct.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "operations.hpp"
#include "stranger.hpp"

namespace tagwire::test {
namespace {

constexpr std::uint8_t kFlood = Entity::kAmId;
constexpr std::uint64_t kTurnMax = 64;

/// Senders with a connection to one receiver.
class TcpTurns : public ::testing::Test {
  protected:
    TcpTurns() : receiver(loopback_of_tcp()) { receiver.keep_record = false; }

    Entity& add_sender() {
        senders.push_back(std::make_unique<Entity>(loopback_of_tcp()));
        links.push_back(connect(*senders.back(), receiver));
        const std::uint64_t before = receiver.am_count;
        EXPECT_EQ(UCS_OK, uct_ep_am_short(links.back().forward, kFlood, 0, nullptr, 0));
        EXPECT_TRUE(steps_until({senders.back().get(), &receiver},
                                [&] { return receiver.am_count > before; }));
        return *senders.back();
    }
    /// As many short messages as queue and sockets take. Returns their number.
    std::uint64_t fill(std::size_t sender, std::uint64_t most) {
        std::uint64_t sent = 0;
        for (int refused = 0; sent < most && refused < 1000;) {
            if (uct_ep_am_short(links[sender].forward, kFlood, sender, nullptr, 0) == UCS_OK) {
                ++sent;
                refused = 0;
            } else {
                senders[sender]->progress();
                ++refused;
            }
        }
        for (int i = 0; i < 100; ++i)
            senders[sender]->progress();
        return sent;
    }

    Entity receiver;
    std::vector<std::unique_ptr<Entity>> senders;
    std::vector<Connection> links;
};

TEST_F(TcpTurns, a_call_delivers_a_bounded_number_of_messages_and_all_come) {
    constexpr std::uint64_t kMessages = 5000;
    for (int i = 0; i < 3; ++i)
        add_sender();
    std::uint64_t wanted = receiver.am_count;
    for (std::size_t i = 0; i < senders.size(); ++i)
        wanted += fill(i, kMessages);
    for (std::uint64_t turns = 0; receiver.am_count < wanted; ++turns) {
        const std::uint64_t before = receiver.am_count;
        receiver.progress();
        ASSERT_LE(receiver.am_count - before, kTurnMax);
        for (const auto& sender : senders)
            sender->progress();
        ASSERT_LT(turns, 1'000'000U);
    }
}

// More connections than those that each call reads.
TEST_F(TcpTurns, one_message_is_not_kept_waiting_by_floods_on_others) {
    constexpr std::size_t kFloods = 6;
    constexpr std::uint64_t kMessages = 4000;
    std::array<std::uint64_t, kFloods + 1> left{};
    for (std::size_t i = 0; i <= kFloods; ++i)
        add_sender();
    std::array<std::uint64_t, kFloods + 1> came{};
    receiver.keep_record = true;
    receiver.on_am = [&](const AmMessage& message) {
        std::uint64_t sender = 0;
        std::memcpy(&sender, message.bytes.data(), sizeof sender);
        ++came.at(sender);
        return UCS_OK;
    };
    for (std::size_t i = 0; i < kFloods; ++i)
        left[i] = fill(i, kMessages);
    left[kFloods] = fill(kFloods, 1);
    for (std::uint64_t turns = 0; came[kFloods] == 0; ++turns) {
        receiver.progress();
        ASSERT_LT(turns, 1'000'000U);
    }
    std::uint64_t others = 0, all = 0;
    for (std::size_t i = 0; i < kFloods; ++i) {
        others += came[i];
        all += left[i];
    }
    EXPECT_LT(others, all) << "it came last";
    EXPECT_TRUE(steps_until({&receiver}, [&] { return came == left; }));
}

TEST_F(TcpTurns, what_was_read_and_not_delivered_keeps_the_interface_awake) {
    add_sender();
    const std::uint64_t wanted = receiver.am_count + fill(0, 1000);
    while (receiver.am_count < wanted) {
        const std::uint64_t before = receiver.am_count;
        receiver.progress();
        if (receiver.am_count - before == kTurnMax && receiver.am_count < wanted) {
            EXPECT_EQ(uct_iface_event_arm(receiver.iface(), UCT_EVENT_RECV), UCS_ERR_BUSY);
        }
    }
}

TEST_F(TcpTurns, a_connection_that_ends_behind_much_delivers_it_first) {
    add_sender();
    const std::uint64_t wanted = receiver.am_count + fill(0, 1000);
    links.clear();
    senders[0]->close_iface();
    EXPECT_TRUE(steps_until({&receiver}, [&] { return receiver.am_count == wanted; }));
}

// The receiver reads nothing: the flush waits for the kernel, and for nothing else.
TEST_F(TcpTurns, a_flush_of_what_was_sent_waits_for_room_in_the_socket) {
    EntityOptions small;
    small.iface_config = {{"TCP_SNDBUF", "32k"}, {"TCP_RCVBUF", "32k"}};
    Entity from(loopback_of_tcp(), small), to(loopback_of_tcp(), small);
    to.keep_record = false;
    const Connection link = connect(from, to);
    expect_exchange(from, link.forward, to);
    const Bytes message(8000);
    while (send_am_bytes(link.forward, kFlood, message) == UCS_OK)
        continue;
    std::array<Completion, 2> flushed;
    for (Completion& each : flushed)
        ASSERT_EQ(UCS_INPROGRESS, uct_ep_flush(link.forward, TAGWIRE_UCT_FLUSH_FLAG_SENT, &each));
    EXPECT_EQ(UCS_INPROGRESS, uct_ep_flush(link.forward, TAGWIRE_UCT_FLUSH_FLAG_SENT, nullptr));
    for (int i = 0; i < 1000; ++i)
        from.progress();
    EXPECT_EQ(flushed[0].calls + flushed[1].calls, 0);
    EXPECT_TRUE(
        steps_until({&from, &to}, [&] { return flushed[0].calls == 1 && flushed[1].calls == 1; }));
    EXPECT_EQ(flushed[0].ended, UCS_OK);
    EXPECT_EQ(UCS_OK, uct_ep_flush(link.forward, TAGWIRE_UCT_FLUSH_FLAG_SENT, nullptr));
}

TEST_F(TcpTurns, a_flush_of_what_was_sent_ends_with_its_connection) {
    EntityOptions small;
    small.iface_config = {{"TCP_SNDBUF", "32k"}, {"TCP_RCVBUF", "32k"}};
    Entity from(loopback_of_tcp(), small);
    auto to = std::make_unique<Entity>(loopback_of_tcp(), small);
    const Connection link = connect(from, *to);
    expect_exchange(from, link.forward, *to);
    const Bytes message(8000);
    while (send_am_bytes(link.forward, kFlood, message) == UCS_OK)
        continue;
    Completion flushed;
    ASSERT_EQ(UCS_INPROGRESS, uct_ep_flush(link.forward, TAGWIRE_UCT_FLUSH_FLAG_SENT, &flushed));
    to.reset();
    EXPECT_TRUE(steps_until({&from}, [&] { return flushed.calls == 1; }));
    EXPECT_LT(flushed.ended, UCS_OK);
}

}  // namespace
}  // namespace tagwire::test
