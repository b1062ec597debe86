// SPDX-License-Identifier: BSD-3-Clause
// The connector alone: first contact by every way, two sides that agree on a lane in every order of
// their messages, a peer that says anything, and transports that refuse.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/seeds.hpp"
#include "protocols/parts/connector_part.hpp"

namespace tagwire::test {
namespace {

using proto::EpState;
using proto::Hello;
using proto::HelloMessage;
using proto::Offer;
using proto::OfferMessage;
using proto::PeerRail;

/// Rails of the sides, and interfaces of theirs by number.
constexpr std::size_t kTcpRail = 0, kRcRail = 1, kOtherTcpRail = 2;
WirelessSettings tcp_at(std::uint8_t address) {
    WirelessSettings settings;
    settings.address = address;
    settings.latency = 1e-5;
    return settings;
}
WirelessSettings rc_at(std::uint8_t address) {
    WirelessSettings settings;
    settings.transport = "rc";
    settings.address = address;
    settings.connects_to_iface = false;
    return settings;
}

/// A hello of a worker that has tcp and rc, by its tcp.
HelloMessage hello_with(std::uint32_t id, std::uint8_t tcp, std::uint8_t rc) {
    HelloMessage message{};
    message.hello.id = id;
    message.hello.number = 1;
    message.hello.from_rail = 1;
    message.hello.eager_max = 4000;
    for (const auto& [transport, address] : {std::pair{"tcp", tcp}, {"rc", rc}}) {
        const std::byte at{address};
        message.rails.push_back({transport, 0, 0, {at}, {at}});
    }
    message.hello.rails = static_cast<std::uint32_t>(message.rails.size());
    return message;
}

class ConnectorPart : public testing::Test {
  protected:
    ConnectorPart() {
        ours_.wireless.add(tcp_at(1));
        ours_.wireless.add(rc_at(2));
        theirs_.wireless.add(tcp_at(11));
        theirs_.wireless.add(rc_at(12));
        theirs_.wireless.add(tcp_at(13));
    }

    WirelessSettings& how(std::size_t rail) { return ours_.wireless.iface(rail).settings; }
    void greet(std::uint32_t id = 77) {
        HelloMessage message = hello_with(id, 11, 12);
        ours_.connector.on_hello(message.hello, std::move(message.rails));
    }
    ucs_status_t contact(std::string* why = nullptr) {
        return ours_.connector.contact(theirs_.address({kTcpRail}), why);
    }
    static Hello hello_in(const std::vector<std::byte>& bytes) {
        proto::Wireup wireup;
        proto::WireBytes behind;
        HelloMessage message;
        EXPECT_TRUE(decode(proto::WireBytes(bytes), &wireup, &behind) && decode(behind, &message));
        return message.hello;
    }

    void TearDown() override {
        ours_.disconnect();
        theirs_.disconnect();
        EXPECT_EQ(ours_.wireless.eps() + theirs_.wireless.eps(), 0U);
        EXPECT_TRUE(ours_.peer.lanes.empty() && theirs_.peer.lanes.empty());
    }

