// SPDX-License-Identifier: BSD-3-Clause
// Messages that were sent before an interface closes arrive.
#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "operations.hpp"
#include "stranger.hpp"

namespace tagwire::test {
namespace {

constexpr std::uint8_t kId = Entity::kAmId;

class TcpClosing : public ::testing::Test {
  protected:
    TcpClosing()
        : sender(std::make_unique<Entity>(loopback_of_tcp())), receiver(loopback_of_tcp()) {
        there = connect(*sender, receiver);
        expect_exchange(*sender, there.forward, receiver);
        back = connect(receiver, *sender);
        expect_exchange(receiver, back.forward, *sender);
        receiver.keep_record = false;
        before = receiver.am_count;
    }
    /// A message of the receiver that the sender never reads.
    void leave_unread() {
        ASSERT_EQ(UCS_OK, uct_ep_am_short(back.forward, kId, 0, nullptr, 0));
        ASSERT_TRUE(steps_until({&receiver}, [&] {
            return uct_ep_flush(back.forward, UCT_FLUSH_FLAG_LOCAL, nullptr) == UCS_OK;
        }));
    }
    void close() {
        there.forward.reset();
        sender->close_iface();
    }
    /// All of them came, and then the end.
    void expect_messages(std::uint64_t count) {
        EXPECT_TRUE(steps_until({&receiver}, [&] { return !receiver.errors.empty(); }));
        EXPECT_EQ(before + count, receiver.am_count);
    }

    std::unique_ptr<Entity> sender;
    Entity receiver;
    Connection there;
    Connection back;
    std::uint64_t before = 0;
};

TEST_F(TcpClosing, behind_a_flush_loses_no_message_although_something_is_unread) {
    leave_unread();
    const Bytes message(32'000);
    std::uint64_t sent = 0;
    // More than the receiver's socket takes, and no more than both do.
    while (sent < 48 && send_am_bytes(there.forward, kId, message) == UCS_OK)
        ++sent;
    ASSERT_TRUE(steps_until(
        {}, [&] { return uct_ep_flush(there.forward, UCT_FLUSH_FLAG_LOCAL, nullptr) == UCS_OK; }));
    std::thread closer([this] { close(); });  // as another process, while this one reads
    expect_messages(sent);
    closer.join();
}

TEST_F(TcpClosing, without_a_flush_sends_what_is_queued) {
    leave_unread();
    for (int i = 0; i < 100; ++i)
        ASSERT_EQ(UCS_OK, uct_ep_am_short(there.forward, kId, 0, nullptr, 0));
    close();
    expect_messages(100);
}

// As a peer that is busy for long: the kernel goes on when the interface is closed.
TEST_F(TcpClosing, before_a_peer_that_does_not_read_ends) {
    const Bytes message(32'000);
    std::uint64_t sent = 0;
    while (sent < 48 && send_am_bytes(there.forward, kId, message) == UCS_OK)
        ++sent;
    close();
    expect_messages(sent);
}

TEST_F(TcpClosing, after_the_peer_has_closed_ends) {
    for (int i = 0; i < 10; ++i)
        ASSERT_EQ(UCS_OK, uct_ep_am_short(there.forward, kId, 0, nullptr, 0));
    back.forward.reset();
    receiver.close_iface();
    close();
}

}  // namespace
}  // namespace tagwire::test
