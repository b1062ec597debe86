// SPDX-License-Identifier: BSD-3-Clause
// Lanes beside an endpoint's own, alone: over rails without wires, which move nothing by themselves
// and end their pieces in any order, and with a peer that says anything.
#include "protocols/transfer/stripe.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "common/nomem.hpp"
#include "common/seeds.hpp"
#include "protocols/parts/connector_part.hpp"
#include "protocols/parts/fake_worker.hpp"
#include "ucs/memory/reserve.hpp"
#include "uct/tcp/tcp_component.hpp"
#include "uct/tcp/wire.hpp"

namespace tagwire::test {
namespace {

using proto::Down;
using proto::Offer;
using proto::OfferMessage;
using proto::Request;
using proto::RequestKind;
using proto::Stripes;
using proto::Transfer;
using proto::TransferPart;
using proto::WorkerCounter;

constexpr std::size_t kStripeOwn = 0, kStripeIface = 1, kStripeRc = 2;

/// The lanes of one side, whose own lane leads to the peer's first rail.
struct StripesBench {
    static constexpr std::uint64_t kLength = 1 << 20;

    StripesBench() {
        for (const char* transport : {"tcp", "wires", "rc"}) {
            WirelessSettings settings;
            settings.transport = transport;
            settings.connects_to_iface = std::strcmp(transport, "rc") != 0;
            settings.moves = true;
            side.wireless.options.rndv_rails = 3;
            side.wireless.options.rndv_rail_min = 4096;
            side.wireless.add(settings);
            const std::size_t rail = side.wireless.rails.size() - 1;
            side.wireless.domain(rail).component = uct::handle_of(tcp::component());
            side.wireless.domain(rail).attr.rkey_packed_size = sizeof(tcp::PackedRkey);
        }
        worker.options.rndv_rails = 3;
        worker.options.rndv_rail_min = 4096;
        proto::Hello hello{};
        hello.id = 7;
        hello.number = 1;
        hello.eager_max = 4000;
        ucs::ReserveVector<proto::PeerRail> rails;
        const std::byte at{1};
        for (const char* transport : {"tcp", "wires", "rc"}) {
            const auto domain = static_cast<std::uint8_t>(rails.size());
            rails.push_back({transport, domain, 0, {at}, {at}});
            keys.resize(keys.size() + sizeof(proto::KeyHead) + sizeof(tcp::PackedRkey));
            const proto::KeyHead head{domain, sizeof(tcp::PackedRkey)};
            const tcp::PackedRkey key{tcp::kRkeyMagic, 1, 1, 0, kLength};
            std::byte* const to = &*(keys.end() - sizeof head - sizeof key);
            std::memcpy(to, &head, sizeof head);
            std::memcpy(to + sizeof head, &key, sizeof key);
        }
        hello.rails = static_cast<std::uint32_t>(rails.size());
        side.connector.on_hello(hello, std::move(rails));
        side.progress();
        lane.ep = side.lane.made;
        lane.over = side.wireless.rails[kStripeOwn].get();
        lane.state = proto::EpState::kReady;
        side.lane.sent.clear();
    }
    ~StripesBench() {
        stripes.disconnect();
        for (Request* request : all)
            release(*request);
        for (std::size_t rail = 0; rail < side.wireless.rails.size(); ++rail)
            while (!iface(rail).pieces.empty())
                end_piece(rail, UCS_ERR_CANCELED);  // transfers go with their last one
    }
    StripesBench(const StripesBench&) = delete;
    StripesBench& operator=(const StripesBench&) = delete;