    ConnectorSide ours_{1, 2};
    ConnectorSide theirs_{2, 1};
};

// ---- First contact

TEST_F(ConnectorPart, the_first_contact_says_who_we_are) {
    EXPECT_EQ(contact(), UCS_OK);
    EXPECT_EQ(ours_.peer.lanes.size(), 1U);
    EXPECT_TRUE(ours_.progress());
    const Hello hello = hello_in(ours_.pop(kTcpRail));
    EXPECT_EQ(hello.id, ours_.names.id);
    EXPECT_EQ(hello.number, 1U);
    EXPECT_EQ(hello.rails, 2U);
    EXPECT_EQ(hello.known, 0U);
    EXPECT_EQ(hello.from_rail, kTcpRail + 1);
    EXPECT_EQ(hello.eager_max, ours_.wireless.options.unexpected_bytes);
}

TEST_F(ConnectorPart, one_that_nothing_leads_to_is_unreachable_and_the_reasons_are_told) {
    how(kTcpRail).unreachable = {11};
    std::string why;
    EXPECT_EQ(contact(&why), UCS_ERR_UNREACHABLE);
    EXPECT_NE(why.find("no wire leads there"), std::string::npos);
    how(kTcpRail).unreachable.clear();
    how(kTcpRail).create = UCS_ERR_UNREACHABLE;
    EXPECT_EQ(contact(&why), UCS_ERR_UNREACHABLE);
    EXPECT_NE(why.find("has gone"), std::string::npos);
    EXPECT_FALSE(ours_.peer.wants_wireup);
}

TEST_F(ConnectorPart, without_memory_a_call_is_refused_and_progress_tries_again) {
    how(kTcpRail).create = UCS_ERR_NO_MEMORY;
    EXPECT_EQ(contact(), UCS_ERR_NO_MEMORY);
    ours_.connector.begin(theirs_.address({kTcpRail}));
    EXPECT_TRUE(ours_.peer.wants_wireup);
    EXPECT_FALSE(ours_.progress());
    EXPECT_TRUE(ours_.lane.failures.empty());
    how(kTcpRail).create = UCS_OK;
    EXPECT_TRUE(ours_.progress() || ours_.progress());
    EXPECT_EQ(ours_.in_flight(), 1U);
}

TEST_F(ConnectorPart, an_endpoint_that_cannot_begin_fails) {
    how(kTcpRail).create = UCS_ERR_UNREACHABLE;
    ours_.connector.begin(theirs_.address({kTcpRail}));
    EXPECT_EQ(ours_.lane.failures, std::vector{UCS_ERR_UNREACHABLE});
}

TEST_F(ConnectorPart, a_contact_that_fails_is_followed_by_the_next_one_until_none_is_left) {
    EXPECT_EQ(ours_.connector.contact(theirs_.address({kTcpRail, kOtherTcpRail}), nullptr), UCS_OK);
    const uct_ep_h first = ours_.connector.contact_ep();
    EXPECT_FALSE(ours_.connector.contact_elsewhere(nullptr, UCS_ERR_UNREACHABLE));
    EXPECT_TRUE(ours_.connector.contact_elsewhere(first, UCS_ERR_ENDPOINT_TIMEOUT));
    EXPECT_EQ(static_cast<WirelessEp*>(ours_.connector.contact_ep())->leads_to, 13);
    EXPECT_TRUE(ours_.progress());
    EXPECT_EQ(ours_.in_flight(), 1U);
    EXPECT_FALSE(
        ours_.connector.contact_elsewhere(ours_.connector.contact_ep(), UCS_ERR_ENDPOINT_TIMEOUT));
    EXPECT_EQ(ours_.wireless.eps(), 0U);
}

TEST_F(ConnectorPart, a_failure_behind_the_peers_hello_is_that_of_the_connection) {
    EXPECT_EQ(ours_.connector.contact(theirs_.address({kTcpRail, kOtherTcpRail}), nullptr), UCS_OK);
    greet();
    EXPECT_FALSE(
        ours_.connector.contact_elsewhere(ours_.connector.contact_ep(), UCS_ERR_ENDPOINT_TIMEOUT));
}

TEST_F(ConnectorPart, a_send_that_fails_tries_the_next_contact_and_ends_with_the_last) {
    EXPECT_EQ(contact(), UCS_OK);
    how(kTcpRail).send = UCS_ERR_CONNECTION_RESET;
    EXPECT_TRUE(ours_.progress());
    EXPECT_EQ(ours_.lane.failures, std::vector{UCS_ERR_CONNECTION_RESET});
}

TEST_F(ConnectorPart, a_full_transport_and_a_device_that_is_not_ready_are_asked_again) {
    EXPECT_EQ(contact(), UCS_OK);
    for (const ucs_status_t status : {UCS_ERR_NO_RESOURCE, UCS_ERR_NO_MEMORY}) {
        how(kTcpRail).send = status;
        EXPECT_FALSE(ours_.progress());
    }
    how(kTcpRail).send = UCS_OK;
    ours_.may_greet = false;
    EXPECT_FALSE(ours_.progress());
    ours_.may_greet = true;
    EXPECT_TRUE(ours_.progress());
    EXPECT_EQ(ours_.in_flight(), 1U);
}

TEST_F(ConnectorPart, ways_over_the_kernel_are_tried_together_and_the_one_that_is_answered_stays) {
    ConnectorSide asks(3, 2);
    for (const std::uint8_t at : std::array<std::uint8_t, 2>{21, 22}) {
        WirelessSettings settings = tcp_at(at);
        settings.goes_through_kernel = true;
        asks.wireless.add(settings);
    }
    EXPECT_EQ(asks.connector.contact(theirs_.address({kTcpRail, kOtherTcpRail}), nullptr), UCS_OK);
    EXPECT_EQ(asks.wireless.eps(), 4U);
    EXPECT_TRUE(asks.progress());
    EXPECT_EQ(asks.in_flight(), 4U);
    HelloMessage answer = hello_with(77, 13, 12);  // by their other interface, to our second one
    answer.hello.to_check = proto::check_of(asks.wireless.rails[1]->device_address(),
                                            asks.wireless.rails[1]->iface_address());
    answer.hello.known = asks.names.id;
    asks.connector.on_hello(answer.hello, std::move(answer.rails));
    EXPECT_EQ(asks.wireless.eps(), 1U);
    EXPECT_EQ(asks.connector.contact_rail(), asks.wireless.rails[1].get());
    EXPECT_EQ(static_cast<WirelessEp*>(asks.connector.contact_ep())->leads_to, 13);
    EXPECT_EQ(asks.lane.state, EpState::kReady);
}

TEST_F(ConnectorPart, rivals_that_fail_one_after_the_other_leave_the_rest) {
    ConnectorSide asks(3, 2);
    WirelessSettings settings = tcp_at(21);
    settings.goes_through_kernel = true;
    asks.wireless.add(settings);
    EXPECT_EQ(asks.connector.contact(theirs_.address({kTcpRail, kOtherTcpRail}), nullptr), UCS_OK);
    EXPECT_EQ(asks.wireless.eps(), 2U);
    EXPECT_TRUE(
        asks.connector.contact_elsewhere(asks.connector.contact_ep(), UCS_ERR_ENDPOINT_TIMEOUT));
    EXPECT_EQ(asks.wireless.eps(), 1U);
    EXPECT_TRUE(asks.progress());
    EXPECT_EQ(asks.in_flight(), 1U);
    EXPECT_FALSE(
        asks.connector.contact_elsewhere(asks.connector.contact_ep(), UCS_ERR_ENDPOINT_TIMEOUT));
}

// ---- The lane

TEST_F(ConnectorPart, the_lane_is_the_nearest_that_both_have_and_is_offered) {
    EXPECT_EQ(contact(), UCS_OK);
    greet();
    EXPECT_EQ(ours_.names.peer_names, 77U);
    EXPECT_EQ(ours_.lane.eager_max, 4000U);
    EXPECT_TRUE(ours_.connector.is_offering());
    EXPECT_EQ(ours_.lane.state, EpState::kConnecting);
    ours_.connector.on_offer({{ours_.names.id, 1, kRcRail, 1, 1}, {std::byte{5}}});
    EXPECT_EQ(ours_.lane.readies, 1U);
    EXPECT_EQ(ours_.lane.rail, ours_.wireless.rails[kRcRail].get());
    EXPECT_EQ(ours_.lane.peer_rail, 1);
    EXPECT_EQ(static_cast<WirelessEp*>(ours_.lane.made)->connected, 5);
}

TEST_F(ConnectorPart, a_refused_lane_is_followed_by_another_one) {
    EXPECT_EQ(contact(), UCS_OK);
    greet();
    const Offer about{ours_.names.id, 1, kRcRail, 0, 0};
    ours_.connector.on_refuse(about);
    EXPECT_EQ(ours_.lane.state, EpState::kReady);
    EXPECT_EQ(ours_.lane.rail, ours_.wireless.rails[kTcpRail].get());
    EXPECT_EQ(ours_.lane.made, ours_.connector.contact_ep());
    EXPECT_EQ(ours_.garbage(), 0U);
    ours_.connector.on_refuse(about);
    EXPECT_EQ(ours_.garbage(), 1U);
}

TEST_F(ConnectorPart, a_lane_that_cannot_be_made_is_not_offered) {
    how(kRcRail).create = UCS_ERR_NO_MEMORY;
    EXPECT_EQ(contact(), UCS_OK);
    greet();
    EXPECT_EQ(ours_.lane.rail, ours_.wireless.rails[kTcpRail].get());
}

TEST_F(ConnectorPart, a_lane_whose_address_is_not_told_ends_the_connection) {
    how(kRcRail).address_status = UCS_ERR_IO_ERROR;
    EXPECT_EQ(contact(), UCS_OK);
    greet();
    EXPECT_EQ(ours_.lane.failures, std::vector{UCS_ERR_IO_ERROR});
}

TEST_F(ConnectorPart, a_peer_that_greets_is_answered_when_there_is_memory) {
    how(kTcpRail).create = UCS_ERR_NO_MEMORY;
    greet();
    EXPECT_EQ(ours_.wireless.eps(), 0U);
    EXPECT_FALSE(ours_.progress());
    how(kTcpRail).create = UCS_OK;
    while (!ours_.progress()) {
    }
    EXPECT_GE(ours_.in_flight(), 1U);
    EXPECT_EQ(hello_in(ours_.pop(kTcpRail)).known, 77U);
    EXPECT_TRUE(ours_.lane.failures.empty());
}

TEST_F(ConnectorPart, a_peer_that_nothing_leads_back_to_ends_the_connection) {
    how(kTcpRail).unreachable = {11};
    greet();
    EXPECT_EQ(ours_.lane.failures, std::vector{UCS_ERR_UNREACHABLE});
}

TEST_F(ConnectorPart, another_connection_has_another_number_and_knows_nothing_of_the_peer) {
    EXPECT_EQ(contact(), UCS_OK);
    greet();
    ours_.progress();
    ours_.connector.on_refuse({ours_.names.id, 1, kRcRail, 0, 0});
    EXPECT_EQ(ours_.lane.readies, 1U);
    ours_.disconnect();
    ours_.lane.state = EpState::kConnecting;
    ours_.names.id = 500;
    ours_.peer.retired_id = 101;
    ours_.connector.begin_anew();
    EXPECT_EQ(ours_.names.peer_names, 0U);
    EXPECT_TRUE(ours_.connector.peer_rails().empty());
    EXPECT_TRUE(ours_.progress());
    const Hello hello = hello_in(ours_.pop(kTcpRail));
    EXPECT_EQ(hello.id, 500U);
    EXPECT_EQ(hello.number, 2U);
    EXPECT_EQ(hello.known, 0U);
    EXPECT_EQ(hello.retired_id, 101U);
    greet(78);  // what was refused may be tried again
    EXPECT_TRUE(ours_.connector.is_offering());
}

// ---- A peer that says anything

TEST_F(ConnectorPart, offers_of_rails_that_are_none_are_garbage) {
    EXPECT_EQ(contact(), UCS_OK);
    ours_.connector.on_offer({{ours_.names.id, 0, 0, 0, 1}, {std::byte{1}}});  // before its hello
    greet();
    for (const auto& [rail, peer_rail] :
         {std::pair<std::uint8_t, std::uint8_t>{2, 1}, {1, 2}, {255, 255}})
        ours_.connector.on_offer({{ours_.names.id, rail, peer_rail, 1, 1}, {std::byte{1}}});
    EXPECT_EQ(ours_.garbage(), 4U);
    ours_.connector.on_ready({ours_.names.id, 9, 9, 1, 0});
    ours_.connector.on_ready({ours_.names.id, 1, kRcRail, 1, 0});  // ours is not connected
    EXPECT_EQ(ours_.lane.readies, 0U);
    EXPECT_TRUE(ours_.connector.is_offering());
}

TEST_F(ConnectorPart, a_peer_that_reads_no_replies_is_flooded_and_ends_in_progress) {
    EXPECT_EQ(contact(), UCS_OK);
    greet();
    how(kTcpRail).send = UCS_ERR_NO_RESOURCE;
    how(kRcRail).connect = UCS_ERR_UNREACHABLE;
    for (int i = 0; i < 2000 && ours_.lane.failures.empty(); ++i)
        ours_.connector.on_offer({{ours_.names.id, 1, kRcRail, 0, 1}, {std::byte{1}}});
    EXPECT_TRUE(ours_.lane.failures.empty());  // no caller loses its endpoint
    EXPECT_TRUE(ours_.progress());
    EXPECT_EQ(ours_.lane.failures, std::vector{UCS_ERR_EXCEEDS_LIMIT});
}

TEST_F(ConnectorPart, random_messages_leave_one_lane_at_most) {
    for_each_seed(200, [](std::uint64_t seed) {
        std::mt19937_64 random(seed);
        ConnectorSide side(1, 2);
        side.wireless.add(tcp_at(1));
        side.wireless.add(rc_at(2));
        side.wireless.add(rc_at(3));
        const auto any = [&] { return static_cast<std::uint8_t>(random() % 4); };
        for (int i = 0; i < 40 && side.lane.failures.empty(); ++i) {
            const Offer offer{side.names.id, any(), any(), static_cast<std::uint8_t>(random() % 2),
                              1};
            side.wireless.iface(1).settings.connect =
                random() % 4 == 0 ? UCS_ERR_UNREACHABLE : UCS_OK;
            switch (random() % 6) {
                case 0: {
                    HelloMessage message = hello_with(70 + any(), 11, 12);
                    side.connector.on_hello(message.hello, std::move(message.rails));
                    break;
                }
                case 1:
                case 2:
                    side.connector.on_offer({offer, {std::byte{any()}}});
                    break;
                case 3:
                    side.connector.on_ready(offer);
                    break;
                case 4:
                    side.connector.on_refuse(offer);
                    break;
                default:
                    side.progress();
            }
            // One lane, one of first contact, one that is offered.
            EXPECT_LE(side.wireless.eps(), 3U);
            EXPECT_EQ(side.wireless.eps(), side.peer.lanes.size());
        }
        side.disconnect();
        EXPECT_EQ(side.wireless.eps(), 0U);
    });
}

// ---- Two sides

/// Messages travel in their order by each rail, in any order between them.
struct ConnectorPair {
    explicit ConnectorPair(std::mt19937_64& source) : random(source) {
        for (ConnectorSide* side : sides) {
            const auto base = static_cast<std::uint8_t>(10 * side->id);
            side->wireless.add(tcp_at(base));
            side->wireless.add(rc_at(static_cast<std::uint8_t>(base + 1)));
            if (random() % 2 == 0)
                side->wireless.add(rc_at(static_cast<std::uint8_t>(base + 2)));
            for (std::size_t rail = 1; rail < side->wireless.rails.size(); ++rail) {
                WirelessSettings& how = side->wireless.iface(rail).settings;
                how.connect = random() % 4 == 0 ? UCS_ERR_UNREACHABLE : UCS_OK;
                how.create = random() % 8 == 0 ? UCS_ERR_NO_MEMORY : UCS_OK;
            }
        }
    }

