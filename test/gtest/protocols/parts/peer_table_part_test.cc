// SPDX-License-Identifier: BSD-3-Clause
// The table of peers alone: two workers that connect, close and come back in every order,
// transports that fail, and allocations that do.
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/nomem.hpp"
#include "protocols/parts/peer_table_part.hpp"
#include "ucs/memory/reserve.hpp"

namespace tagwire::test {
namespace {

using proto::HelloMessage;
using proto::PeerEndpoint;
using Event = PeerSide::Event;

// ---- Connecting

TEST_F(PeerTablePart, an_address_connects_both_sides_and_each_is_told_once) {
    EXPECT_EQ(ours_.connect(theirs_), UCS_OK);
    settle();
    EXPECT_TRUE(is_connected());
    EXPECT_EQ(ours_.events, (std::vector{Event{kTheirs, TW_PEER_UP, TW_OK}}));
    EXPECT_EQ(theirs_.events, (std::vector{Event{kOurs, TW_PEER_UP, TW_OK}}));
    EXPECT_EQ(ours_.table.handle_to(kTheirs), ours_.to(kTheirs));
    EXPECT_EQ(theirs_.table.handle_to(kOurs), nullptr);  // its program has not asked
    EXPECT_EQ(ours_.to(kTheirs)->source, 1U);
}

TEST_F(PeerTablePart, connects_that_cross_make_one_connection) {
    EXPECT_EQ(ours_.connect(theirs_), UCS_OK);
    EXPECT_EQ(theirs_.connect(ours_), UCS_OK);
    settle();
    EXPECT_TRUE(is_connected());
    EXPECT_EQ(ours_.live.size() + theirs_.live.size(), 2U);
}

TEST_F(PeerTablePart, a_second_endpoint_to_a_peer_is_refused) {
    EXPECT_EQ(ours_.connect(theirs_), UCS_OK);
    EXPECT_EQ(ours_.connect(theirs_), UCS_ERR_ALREADY_EXISTS);
    EXPECT_EQ(ours_.live.size(), 1U);
}

TEST_F(PeerTablePart, an_endpoint_without_an_address_needs_a_connected_peer) {
    PeerEndpoint* ep = nullptr;
    EXPECT_EQ(theirs_.table.connect_to(kOurs, nullptr, &ep), UCS_ERR_NO_ELEM);
    EXPECT_EQ(ep, nullptr);
    EXPECT_EQ(ours_.connect(theirs_), UCS_OK);
    settle();
    int data = 0;
    EXPECT_EQ(theirs_.table.connect_to(kOurs, &data, &ep), UCS_OK);
    ASSERT_EQ(ep, theirs_.to(kOurs));
    EXPECT_EQ(ep->closing().user_data(), &data);
}

TEST_F(PeerTablePart, a_peer_that_cannot_be_reached_leaves_nothing) {
    ours_.wireless.iface(0).settings.unreachable = {kTheirs};
    EXPECT_EQ(ours_.connect(theirs_), UCS_ERR_UNREACHABLE);
    EXPECT_EQ(ours_.connect(theirs_), UCS_ERR_UNREACHABLE);
    EXPECT_EQ(ours_.to(kTheirs), nullptr);
    EXPECT_TRUE(ours_.live.empty());
    EXPECT_EQ(ours_.ids.size(), 0U);
}

TEST_F(PeerTablePart, an_endpoint_without_an_id_is_refused_by_call_and_by_message) {
    ours_.has_ids = false;
    EXPECT_EQ(ours_.connect(theirs_), UCS_ERR_NO_MEMORY);
    EXPECT_FALSE(hear(hello_of(kTheirs, 5)));
    EXPECT_TRUE(ours_.live.empty());
    ours_.has_ids = true;
    EXPECT_EQ(ours_.connect(theirs_), UCS_OK);
}

TEST_F(PeerTablePart, an_endpoint_whose_transmit_contexts_fail_is_closed_by_force) {
    ours_.contexts = UCS_ERR_NO_MEMORY;
    EXPECT_EQ(ours_.connect(theirs_), UCS_ERR_NO_MEMORY);
    settle();
    EXPECT_EQ(ours_.to(kTheirs), nullptr);
    EXPECT_TRUE(ours_.live.empty());
    EXPECT_TRUE(ours_.failed.empty());  // the program never had it
}

TEST_F(PeerTablePart, an_endpoint_of_a_transmit_context_is_found_or_made) {
    PeerEndpoint* const made = ours_.table.found_or_made(kTheirs);
    ASSERT_NE(made, nullptr);
    EXPECT_EQ(ours_.table.found_or_made(kTheirs), made);
    ours_.has_ids = false;
    EXPECT_EQ(ours_.table.found_or_made(3), nullptr);
}

TEST_F(PeerTablePart, a_transmit_context_is_known_by_its_worker) {
    constexpr std::uint64_t kContext = 30;
    EXPECT_EQ(ours_.connect(theirs_), UCS_OK);
    HelloMessage message = hello_of(kTheirs, 5);
    message.hello.tx_context = 1;
    message.hello.worker = kTheirs;
    EXPECT_TRUE(hear(message, kContext));
    const SideEndpoint* const ep = ours_.to(kContext);
    ASSERT_NE(ep, nullptr);
    EXPECT_EQ(ep->worker_id, kTheirs);
    EXPECT_EQ(ep->source, ours_.to(kTheirs)->source);
    EXPECT_EQ(ours_.table.handle_to(kContext), ours_.to(kTheirs));
    // It is of that worker for ever.
    message.hello.worker = 4;
    message.hello.id = 6;
    EXPECT_FALSE(hear(message, kContext));
    message.hello.tx_context = 0;
    EXPECT_FALSE(hear(message, kContext));
    settle();
    for (const Event& event : ours_.events)
        EXPECT_EQ(event.worker, kTheirs);  // the program sees nothing of contexts
}

// ---- The end in agreement

/// Every order in which two programs close, with `between` steps of the wire before the second one.
TEST_F(PeerTablePart, both_sides_go_whichever_closes_first_and_however_late_the_other_does) {
    for (const bool we_begin : {true, false}) {
        for (unsigned between = 0; between < 12; ++between) {
            connect_both();
            PeerSide& first = we_begin ? ours_ : theirs_;
            PeerSide& second = other(first);
            PeerSide::close(*first.to(second.id));
            for (unsigned i = 0; i < between; ++i) {
                first.progress();
                second.progress();
                deliver_of(i % 2 == 0 ? first : second);
            }
            PeerSide::close(*second.to(first.id));
            settle();
            EXPECT_TRUE(ours_.live.empty()) << between;
            EXPECT_TRUE(theirs_.live.empty()) << between;
            EXPECT_EQ(ours_.ids.size() + theirs_.ids.size(), 0U);
            for (PeerSide* const side : {&ours_, &theirs_}) {
                EXPECT_EQ(side->events.back(), (Event{other(*side).id, TW_PEER_CLOSED, TW_OK}));
                EXPECT_TRUE(side->failed.empty());
            }
        }
    }
}

// Receives that name the peer end with its last endpoint, not with one whose place another has.
TEST_F(PeerTablePart, messages_in_part_are_dropped_and_receives_end_with_the_last_endpoint) {
    connect_both();
    PeerSide::close(*ours_.to(kTheirs));
    settle();
    PeerSide::close(*theirs_.to(kOurs));
    settle();
    EXPECT_EQ(theirs_.drops, (std::vector{PeerSide::Drop{kOurs, UCS_ERR_CANCELED, true}}));
    // A connection that is over before the peer has answered: the endpoint begins anew.
    ours_.drops.clear();
    EXPECT_EQ(ours_.connect(theirs_), UCS_OK);
    SideEndpoint* const ep = ours_.to(kTheirs);
    ours_.table.connection_is_over(*ep, ep->connector().number(), UCS_ERR_NOT_CONNECTED);
    EXPECT_EQ(ep->anew, 1U);
    EXPECT_EQ(ours_.drops, (std::vector{PeerSide::Drop{kTheirs, UCS_ERR_CONNECTION_RESET, false}}));
}

TEST_F(PeerTablePart, a_program_that_closes_and_comes_back_is_told_of) {
    connect_both();
    PeerSide::close(*theirs_.to(kOurs));
    settle();
    EXPECT_EQ(theirs_.connect(ours_), UCS_OK);
    settle();
    EXPECT_EQ(ours_.events, (std::vector{Event{kTheirs, TW_PEER_LEFT, TW_OK},
                                         Event{kTheirs, TW_PEER_BACK, TW_OK}}));
    EXPECT_TRUE(is_connected());
}

TEST_F(PeerTablePart, peers_that_have_gone_connect_again_by_another_connection) {
    for (unsigned round = 0; round < 5; ++round) {
        connect_both();
        PeerSide::close(*ours_.to(kTheirs));
        settle();
        PeerSide::close(*theirs_.to(kOurs));
        // The next connection begins at any time of that end.
        for (unsigned i = 0; i < round; ++i) {
            ours_.progress();
            theirs_.progress();
            deliver_of(i % 2 == 0 ? ours_ : theirs_);
        }
        ASSERT_EQ(ours_.connect(theirs_), UCS_OK);
        settle();
        ASSERT_TRUE(is_connected()) << round;
        PeerSide::close(*ours_.to(kTheirs));
        settle();
        if (SideEndpoint* const far = theirs_.to(kOurs); far != nullptr && far->closing().is_open())
            PeerSide::close(*far);
        settle();
        EXPECT_TRUE(ours_.live.empty() && theirs_.live.empty()) << round;
    }
}

TEST_F(PeerTablePart, an_endpoint_waits_for_callbacks_that_may_still_ask_for_it) {
    connect_both();
    SideEndpoint* const ep = ours_.to(kTheirs);
    std::vector<std::byte> data(8);
    proto::Request& request = ours_.worker.make(proto::RequestKind::kFlush, data);
    request.ep = reinterpret_cast<proto::Endpoint*>(&ep->fake);
    request.complete = [](const tw_completion_t*) {};
    request.done.status = TW_OK;
    ours_.worker.requests.report(request);
    ours_.table.close(*ep);
    EXPECT_EQ(ours_.table.destroy_retired(), 0U);
    EXPECT_EQ(ours_.live.size(), 1U);
    settle();
    EXPECT_TRUE(ours_.live.empty());
}

TEST_F(PeerTablePart, a_worker_ends_with_endpoints_in_every_state) {
    PeerSide third(3);
    EXPECT_EQ(ours_.connect(third), UCS_OK);  // which never answers
    connect_both();
    PeerSide::close(*ours_.to(kTheirs));
    ours_.clear();
    EXPECT_EQ(ours_.to(kTheirs), nullptr);
}

// ---- Failures

TEST_F(PeerTablePart, a_lane_that_fails_outside_of_progress_is_told_of_in_progress) {
    connect_both();
    SideEndpoint* const ep = ours_.to(kTheirs);
    ours_.table.lane_failed(ep->fake.made, UCS_ERR_ENDPOINT_TIMEOUT);
    EXPECT_TRUE(ep->fake.failures.empty());
    EXPECT_TRUE(ours_.failed.empty());
    settle();
    EXPECT_EQ(ep->fake.failures, std::vector{UCS_ERR_ENDPOINT_TIMEOUT});
    EXPECT_EQ(ours_.to(kTheirs), nullptr);
    EXPECT_EQ(ours_.failed, (std::vector{PeerSide::Failure{ep, TW_ERR_ENDPOINT_TIMEOUT}}));
    EXPECT_EQ(ours_.events, (std::vector{Event{kTheirs, TW_PEER_FAILED, TW_ERR_ENDPOINT_TIMEOUT}}));
    // The program has it until it closes it.
    EXPECT_EQ(ours_.live.count(ep), 1U);
    ours_.table.close(*ep);
    settle();
    EXPECT_TRUE(ours_.live.empty());
}

TEST_F(PeerTablePart, a_lane_that_fails_in_progress_ends_its_endpoint_at_once) {
    connect_both();
    SideEndpoint* const ep = ours_.to(kTheirs);
    ours_.worker.attention.begin_progress();
    ours_.table.lane_failed(ep->fake.made, UCS_ERR_IO_ERROR);
    ours_.worker.attention.end_progress();
    EXPECT_EQ(ep->fake.failures, std::vector{UCS_ERR_IO_ERROR});
    EXPECT_TRUE(ours_.failed.empty());  // told by slow work
    settle();
    EXPECT_EQ(ours_.failed.size(), 1U);
}

TEST_F(PeerTablePart, a_lane_that_has_gone_fails_nobody) {
    connect_both();
    SideEndpoint* const ep = ours_.to(kTheirs);
    const uct_ep_h lane = ep->fake.made;
    ours_.table.lane_failed(lane, UCS_ERR_IO_ERROR);
    ours_.table.map_lane(lane, nullptr);
    ours_.table.lane_failed(lane, UCS_ERR_IO_ERROR);
    EXPECT_EQ(ours_.table.fail_lanes(), 0U);
    EXPECT_TRUE(ep->fake.failures.empty());
    ours_.table.map_lane(lane, ep);
}

TEST_F(PeerTablePart, first_contact_that_fails_ends_a_ready_connection_some_calls_later) {
    connect_both();
    SideEndpoint* const ep = ours_.to(kTheirs);
    uct_ep_t beside{};
    ours_.table.map_lane(&beside, ep);
    ours_.table.lane_failed(&beside, UCS_ERR_ENDPOINT_TIMEOUT);
    ours_.progress();
    EXPECT_TRUE(ep->fake.failures.empty());  // earlier events are seen first
    settle();
    EXPECT_EQ(ep->fake.failures, std::vector{UCS_ERR_ENDPOINT_TIMEOUT});
    ours_.table.map_lane(&beside, nullptr);
}

TEST_F(PeerTablePart, a_failure_is_told_behind_the_ends_of_operations) {
    connect_both();
    SideEndpoint* const ep = ours_.to(kTheirs);
    static bool is_told;
    is_told = false;
    std::vector<std::byte> data(8);
    proto::Request& request = ours_.worker.make(proto::RequestKind::kFlush, data);
    request.complete = [](const tw_completion_t*) { is_told = true; };
    ours_.worker.requests.report(request);
    ep->lane.fail(UCS_ERR_IO_ERROR);
    EXPECT_EQ(ours_.table.run_notices(), 0U);
    EXPECT_TRUE(ours_.failed.empty());
    ours_.worker.attention.begin_progress();
    ours_.worker.requests.tell_ends();
    ours_.worker.attention.end_progress();
    EXPECT_TRUE(is_told);
    EXPECT_EQ(ours_.table.run_notices(), 2U);  // of the endpoint and of the peer
    EXPECT_EQ(ours_.failed.size(), 1U);
}

TEST_F(PeerTablePart, a_failure_is_told_when_no_device_moves_data_of_it) {
    connect_both();
    SideEndpoint* const ep = ours_.to(kTheirs);
    ep->marks.draining = 1;
    ep->lane.fail(UCS_ERR_IO_ERROR);
    EXPECT_EQ(ours_.table.run_notices(), 0U);
    ep->marks.draining = 0;
    EXPECT_EQ(ours_.table.run_notices(), 2U);
}

TEST_F(PeerTablePart, the_failure_of_an_endpoint_that_was_closed_is_not_told) {
    connect_both();
    SideEndpoint* const ep = ours_.to(kTheirs);
    ep->lane.fail(UCS_ERR_IO_ERROR);
    ours_.table.close(*ep);
    settle();
    EXPECT_TRUE(ours_.failed.empty());
    EXPECT_TRUE(ours_.live.empty());
    EXPECT_EQ(ours_.events, (std::vector{Event{kTheirs, TW_PEER_FAILED, TW_ERR_IO_ERROR}}));
}

TEST_F(PeerTablePart, the_endpoint_of_a_program_fails_with_that_of_its_transmit_context) {
    connect_both();
    ours_.is_tx_context = true;
    ours_.to(kTheirs)->lane.fail(UCS_ERR_IO_ERROR);
    settle();
    EXPECT_EQ(ours_.fronts_failed, std::vector{UCS_ERR_IO_ERROR});
    EXPECT_TRUE(ours_.failed.empty());
}

TEST_F(PeerTablePart, a_peer_whose_connection_was_closed_by_force_hears_of_that) {
    for (const bool has_room : {true, false}) {
        connect_both();
        SideEndpoint* const far = theirs_.to(kOurs);
        ours_.to(kTheirs)->fake.room = has_room ? UCS_OK : UCS_ERR_NO_RESOURCE;
        // By the lane, or by another connection.
        ours_.to(kTheirs)->fake.is_quiet = false;
        const proto::Reset reset{0, 0, ours_.to(kTheirs)->connector().number()};
        ours_.table.close(*ours_.to(kTheirs));
        if (has_room)
            theirs_.on_control(*far, proto::Control::of(reset));
        settle();
        EXPECT_EQ(far->fake.failures, std::vector{UCS_ERR_CONNECTION_RESET}) << has_room;
        EXPECT_EQ(theirs_.failed.size(), 1U);
        theirs_.failed.clear();
        theirs_.table.close(*far);
        settle();
        EXPECT_TRUE(ours_.live.empty() && theirs_.live.empty()) << has_room;
    }
}

// ---- Memory

TEST(PeerTableMemory, a_connection_begins_and_ends_whatever_has_no_memory) {
    ASSERT_TRUE(ucs::reserve_open());
    for (unsigned long which = 1; which < 80; ++which) {
        PeerSide side(1), other(2);
        const proto::Address address = other.address();
        HelloMessage message = hello_of(2, 5);
        PeerEndpoint* ep = nullptr;
        ucs_status_t status = UCS_OK;
        {
            const FailingAllocation failing(which);
            status = side.table.connect(address, 0, nullptr, &ep);
            side.table.on_hello(2, std::move(message));
            side.progress();
        }
        EXPECT_TRUE(status == UCS_OK || status == UCS_ERR_NO_MEMORY) << which;
        ASSERT_NE(side.to(2), nullptr) << which;  // the peer's hello made one
        {
            const FailingAllocation failing(which);
            side.table.close(*side.to(2));
            side.progress();
        }
        side.progress();
        EXPECT_TRUE(side.live.empty()) << which;
        EXPECT_EQ(side.ids.size(), 0U) << which;
    }
}

}  // namespace
}  // namespace tagwire::test
