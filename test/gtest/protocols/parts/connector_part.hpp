// SPDX-License-Identifier: BSD-3-Clause
// The connector of one side of a connection, over rails without wires, for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "protocols/connect/connector.hpp"
#include "protocols/match/match_peer.hpp"
#include "protocols/parts/fake_rail.hpp"
#include "protocols/parts/fakes.hpp"
#include "protocols/wire/wireup_messages.hpp"
#include "ucs/log/repeats.hpp"

namespace tagwire::test {

/// One end of a connection, as a connector sees its worker and its endpoint. Rails are added before
/// it is asked for anything.
struct ConnectorSide {
    explicit ConnectorSide(std::uint64_t own_id, std::uint64_t to_id) : id(own_id), peer_id(to_id) {
        lane.state = proto::EpState::kConnecting;
        names.id = static_cast<std::uint32_t>(100 + own_id);
    }
    ConnectorSide(const ConnectorSide&) = delete;
    ConnectorSide& operator=(const ConnectorSide&) = delete;
    /// As an endpoint does.
    ~ConnectorSide() { disconnect(); }

    void disconnect() {
        if (const uct_ep_h old = std::exchange(lane.made, nullptr)) {
            connector.forget(old);
            connector.destroy_ep(old);
        }
        connector.disconnect();
    }
    /// An address of rails that take first contact, in their order.
    proto::Address address(std::vector<std::size_t> contacts) const {
        proto::Address address{id, {}};
        for (const std::size_t at : contacts) {
            const proto::Rail& rail = *wireless.rails[at];
            address.contacts.push_back(
                {rail.transport(),
                 {rail.device_address().begin(), rail.device_address().end()},
                 {rail.iface_address().begin(), rail.iface_address().end()}});
        }
        return address;
    }
    /// A call of progress. False: the connector has to be asked again.
    bool progress() {
        if (!std::exchange(peer.wants_wireup, false))
            return true;
        const bool is_done = connector.work();
        peer.wants_wireup = peer.wants_wireup || !is_done;
        return is_done;
    }
    /// The oldest message that was sent by that rail.
    std::vector<std::byte> pop(std::size_t rail) {
        auto& sent = wireless.iface(rail).sent;
        std::vector<std::byte> bytes = std::move(sent.front().bytes);
        sent.pop_front();
        return bytes;
    }
    std::size_t in_flight() const {
        std::size_t number = 0;
        for (std::size_t i = 0; i < wireless.rails.size(); ++i)
            number += wireless.iface(i).sent.size();
        return number;
    }
    /// A message has come, as on_wireup() takes it. False: it is none.
    bool receive(const std::vector<std::byte>& bytes) {
        proto::Wireup wireup;
        proto::WireBytes behind;
        if (!decode(proto::WireBytes(bytes), &wireup, &behind) || wireup.to != id)
            return false;
        if (static_cast<proto::WireupOp>(wireup.op) == proto::WireupOp::kHello) {
            proto::HelloMessage message;
            if (!decode(behind, &message))
                return false;
            connector.on_hello(message.hello, std::move(message.rails));
            return true;
        }
        proto::OfferMessage message;
        if (!decode(behind, &message))
            return false;
        if (message.offer.id != names.id || lane.state == proto::EpState::kFailed)
            return true;
        switch (static_cast<proto::WireupOp>(wireup.op)) {
            case proto::WireupOp::kOffer:
                connector.on_offer(message);
                break;
            case proto::WireupOp::kReady:
                connector.on_ready(message.offer);
                break;
            default:
                connector.on_refuse(message.offer);
        }
        return true;
    }
    std::uint64_t garbage() const { return counters.value(proto::WorkerCounter::kGarbage); }

    const std::uint64_t id;
    const std::uint64_t peer_id;
    WirelessRails wireless;
    FakeLane lane;
    FakePeer peer;
    proto::MatchPeer names{lane.port, peer_id};
    proto::WorkerCounters counters;
    ucs::Repeats refusals;
    bool may_greet = true;
    const proto::WireupWorld world{
        .id = id,
        .rails = wireless.rails,
        .options = wireless.options,
        .counters = counters,
        .refusals = refusals,
        .tx = {},
        .owner = this,
        .may_greet = [](void* side) { return static_cast<ConnectorSide*>(side)->may_greet; }};
    proto::Connector connector{{names, peer_id, peer.port, world}};
};

}  // namespace tagwire::test
