// SPDX-License-Identifier: BSD-3-Clause
//
// Interfaces of sm as a program sees them, where their ways are their own: connections that end,
// and what may be left behind.

#include <gtest/gtest.h>
#include <poll.h>
#include <uct/api/tagwire_uct.h>

#include <cstdint>

#include "buffer.hpp"
#include "entity.hpp"
#include "operations.hpp"
#include "resource.hpp"

namespace tagwire::test {
namespace {

constexpr std::uint8_t kId = Entity::kAmId;
constexpr int kSteps = 200'000;

class SmIface : public ::testing::Test {
  protected:
    template <class Done>
    bool until(Done&& done) {
        for (int i = 0; i < kSteps; ++i) {
            if (done())
                return true;
            one.progress();
            other.progress();
        }
        return false;
    }
    ucs_status_t send(uct_ep_h ep, std::uint64_t number) {
        ucs_status_t status = UCS_ERR_NO_RESOURCE;
        until([&] {
            status = uct_ep_am_short(ep, kId, number, nullptr, 0);
            return status != UCS_ERR_NO_RESOURCE;
        });
        return status;
    }

    Entity one{resource_of("sm")};
    Entity other{resource_of("sm")};
};

// The notice that the peer has no endpoint any more overtakes what it sent: that is delivered
// although we leave, too, before we have looked at it.
TEST_F(SmIface, a_message_of_a_peer_that_left_is_delivered_to_who_leaves_too) {
    Endpoint there = std::move(connect(one, other).forward);
    ASSERT_EQ(UCS_OK, send(there, 1));
    ASSERT_TRUE(until([&] { return other.am_count == 1; }));
    Endpoint back = std::move(connect(other, one).forward);
    ASSERT_EQ(UCS_OK, uct_ep_am_short(back, kId, 2, nullptr, 0));
    back.reset();
    for (int i = 0; i < kSteps && one.progress() == 0; ++i) {
    }
    there.reset();
    EXPECT_TRUE(until([&] { return one.am_count == 1; }));
}

// The kernel tells of its unread packets before it hands out what the peer sent.
TEST_F(SmIface, a_message_of_a_peer_that_never_read_our_greeting_is_delivered) {
    {
        Entity brief(resource_of("sm"));
        const Endpoint there = std::move(connect(brief, one).forward);
        ASSERT_TRUE(until([&] { return fact_of(one, "peers") == 1; }));
        ASSERT_EQ(UCS_OK, uct_ep_am_short(there, kId, 1, nullptr, 0));
    }
    EXPECT_TRUE(until([&] { return one.am_count == 1; }));
}

// Its greeting wakes us.
TEST_F(SmIface, a_peer_that_does_not_answer_wakes_nobody) {
    const Endpoint silent = std::move(connect(one, other).forward);  // `other` is not progressed
    for (int i = 0; i < 1000; ++i)
        one.progress();
    ASSERT_EQ(UCS_OK, uct_iface_event_arm(one.iface(), UCT_EVENT_RECV));
    int fd = -1;
    ASSERT_EQ(UCS_OK, uct_iface_event_fd_get(one.iface(), &fd));
    constexpr int kManyRetriesMs = 10;
    pollfd entry = {fd, POLLIN, 0};
    EXPECT_EQ(0, poll(&entry, 1, kManyRetriesMs));
    for (int i = 0; i < kSteps && poll(&entry, 1, 0) == 0; ++i)
        other.progress();
    EXPECT_EQ(1, poll(&entry, 1, 0)) << "the greeting wakes nobody";
}

}  // namespace
}  // namespace tagwire::test
