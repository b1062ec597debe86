// SPDX-License-Identifier: BSD-3-Clause
// The table of peers alone, with peers that say anything.
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/seeds.hpp"
#include "protocols/parts/peer_table_part.hpp"

namespace tagwire::test {
namespace {

using proto::HelloMessage;
using proto::PeerEndpoint;
using Event = PeerSide::Event;

class PeerTableStrangers : public PeerTablePart {};

TEST_F(PeerTableStrangers, a_hello_that_comes_twice_or_late_makes_nothing) {
    const HelloMessage first = hello_of(kTheirs, 5, 1);
    EXPECT_TRUE(hear(first));
    SideEndpoint* const ep = ours_.to(kTheirs);
    ASSERT_NE(ep, nullptr);
    EXPECT_TRUE(hear(first));
    EXPECT_EQ(ours_.to(kTheirs), ep);
    EXPECT_EQ(ours_.live.size(), 1U);
    // The peer begins anew: the connection that it had has been reset.
    EXPECT_TRUE(hear(hello_of(kTheirs, 6, 2)));
    EXPECT_NE(ours_.to(kTheirs), ep);
    EXPECT_EQ(ep->fake.failures, std::vector{UCS_ERR_CONNECTION_RESET});
    EXPECT_TRUE(hear(first));
    EXPECT_EQ(ours_.to(kTheirs)->peer_names, 6U);
    settle();
    EXPECT_EQ(ours_.live.size(), 1U);
}

TEST_F(PeerTableStrangers, a_hello_to_an_endpoint_that_is_over_is_answered_by_the_end_of_it) {
    HelloMessage message = hello_of(kTheirs, 5);
    message.hello.known = 0x01000007;  // nobody has it
    EXPECT_TRUE(hear(message));
    SideEndpoint* const ep = ours_.to(kTheirs);
    ASSERT_NE(ep, nullptr);
    EXPECT_TRUE(ep->closing().is_closed());
    EXPECT_EQ(ep->peer_names, 0U);
    // An endpoint of ours that has said hello is not told so.
    EXPECT_TRUE(hear(message));
    EXPECT_EQ(ours_.to(kTheirs), ep);
}

TEST_F(PeerTableStrangers, a_hello_of_nobody_from_this_worker_itself_is_dropped) {
    EXPECT_TRUE(hear(hello_of(kOurs, 99), kOurs));
    EXPECT_TRUE(ours_.live.empty());
    EXPECT_EQ(ours_.connect(ours_), UCS_OK);
    SideEndpoint* const self = ours_.to(kOurs);
    EXPECT_TRUE(hear(hello_of(kOurs, self->id + 1), kOurs));
    EXPECT_EQ(self->peer_names, 0U);
    EXPECT_TRUE(hear(hello_of(kOurs, self->id), kOurs));
    EXPECT_EQ(self->peer_names, self->id);
    settle();
    EXPECT_TRUE(ours_.events.empty());  // of itself a program is told nothing
}

TEST_F(PeerTableStrangers, more_peers_than_the_program_asked_for_are_refused_and_hear_of_it) {
    ours_.worker.options.unasked_peers_max = 2;
    for (std::uint8_t peer = 10; peer < 12; ++peer)
        EXPECT_TRUE(hear(hello_of(peer, 5), peer));
    EXPECT_EQ(theirs_.connect(ours_), UCS_OK);
    SideEndpoint* const far = theirs_.to(kOurs);
    for (unsigned i = 0; i < 20; ++i) {
        theirs_.progress();
        deliver_of(theirs_);
        ours_.progress();
    }
    EXPECT_EQ(ours_.live.size(), 2U);
    // The transport told it before the lane went.
    theirs_.on_control(*far, proto::Control::of(proto::Reset{0, 0, 1}));
    EXPECT_EQ(ours_.to(kTheirs), nullptr);
    // One that the program asks for makes room.
    EXPECT_EQ(ours_.to(10)->marks.is_unasked, true);
    PeerEndpoint* ep = nullptr;
    EXPECT_EQ(ours_.table.connect_to(10, nullptr, &ep), UCS_OK);
    EXPECT_TRUE(hear(hello_of(13, 5), 13));
    settle();
    EXPECT_NE(ours_.to(13), nullptr);
}

TEST_F(PeerTableStrangers, a_refused_peer_that_the_program_asks_for_meanwhile_stays) {
    ours_.worker.options.unasked_peers_max = 0;
    EXPECT_TRUE(hear(hello_of(kTheirs, 5)));
    PeerEndpoint* ep = nullptr;
    EXPECT_EQ(ours_.table.connect_to(kTheirs, nullptr, &ep), UCS_OK);
    settle();
    EXPECT_EQ(ours_.to(kTheirs), ep);
    EXPECT_TRUE(PeerSide::of(*ep).fake.failures.empty());
}

TEST_F(PeerTableStrangers, a_flood_of_peers_has_no_more_effect_than_some_of_them) {
    ours_.worker.options.unasked_peers_max = 0;
    ours_.wireless.iface(0).settings.flush = UCS_INPROGRESS;  // what they hear does not arrive
    unsigned taken = 0;
    for (std::uint64_t peer = 100; peer < 300; ++peer)
        taken += hear(hello_of(7, 5), peer) ? 1U : 0U;
    EXPECT_EQ(taken, 64U);
    EXPECT_EQ(ours_.live.size(), 64U);
    ours_.wireless.iface(0).settings.flush = UCS_OK;
    settle();
    EXPECT_TRUE(ours_.live.empty());
}

TEST_F(PeerTableStrangers, programs_that_connect_anew_by_host_and_port_end_what_was_left) {
    connect_both();
    EXPECT_TRUE(ours_.table.is_engaged(kTheirs));
    EXPECT_FALSE(ours_.table.is_engaged(3));
    SideEndpoint* const ep = ours_.to(kTheirs);
    ours_.table.end_left(kTheirs, true);  // neither has left
    EXPECT_TRUE(ep->fake.failures.empty());
    PeerSide::close(*theirs_.to(kOurs));
    settle();
    EXPECT_FALSE(ours_.table.is_engaged(kTheirs));
    ours_.table.end_left(kTheirs, true);
    EXPECT_EQ(ep->fake.failures, std::vector{UCS_ERR_NOT_CONNECTED});
    EXPECT_EQ(ours_.to(kTheirs), nullptr);
    settle();
    EXPECT_EQ(ours_.failed.size(), 1U);
}

/// Whatever hellos and resets come in whatever order, each endpoint is found by one id, and all go.
TEST_F(PeerTableStrangers, hellos_at_random_leave_each_peer_with_one_endpoint) {
    for_each_seed(50, [](std::uint64_t seed) {
        std::mt19937_64 random(seed);
        PeerSide side(kOurs);
        const auto pick = [&](std::uint64_t below) { return random() % below; };
        for (unsigned step = 0; step < 400; ++step) {
            const std::uint64_t peer = 1 + pick(6);
            SideEndpoint* const ep = side.to(peer);
            switch (pick(8)) {
                case 0: {
                    PeerEndpoint* made = nullptr;
                    static_cast<void>(side.table.connect_to(peer, nullptr, &made));
                    break;
                }
                case 1:
                    if (ep != nullptr && ep->closing().is_open() && !ep->closing().is_closing())
                        PeerSide::close(*ep);
                    break;
                case 2:
                    if (ep != nullptr)
                        side.table.close(*ep);
                    break;
                case 3:
                    if (ep != nullptr) {
                        side.table.connection_is_over(*ep, static_cast<std::uint32_t>(pick(9)),
                                                      UCS_ERR_CONNECTION_RESET);
                    }
                    break;
                case 4:
                    if (ep != nullptr && ep->fake.made != nullptr)
                        side.table.lane_failed(ep->fake.made, UCS_ERR_IO_ERROR);
                    break;
                case 5:
                    side.progress();
                    break;
                default: {
                    HelloMessage message = hello_of(static_cast<std::uint8_t>(peer),
                                                    static_cast<std::uint32_t>(pick(4)),
                                                    static_cast<std::uint32_t>(pick(9)));
                    if (pick(3) == 0)
                        message.hello.known = ep == nullptr ? 1 : ep->id;
                    if (pick(3) == 0)
                        message.hello.retired_id = ep == nullptr ? 1 : ep->id;
                    if (pick(5) == 0) {
                        message.hello.tx_context = 1;
                        message.hello.worker = 1 + pick(6);
                    }
                    static_cast<void>(side.table.on_hello(peer, std::move(message)));
                }
            }
            std::size_t found = 0;
            for (SideEndpoint* const one : side.live)
                found += side.ids.find(one->id) == one ? 1U : 0U;
            ASSERT_EQ(found, side.ids.size());
        }
        for (SideEndpoint* const ep : std::vector(side.live.begin(), side.live.end()))
            if (side.live.contains(ep))
                side.table.close(*ep);
        for (unsigned i = 0; i < 100; ++i)
            side.progress();
        EXPECT_TRUE(side.live.empty());
        EXPECT_EQ(side.ids.size(), 0U);
    });
}

}  // namespace
}  // namespace tagwire::test