    /// A message whose data is to be moved; `ends` has how its transfer has ended.
    unsigned long failing = 0;  // allocation of begin(), from 1 on; 0: none
    Request& begin(bool is_put = true, bool only_connections = false) {
        Request& request = worker.make(RequestKind::kSend, buffer);
        auto transfer = std::make_unique<Transfer>(
            request, proto::TransferPorts{worker.port, side.lane.port},
            [](Request& of, ucs_status_t status) {
                static_cast<StripesBench*>(of.transfer->mover)->ends.push_back(status);
            });
        transfer->mover = this;
        transfer->own.end = kLength;
        transfer->is_put = is_put;
        request.wanted = kLength;
        request.transfer = transfer.release();
        outstanding[0].push_back(request);
        all.push_back(&request);
        const FailingAllocation fails(failing);
        stripes.divide(request, keys, only_connections);
        stripes.drain();
        return request;
    }
    /// The endpoint's own lane moves its part, or takes up one that was lost.
    void move_own(Request& request) {
        std::erase(side.lane.data, &request);
        TransferPart& own = request.transfer->own;
        ASSERT_TRUE(own.begin_pieces(lane.ep, *lane.over));
        own.release();
    }
    WirelessIface& iface(std::size_t rail) { return side.wireless.iface(rail); }
    /// The oldest piece over the rail has ended.
    void end_piece(std::size_t rail, ucs_status_t status = UCS_OK) {
        uct_completion_t* const done = iface(rail).pieces.front().done;
        iface(rail).pieces.pop_front();
        if (status != UCS_OK)
            uct_completion_update_status(done, status);
        if (--done->count == 0)
            done->func(done);
    }
    /// The pieces of the own lane, until there is nothing to move.
    void finish_own(Request& request) {
        while (true) {
            while (!iface(kStripeOwn).pieces.empty())
                end_piece(kStripeOwn);
            if (std::ranges::find(side.lane.data, &request) == side.lane.data.end())
                return;
            move_own(request);
        }
    }
    void release(Request& request) {
        outstanding[0].erase(request);
        proto::end_transfer(request);
        worker.requests.release(request);
    }
    /// The peer's endpoint of rc is connected to ours, and ours to it.
    void connect_rc() {
        OfferMessage offer;
        offer.offer = {7, kStripeRc, kStripeRc, 1, 1};
        offer.address = {std::byte{1}};
        stripes.on_offer(offer);
    }

