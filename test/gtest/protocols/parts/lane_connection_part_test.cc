// SPDX-License-Identifier: BSD-3-Clause
// A lane that is being connected, alone: what each side says in every order, what cannot be used,
// and what has no memory.
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "protocols/connect/lane_connection.hpp"
#include "protocols/parts/fake_rail.hpp"
#include "ucs/log/repeats.hpp"

namespace tagwire::test {
namespace {

using proto::LaneConnection;
using proto::Offer;
using proto::OfferMessage;
using proto::WireupOp;

/// In place of a connector, whose peer has two rails of each transport.
struct FakeWireup {
    struct Queued {
        WireupOp op;
        OfferMessage message;
    };

    FakeWireup() {
        rails.add({.transport = "rc", .address = 1, .connects_to_iface = false});
        rails.add({.transport = "tcp", .address = 2});
        rails.add({.transport = "tcp", .address = 3, .goes_through_kernel = true});
        for (const auto address : {std::byte{11}, std::byte{12}}) {
            peers.push_back({"rc", 0, 0, {address}, {address}});
            peers.push_back({"tcp", 0, 0, {address}, {address}});
        }
    }

    ucs_status_t make_ep(proto::Rail& rail, const proto::PeerRail& to, uct_ep_h* ep_p) {
        uct_ep_params_t params{};
        params.field_mask = UCT_EP_PARAM_FIELD_IFACE;
        params.iface = rail.iface();
        if (rail.connects_to_iface()) {
            params.field_mask |= UCT_EP_PARAM_FIELD_DEV_ADDR | UCT_EP_PARAM_FIELD_IFACE_ADDR;
            params.dev_addr = reinterpret_cast<const uct_device_addr_t*>(to.device.data());
            params.iface_addr = reinterpret_cast<const uct_iface_addr_t*>(to.iface.data());
        }
        return uct_ep_create(&params, ep_p);
    }

    WirelessRails rails;
    std::vector<proto::PeerRail> peers;
    std::vector<Queued> queued;
    ucs::Repeats refusals;

  private:
    static FakeWireup& of(void* owner) { return *static_cast<FakeWireup*>(owner); }

    static const proto::WireupCalls kCalls;

  public:
    const proto::WireupPort port{this, kCalls, refusals};
};

constexpr proto::WireupCalls FakeWireup::kCalls{
    .make_ep = [](void* owner, proto::Rail& rail, const proto::PeerRail& to,
                  uct_ep_h* ep_p) { return of(owner).make_ep(rail, to, ep_p); },
    .destroy_ep = [](void*, uct_ep_h ep) { uct_ep_destroy(ep); },
    .queue =
        [](void* owner, WireupOp op, const Offer& offer, std::span<const std::byte> address) {
            of(owner).queued.push_back({op, {offer, {address.begin(), address.end()}}});
        },
    .peer_rail = [](const void* owner, std::size_t index) -> const proto::PeerRail& {
        return static_cast<const FakeWireup*>(owner)->peers[index];
    }};

class LaneConnectionPart : public testing::Test {
  protected:
    static constexpr std::size_t kRc = 0, kTcp = 1, kKernel = 2;  // ours
    static constexpr std::uint8_t kTheirRc = 0, kTheirTcp = 1;

    LaneConnection lane(std::size_t rail, std::uint8_t to,
                        const proto::OfferOps& ops = proto::kLaneOps) {
        return {wireup_.port, *wireup_.rails.rails[rail], to, ops};
    }
    /// An offer of the peer for our rail `to`.
    static OfferMessage offer(std::uint8_t from, std::uint8_t to, bool is_connected,
                              std::uint8_t number = 9) {
        return {{0, from, to, is_connected, 1}, {std::byte{number}}};
    }
    WirelessEp& ep_of(const LaneConnection& lane) const {
        return *static_cast<WirelessEp*>(lane.ep());
    }
    std::vector<WireupOp> said() {
        std::vector<WireupOp> ops;
        for (const auto& each : std::exchange(wireup_.queued, {}))
            ops.push_back(each.op);
        return ops;
    }
    WirelessSettings& how(std::size_t rail) { return wireup_.rails.iface(rail).settings; }

    void TearDown() override { EXPECT_EQ(wireup_.rails.eps(), 0U); }