    void run() {
        first.connector.begin(second.address({0}));
        const bool both = random() % 2 == 0;
        if (both)
            second.connector.begin(first.address({0}));
        for (int steps = 0; steps < 100'000 && is_busy(); ++steps) {
            const std::size_t who = random() % 2;
            ConnectorSide& side = *sides[who];
            const std::size_t rail = random() % side.wireless.rails.size();
            if (random() % 2 == 0) {
                side.progress();
            } else if (!side.wireless.iface(rail).sent.empty()) {
                EXPECT_TRUE(sides[1 - who]->receive(side.pop(rail)));
            }
        }
        EXPECT_FALSE(is_busy());
    }
    bool is_busy() const {
        return first.in_flight() + second.in_flight() > 0 || first.peer.wants_wireup ||
               second.peer.wants_wireup;
    }

    std::mt19937_64& random;
    ConnectorSide first{1, 2}, second{2, 1};
    const std::array<ConnectorSide*, 2> sides{&first, &second};
};

TEST(ConnectorPartPair, both_sides_have_the_same_lane_whatever_crosses_and_is_refused) {
    for_each_seed(2000, [](std::uint64_t seed) {
        std::mt19937_64 random(seed);
        ConnectorPair pair(random);
        pair.run();
        for (const ConnectorSide* side : pair.sides) {
            const ConnectorSide& other = side == &pair.first ? pair.second : pair.first;
            ASSERT_EQ(side->lane.state, EpState::kReady) << side->id;
            EXPECT_EQ(side->lane.readies, 1U);
            EXPECT_EQ(side->names.peer_names, other.names.id);
            if (side->lane.rail->connects_to_iface())
                continue;
            EXPECT_EQ(other.lane.rail->index(), side->lane.peer_rail);
            EXPECT_EQ(static_cast<WirelessEp*>(side->lane.made)->connected,
                      static_cast<WirelessEp*>(other.lane.made)->number);
        }
        EXPECT_EQ(pair.first.lane.rail->connects_to_iface(),
                  pair.second.lane.rail->connects_to_iface());
    });
}

}  // namespace
}  // namespace tagwire::test