    FakeWorker worker;
    ConnectorSide side{1, 2};
    proto::LaneState lane;
    proto::Outstanding outstanding;
    proto::RequestList receiving;
    std::vector<std::byte> buffer = std::vector<std::byte>(kLength);
    std::vector<std::byte> keys;
    std::vector<Request*> all;
    std::vector<ucs_status_t> ends;
    Stripes stripes{
        {worker.port, side.world, side.names, 2, lane, side.connector, receiving, outstanding}};
};

class StripesPart : public testing::Test, protected StripesBench {};

// ---- Dividing

TEST_F(StripesPart, data_is_divided_over_the_lanes_that_are_ready) {
    EXPECT_EQ(stripes.plan(true), nullptr);
    Request& request = begin();
    EXPECT_NE(stripes.plan(true), nullptr);
    EXPECT_EQ(stripes.ready(), 1U);  // that of rc waits for the peer's
    ASSERT_EQ(request.transfer->others.size(), 1U);
    const TransferPart& other = *request.transfer->others[0];
    EXPECT_EQ(other.begin, request.transfer->own.end);
    EXPECT_EQ(other.end, kLength);
    ASSERT_FALSE(iface(kStripeIface).pieces.empty());
    EXPECT_EQ(iface(kStripeIface).pieces[0].iov.buffer, buffer.data() + other.begin);
    EXPECT_EQ(worker.count(WorkerCounter::kRndvStriped), 1U);
    EXPECT_EQ(worker.count(WorkerCounter::kRndvRailBytes), other.end - other.begin);
    connect_rc();
    EXPECT_EQ(stripes.ready(), 2U);
    EXPECT_EQ(begin().transfer->others.size(), 2U);
}

TEST_F(StripesPart, what_is_short_or_has_no_key_is_not_divided) {
    begin();
    const std::vector<std::byte> all_keys = keys;
    keys.clear();
    EXPECT_TRUE(begin().transfer->others.empty());
    keys = all_keys;
    keys[sizeof(proto::KeyHead) + 1 + sizeof(tcp::PackedRkey)] = std::byte{3};  // too short a key
    EXPECT_TRUE(begin().transfer->others.empty());
    keys = all_keys;
    keys[2 * sizeof(proto::KeyHead) + sizeof(tcp::PackedRkey)] ^= std::byte{1};  // no key at all
    EXPECT_TRUE(begin().transfer->others.empty());
    keys = all_keys;
    Request& request = begin();
    request.wanted = 100;
    request.transfer->own.end = 100;
    EXPECT_EQ(worker.count(WorkerCounter::kRndvStriped), 2U);
}

TEST_F(StripesPart, a_key_that_ends_with_a_connection_goes_over_connections_alone) {
    EXPECT_TRUE(begin(true, true).transfer->others.empty());
    connect_rc();
    Request& request = begin(true, true);
    ASSERT_EQ(request.transfer->others.size(), 1U);
    EXPECT_FALSE(iface(kStripeRc).pieces.empty());
}

// ---- Ends

TEST_F(StripesPart, it_has_ended_when_each_part_has_whatever_their_order) {
    connect_rc();
    std::array<std::size_t, 3> order{kStripeOwn, kStripeIface, kStripeRc};
    do {
        for (const ucs_status_t status : {UCS_OK, UCS_ERR_IO_ERROR}) {
            ends.clear();
            Request& request = begin();
            move_own(request);
            for (const std::size_t rail : order) {
                EXPECT_TRUE(ends.empty());
                while (!iface(rail).pieces.empty())
                    end_piece(rail, rail == kStripeOwn ? status : UCS_OK);
            }
            EXPECT_EQ(ends, std::vector{status});
            EXPECT_TRUE(side.lane.data.empty());
        }
    } while (std::ranges::next_permutation(order).found);
    EXPECT_EQ(worker.count(WorkerCounter::kRndvRailLost), 0U);
}

TEST_F(StripesPart, parts_that_wait_for_room_go_on_and_end_with_a_failure_of_the_lane) {
    iface(kStripeIface).settings.move = UCS_ERR_NO_RESOURCE;
    Request& first = begin();
    Request& second = begin();
    EXPECT_TRUE(first.transfer->others[0]->is_waiting);
    ASSERT_EQ(iface(kStripeIface).waiting.size(), 1U);
    uct_pending_req_t* const room = iface(kStripeIface).waiting[0];
    EXPECT_EQ(room->func(room), UCS_ERR_NO_RESOURCE);
    move_own(first);
    end_piece(kStripeOwn, UCS_ERR_IO_ERROR);
    EXPECT_EQ(ends, std::vector{UCS_ERR_IO_ERROR});
    EXPECT_FALSE(first.transfer->others[0]->is_waiting);
    iface(kStripeIface).settings.move = UCS_INPROGRESS;
    EXPECT_EQ(room->func(room), UCS_OK);
    EXPECT_FALSE(second.transfer->others[0]->is_waiting);
    EXPECT_FALSE(iface(kStripeIface).pieces.empty());
}

TEST_F(StripesPart, a_request_that_ends_takes_its_parts_out_of_the_lanes) {
    iface(kStripeIface).settings.move = UCS_ERR_NO_RESOURCE;
    Request& request = begin();
    proto::end_transfer(request);
    iface(kStripeIface).settings.move = UCS_INPROGRESS;
    uct_pending_req_t* const room = iface(kStripeIface).waiting.at(0);
    EXPECT_EQ(room->func(room), UCS_OK);
    EXPECT_TRUE(iface(kStripeIface).pieces.empty());
    EXPECT_TRUE(ends.empty());
}

// ---- Rails that are lost

TEST_F(StripesPart, a_part_whose_lane_fails_is_moved_by_the_own_one_and_the_peer_hears_of_it) {
    for (const bool own_ends_first : {true, false}) {
        StripesBench bench;
        Request& request = bench.begin();
        const std::uint64_t begin = request.transfer->others[0]->begin;
        bench.move_own(request);
        const auto fail = [&] { bench.end_piece(kStripeIface, UCS_ERR_ENDPOINT_TIMEOUT); };
        if (!own_ends_first)
            fail();
        while (!bench.iface(kStripeOwn).pieces.empty())
            bench.end_piece(kStripeOwn);
        if (own_ends_first) {
            EXPECT_TRUE(bench.ends.empty());
            fail();
        }
        EXPECT_EQ(bench.stripes.ready(), 0U);
        ASSERT_EQ(bench.side.lane.sent.count<Down>(), 1U);
        EXPECT_EQ(bench.side.lane.sent.back().as<Down>().rail, kStripeIface);
        EXPECT_TRUE(bench.ends.empty());
        EXPECT_EQ(bench.side.lane.data, std::vector{&request});
        EXPECT_EQ(request.transfer->own.next, begin);
        EXPECT_TRUE(request.transfer->has_lost_rail);
        bench.finish_own(request);
        EXPECT_EQ(bench.ends, std::vector{UCS_OK});
        EXPECT_EQ(bench.worker.count(WorkerCounter::kRndvRailLost), 1U);
        EXPECT_TRUE(bench.begin().transfer->others.empty());
    }
}

TEST_F(StripesPart, parts_that_have_not_begun_are_the_own_lanes_when_the_peer_has_lost_the_rail) {
    iface(kStripeIface).settings.move = UCS_ERR_NO_RESOURCE;
    Request& first = begin();
    Request& second = begin();
    move_own(first);
    while (!iface(kStripeOwn).pieces.empty())
        end_piece(kStripeOwn);
    stripes.on_down({.rail = kStripeIface, .sender_rail = kStripeIface});
    EXPECT_EQ(side.lane.sent.count<Down>(), 0U);
    EXPECT_EQ(side.lane.data, std::vector{&first});
    finish_own(first);
    EXPECT_EQ(ends, std::vector{UCS_OK});
    move_own(second);
    finish_own(second);
    EXPECT_EQ(ends, (std::vector{UCS_OK, UCS_OK}));
    EXPECT_EQ(worker.count(WorkerCounter::kRndvRailLost), 2U);
}

TEST_F(StripesPart, an_endpoint_that_the_transport_has_failed_is_known_by_its_handle) {
    begin();
    EXPECT_FALSE(stripes.lane_failed(lane.ep, UCS_ERR_ENDPOINT_TIMEOUT));
    uct_ep_h const failed = iface(kStripeIface).pieces[0].by;
    EXPECT_TRUE(stripes.lane_failed(failed, UCS_ERR_ENDPOINT_TIMEOUT));
    EXPECT_EQ(side.lane.sent.count<Down>(), 1U);
    EXPECT_FALSE(stripes.lane_failed(failed, UCS_ERR_ENDPOINT_TIMEOUT));
}

TEST_F(StripesPart, a_lane_that_cannot_be_made_is_left_out) {
    iface(kStripeIface).settings.create = UCS_ERR_NO_MEMORY;
    iface(kStripeRc).settings.address_status = UCS_ERR_IO_ERROR;
    Request& request = begin();
    EXPECT_TRUE(request.transfer->others.empty());
    connect_rc();  // it is refused
    EXPECT_EQ(stripes.ready(), 0U);
}

TEST_F(StripesPart, lanes_go_with_the_endpoint_and_nothing_is_said) {
    iface(kStripeIface).settings.move = UCS_ERR_NO_RESOURCE;
    Request& request = begin();
    stripes.disconnect();
    EXPECT_FALSE(request.transfer->others[0]->is_waiting);
    EXPECT_TRUE(side.lane.sent.empty());
    EXPECT_TRUE(iface(kStripeIface).eps.empty());
    EXPECT_EQ(stripes.ready(), 0U);
}

// ---- A peer that says anything

TEST_F(StripesPart, offers_of_rails_that_are_none_are_counted) {
    OfferMessage offer;
    offer.address = {std::byte{1}};
    for (const auto [rail, peer_rail] :
         {std::array<std::size_t, 2>{9, kStripeRc}, {kStripeRc, 9}}) {
        offer.offer = {7, static_cast<std::uint8_t>(rail), static_cast<std::uint8_t>(peer_rail), 0,
                       1};
        stripes.on_offer(offer);
    }
    stripes.on_ready({7, kStripeRc, kStripeRc, 0, 0});
    stripes.on_refuse({7, 9, 9, 0, 0});
    stripes.on_down({.rail = 9, .sender_rail = 9});
    EXPECT_EQ(worker.count(WorkerCounter::kGarbage), 3U);
    EXPECT_EQ(stripes.ready(), 0U);
}

TEST(StripesRandom, whatever_the_peer_says_and_the_rails_do_each_message_ends_once) {
    for_each_seed(60, [](std::uint64_t seed) {
        std::mt19937_64 random(seed);
        StripesBench bench;
        std::vector<Request*> moving;
        for (unsigned i = 0; i < 100; ++i) {
            const auto rail = static_cast<std::uint8_t>(random() % 4);
            const auto peer_rail = static_cast<std::uint8_t>(random() % 4);
            switch (random() % 8) {
                case 0:
                    moving.push_back(&bench.begin(random() % 2 == 0));
                    bench.move_own(*moving.back());
                    break;
                case 1:
                    bench.connect_rc();
                    break;
                case 2: {
                    OfferMessage offer;
                    offer.offer = {7, rail, peer_rail, static_cast<std::uint8_t>(random() % 2),
                                   static_cast<std::uint8_t>(random() % 2)};
                    offer.address.resize(offer.offer.address_bytes);
                    bench.stripes.on_offer(offer);
                    break;
                }
                case 3:
                    bench.stripes.on_ready({7, rail, peer_rail, 0, 0});
                    break;
                case 4:
                    if (random() % 8 == 0)
                        bench.stripes.on_refuse({7, rail, peer_rail, 0, 0});
                    else if (random() % 8 == 0)
                        bench.stripes.on_down({.rail = rail, .sender_rail = peer_rail});
                    break;
                default: {
                    const std::size_t at = random() % 3;
                    const bool fails = at != kStripeOwn && random() % 8 == 0;
                    if (!bench.iface(at).pieces.empty())
                        bench.end_piece(at, fails ? UCS_ERR_ENDPOINT_TIMEOUT : UCS_OK);
                }
            }
        }
        for (unsigned round = 0; round < 100; ++round) {
            for (const std::size_t at : {kStripeIface, kStripeRc})
                while (!bench.iface(at).pieces.empty())
                    bench.end_piece(at);
            for (Request* request : moving)
                bench.finish_own(*request);
        }
        EXPECT_EQ(bench.ends, std::vector(moving.size(), UCS_OK));
    });
}

// ---- Without memory

TEST(StripesMemory, a_message_is_divided_or_not_and_moves) {
    ASSERT_TRUE(ucs::reserve_open());
    for (unsigned long which = 1; which < 12; ++which) {
        StripesBench bench;
        bench.failing = which;
        Request* const request = &bench.begin();
        bench.move_own(*request);
        while (!bench.iface(kStripeIface).pieces.empty())
            bench.end_piece(kStripeIface);
        bench.finish_own(*request);
        EXPECT_EQ(bench.ends, std::vector{UCS_OK}) << which;
    }
}

}  // namespace
}  // namespace tagwire::test