    FakeWireup wireup_;
};

TEST_F(LaneConnectionPart, one_that_leads_to_an_interface_is_ready_when_it_is_made) {
    LaneConnection to_iface = lane(kTcp, kTheirTcp);
    EXPECT_FALSE(to_iface.is_ready());
    EXPECT_EQ(to_iface.make(), UCS_OK);
    EXPECT_TRUE(to_iface.is_connected() && to_iface.is_ready());
    EXPECT_EQ(ep_of(to_iface).leads_to, 11);
    EXPECT_TRUE(said().empty());
    to_iface.drop();
    EXPECT_FALSE(to_iface.is_ready());
}

TEST_F(LaneConnectionPart, one_beside_the_lane_over_the_kernel_is_ready_when_a_ping_has_left) {
    for (const bool leaves : {false, true}) {
        LaneConnection beside = lane(kKernel, kTheirTcp, proto::kStripeOps);
        how(kKernel).flush = UCS_INPROGRESS;
        EXPECT_EQ(beside.make(), UCS_OK);
        EXPECT_FALSE(beside.is_ready());
        ASSERT_EQ(wireup_.rails.iface(kKernel).flushes.size(), 1U);
        uct_completion_t* ping = wireup_.rails.iface(kKernel).flushes[0];
        ping->status = leaves ? UCS_OK : UCS_ERR_ENDPOINT_TIMEOUT;
        ping->func(ping);
        EXPECT_EQ(beside.is_ready(), leaves);
        wireup_.rails.iface(kKernel).flushes.clear();
        beside.drop();
    }
    how(kKernel).flush = UCS_OK;
    LaneConnection at_once = lane(kKernel, kTheirTcp, proto::kStripeOps);
    EXPECT_EQ(at_once.make(), UCS_OK);
    EXPECT_TRUE(at_once.is_ready());
    at_once.drop();
    how(kKernel).flush = UCS_ERR_NO_RESOURCE;
    LaneConnection refused = lane(kKernel, kTheirTcp, proto::kStripeOps);
    EXPECT_EQ(refused.make(), UCS_OK);
    EXPECT_FALSE(refused.is_ready());
    refused.drop();
}

TEST_F(LaneConnectionPart, the_side_that_offers_first_is_ready_with_the_answer) {
    LaneConnection ours = lane(kRc, kTheirRc);
    EXPECT_EQ(ours.make(), UCS_OK);
    EXPECT_FALSE(ours.is_connected());
    EXPECT_EQ(ours.send_offer(), UCS_OK);
    ASSERT_EQ(wireup_.queued.size(), 1U);
    EXPECT_EQ(wireup_.queued[0].op, WireupOp::kOffer);
    EXPECT_EQ(wireup_.queued[0].message.offer.is_connected, 0);
    EXPECT_EQ(wireup_.queued[0].message.address, (proto::ReserveBytes{std::byte{1}}));
    wireup_.queued.clear();
    EXPECT_FALSE(ours.on_ready());  // it cannot be: ours is not connected
    EXPECT_FALSE(ours.is_ready());
    EXPECT_TRUE(ours.on_offer(offer(kTheirRc, kRc, true)));
    EXPECT_EQ(ep_of(ours).connected, 9);
    EXPECT_TRUE(ours.is_ready());
    EXPECT_EQ(said(), std::vector{WireupOp::kReady});
    ours.drop();
}

TEST_F(LaneConnectionPart, the_side_that_answers_is_ready_when_the_peer_says_so) {
    LaneConnection ours = lane(kRc, kTheirRc);
    EXPECT_TRUE(ours.on_offer(offer(kTheirRc, kRc, false)));
    EXPECT_TRUE(ours.is_connected());
    EXPECT_FALSE(ours.is_ready());
    ASSERT_EQ(wireup_.queued.size(), 1U);
    EXPECT_EQ(wireup_.queued[0].message.offer.is_connected, 1);
    EXPECT_TRUE(ours.on_ready());
    EXPECT_TRUE(ours.is_ready());
    ours.drop();
}

TEST_F(LaneConnectionPart, offers_that_cross_are_both_answered_by_ready) {
    LaneConnection ours = lane(kRc, kTheirRc);
    EXPECT_EQ(ours.make(), UCS_OK);
    EXPECT_EQ(ours.send_offer(), UCS_OK);
    EXPECT_TRUE(ours.on_offer(offer(kTheirRc, kRc, false)));
    EXPECT_EQ(said(), (std::vector{WireupOp::kOffer, WireupOp::kReady}));
    EXPECT_FALSE(ours.is_ready());
    EXPECT_TRUE(ours.on_ready());
    EXPECT_TRUE(ours.is_ready());
    ours.drop();
}

TEST_F(LaneConnectionPart, an_offer_that_comes_twice_connects_once) {
    LaneConnection ours = lane(kRc, kTheirRc);
    EXPECT_TRUE(ours.on_offer(offer(kTheirRc, kRc, false, 9)));
    EXPECT_TRUE(ours.on_offer(offer(kTheirRc, kRc, false, 8)));
    EXPECT_EQ(ep_of(ours).connected, 9);
    ours.drop();
}

TEST_F(LaneConnectionPart, offers_that_fit_nothing_are_not_used) {
    OfferMessage too_long = offer(kTheirRc, kRc, false);
    too_long.address.push_back(std::byte{});
    EXPECT_FALSE(lane(kRc, kTheirRc).on_offer(too_long));
    OfferMessage none = offer(kTheirRc, kRc, false);
    none.address.clear();
    EXPECT_FALSE(lane(kRc, kTheirRc).on_offer(none));
    EXPECT_FALSE(lane(kTcp, kTheirTcp).on_offer(offer(kTheirTcp, kTcp, false)));
    EXPECT_FALSE(lane(kRc, kTheirTcp).on_offer(offer(kTheirTcp, kRc, false)));
    how(kRc).unreachable = {11};
    EXPECT_FALSE(lane(kRc, kTheirRc).on_offer(offer(kTheirRc, kRc, false)));
    EXPECT_TRUE(said().empty());
}

TEST_F(LaneConnectionPart, what_the_transport_refuses_is_said_by_its_status) {
    how(kRc).create = UCS_ERR_NO_MEMORY;
    LaneConnection ours = lane(kRc, kTheirRc);
    EXPECT_EQ(ours.make(), UCS_ERR_NO_MEMORY);
    EXPECT_FALSE(ours.on_offer(offer(kTheirRc, kRc, false)));
    how(kRc).create = UCS_OK;
    how(kRc).address_status = UCS_ERR_IO_ERROR;
    EXPECT_EQ(ours.make(), UCS_OK);
    EXPECT_EQ(ours.send_offer(), UCS_ERR_IO_ERROR);
    EXPECT_FALSE(ours.on_offer(offer(kTheirRc, kRc, false)));
    EXPECT_TRUE(said().empty());
    ours.drop();
    LaneConnection other = lane(kRc, kTheirRc);
    how(kRc).address_status = UCS_OK;
    how(kRc).connect = UCS_ERR_UNREACHABLE;
    EXPECT_FALSE(other.on_offer(offer(kTheirRc, kRc, false)));
    EXPECT_FALSE(other.is_connected());
    other.drop();
    other.refuse();
    EXPECT_EQ(said(), std::vector{WireupOp::kRefuse});
}

TEST_F(LaneConnectionPart, an_offer_is_about_one_pair_of_rails) {
    const LaneConnection ours = lane(kTcp, 3);
    EXPECT_TRUE(ours.is_about({0, 3, kTcp, 0, 0}));
    EXPECT_FALSE(ours.is_about({0, 1, kTcp, 0, 0}));
    EXPECT_FALSE(ours.is_about({0, 3, kRc, 0, 0}));
}

TEST_F(LaneConnectionPart, lanes_beside_the_endpoints_own_have_messages_of_their_own) {
    LaneConnection beside = lane(kRc, kTheirRc, proto::kStripeOps);
    EXPECT_TRUE(beside.on_offer(offer(kTheirRc, kRc, false)));
    EXPECT_TRUE(beside.on_offer(offer(kTheirRc, kRc, false)));
    beside.refuse();
    EXPECT_EQ(said(), (std::vector{WireupOp::kStripeOffer, WireupOp::kStripeReady,
                                   WireupOp::kStripeRefuse}));
    beside.drop();
}

}  // namespace
}  // namespace tagwire::test
