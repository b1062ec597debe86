// SPDX-License-Identifier: BSD-3-Clause
// Connection establishment of a scripted peer: its hellos, its offers, and its lanes of rc.
#include <iterator>
#include <utility>

#include "msg_bytes.hpp"
#include "msg_peer.hpp"

namespace tagwire::fuzz {

namespace {

struct RailTraits {
    std::uint8_t domain;
    std::uint8_t flags;
};

void append_rail(std::vector<std::byte>* bytes, const std::string& transport,
                 const test::Entity& entity, RailTraits traits) {
    const auto device = entity.device_address();
    std::vector<std::byte> iface(entity.attr().iface_addr_len);
    require(iface.empty() ||
            uct_iface_get_address(entity.iface(),
                                  reinterpret_cast<uct_iface_addr_t*>(iface.data())) == UCS_OK);
    proto::RailHead head{};
    transport.copy(head.transport, sizeof head.transport);
    head.domain = traits.domain;
    head.device_bytes = static_cast<std::uint8_t>(device.size());
    head.iface_bytes = static_cast<std::uint8_t>(iface.size());
    head.flags = traits.flags;
    append(bytes, head);
    append_bytes(bytes, device);
    append_bytes(bytes, iface);
}

}  // namespace

// ---- Messages of the victim

void ScriptedPeer::learn_of_wireup(proto::WireBytes bytes) {
    proto::Wireup head{};
    proto::WireBytes behind;
    require(proto::decode(bytes, &head, &behind));
    if (head.op == static_cast<std::uint32_t>(proto::WireupOp::kHello)) {
        proto::HelloMessage hello{};
        require(proto::decode(behind, &hello));
        if (lanes_ != nullptr) {
            if (name_ != hello.hello.id)
                lanes_->drop_all();  // those of an earlier connection
            lanes_->learn_rails(hello.rails);
        }
        name_ = hello.hello.id;
        return;
    }
    proto::OfferMessage offer{};
    require(proto::decode(behind, &offer));
    if (offer.address.empty())
        return;
    offered_as_ = static_cast<proto::WireupOp>(head.op);
    offered_ = std::move(offer);
}

// ---- Messages of the peer

/// Later ones are the only ones that the victim listens to.
void ScriptedPeer::begin_connection(std::uint32_t number) {
    if (static_cast<std::int32_t>(number - connections_) > 0)
        connections_ = number;
}

/// Each connection has names of its own, as those of a worker have.
ScriptedPeer::Message ScriptedPeer::hello(Input& input) {
    const auto choice = input.take<std::uint8_t>();
    begin_connection(connections_ + (choice >> 3 & 1U));
    proto::Hello hello{};
    hello.id = kNameOfVictim + 2 * connections_ + (choice & 1U);
    hello.known = (choice & 2) != 0 ? name_ : (choice & 4U) * 7;
    hello.number = connections_;
    hello.retired_id = (choice & 16) != 0 ? name_ : 0;
    // A transmit context: of the victim, of another worker, or of none.
    hello.tx_context = choice >> 5 & 3U;
    hello.worker = (choice & 32) == 0 ? 0 : (choice & 128) != 0 ? victim_id_ : kId + 1;
    hello.rails = 1;
    Message rails;
    append_rail(&rails, contact_, self_, {0, 0});
    if (lanes_ != nullptr) {
        const auto flags = input.take<std::uint8_t>();
        for (const PeerLanes::Rail& rail : lanes_->rails()) {
            const auto domain = static_cast<std::uint8_t>(hello.rails - 1 + (flags >> 7));
            const std::uint8_t matches =
                (flags >> hello.rails & 1U) == 0 ? proto::kRailMatchesTags : 0;
            append_rail(&rails, "rc", *rail.entity, {domain, matches});
            ++hello.rails;
        }
    }
    Message message;
    append(&message, hello);
    append_bytes(&message, rails);
    return message;
}

/// An offer whose rails and address mostly make no sense together.
ScriptedPeer::Message ScriptedPeer::offer(Input& input, std::uint32_t op) {
    const auto choice = input.take<std::uint8_t>();
    Message address((choice & 2) != 0 ? choice : 0);
    if (lanes_ != nullptr && (choice & 1) == 0)
        address.resize(lanes_->rails().front().entity->attr().ep_addr_len);
    const bool has_none = op != static_cast<std::uint32_t>(proto::WireupOp::kOffer) &&
                          op != static_cast<std::uint32_t>(proto::WireupOp::kStripeOffer);
    if (has_none)
        address.clear();
    proto::Offer offer{};
    offer.id = name(input);
    offer.rail = (choice & 4) != 0 ? 0 : 1;
    offer.peer_rail =
        (choice & 8) != 0 ? static_cast<std::uint8_t>(choice >> 4) : offered_.offer.rail;
    offer.is_connected = (choice & 32) != 0;
    offer.address_bytes = static_cast<std::uint8_t>(address.size());
    Message message;
    append(&message, offer);
    append_bytes(&message, address);
    return message;
}

ScriptedPeer::Message ScriptedPeer::wireup(Input& input, std::uint32_t op) {
    const auto choice = input.take<std::uint8_t>();
    if (choice >= 224)
        ++connections_;
    Message message;
    append(&message,
           proto::Wireup{op, proto::kWireVersion + (choice == 255 ? 1U : 0U), kId, victim_id_});
    append_bytes(&message, op == 1 ? hello(input) : offer(input, op));
    return message;
}

void ScriptedPeer::greet(Input& input) {
    send(proto::AmId::kWireup, wireup(input, 1), input);
}

void ScriptedPeer::greet_anew(std::size_t identity) {
    // As hello() reads it: a worker, a transmit context of another one, or one of the victim.
    constexpr std::uint8_t kChoices[kIdentities] = {0, 32, 32 + 128};
    const std::uint8_t choices[] = {0, kChoices[identity]};
    Input input(choices, sizeof choices);
    ++connections_;
    greet(input);
}

void ScriptedPeer::send_wireup(proto::WireupOp op, const Message& behind) {
    Message message;
    append(&message,
           proto::Wireup{static_cast<std::uint32_t>(op), proto::kWireVersion, kId, victim_id_});
    append_bytes(&message, behind);
    send_by_contact(proto::AmId::kWireup, &message);
}

// ---- Lanes of rc

/// Ours as our hello numbers them: what takes first contact is the first of it.
ScriptedPeer::Message ScriptedPeer::offer_of(const PeerLane& lane, Input& input,
                                             bool has_address) const {
    const Message address = has_address ? lanes_->address_of(lane) : Message{};
    proto::Offer offer{};
    offer.id = name(input);
    offer.rail = static_cast<std::uint8_t>(lane.rail + 1);
    offer.peer_rail = lane.victim_rail;
    offer.is_connected = lane.is_connected || !has_address;
    offer.address_bytes = static_cast<std::uint8_t>(address.size());
    Message message;
    append(&message, offer);
    append_bytes(&message, address);
    return message;
}

PeerLane* ScriptedPeer::chosen_lane(Input& input, bool is_stripe) {
    const auto choice = input.take<std::uint8_t>();
    const auto& theirs = lanes_->rails_of_victim();
    if (theirs.empty())
        return nullptr;
    return lanes_->lane(choice % lanes_->rails().size(), theirs[(choice >> 4) % theirs.size()],
                        is_stripe);
}

/// Before the victim offers anything, or beside that.
void ScriptedPeer::offer_lane(Input& input, bool is_stripe) {
    PeerLane* const lane = chosen_lane(input, is_stripe);
    if (lane == nullptr)
        return;
    lane->has_offered = true;
    send_wireup(is_stripe ? proto::WireupOp::kStripeOffer : proto::WireupOp::kOffer,
                offer_of(*lane, input, true));
}

/// As a worker answers: it connects, and offers its own endpoint unless it has; then it is ready.
void ScriptedPeer::answer_offer(Input& input) {
    const proto::Offer& offer = offered_.offer;
    if (offer.peer_rail == 0 || offer.peer_rail > lanes_->rails().size())
        return;
    const bool is_stripe = offered_as_ == proto::WireupOp::kStripeOffer;
    PeerLane* const lane = lanes_->lane(offer.peer_rail - 1U, offer.rail, is_stripe);
    if (lane == nullptr || !lanes_->connect(lane, offered_.address))
        return;
    if (std::exchange(lane->has_offered, true)) {
        send_wireup(is_stripe ? proto::WireupOp::kStripeReady : proto::WireupOp::kReady,
                    offer_of(*lane, input, false));
    } else {
        send_wireup(offered_as_, offer_of(*lane, input, true));
    }
}

/// Says, truly or not, that a lane can be used or cannot.
void ScriptedPeer::tell_of_lane(Input& input) {
    constexpr proto::WireupOp kOps[] = {proto::WireupOp::kReady, proto::WireupOp::kStripeReady,
                                        proto::WireupOp::kRefuse, proto::WireupOp::kStripeRefuse};
    const proto::WireupOp op = kOps[input.take<std::uint8_t>() % std::size(kOps)];
    const bool is_stripe =
        op == proto::WireupOp::kStripeReady || op == proto::WireupOp::kStripeRefuse;
    if (const PeerLane* const lane = chosen_lane(input, is_stripe))
        send_wireup(op, offer_of(*lane, input, false));
}

void ScriptedPeer::work_on_lanes(Input& input) {
    switch (input.take<std::uint8_t>() % 8) {
        case 0:
            return offer_lane(input, false);
        case 1:
            return offer_lane(input, true);
        case 2:
            return tell_of_lane(input);
        case 3:
            if (const PeerLane* const lane = lanes_->some_lane(input))
                lanes_->drop(*lane);
            return;
        case 4: {
            // Our tagged messages come to a device of the victim's from now on.
            const auto& theirs = lanes_->rails_of_victim();
            const std::uint32_t sender = name(input);
            const std::uint32_t rail =
                theirs.empty() ? 0 : theirs[input.take<std::uint8_t>() % theirs.size()];
            Message message;
            append(&message, proto::Control::of(proto::Lane{rail}, sender));
            return send(proto::AmId::kControl, message, input);
        }
        default:
            return answer_offer(input);
    }
}

/// Messages of the transport with a tag, as a lane whose device matches has them: an eager one, or
/// the place of an announced one.
void ScriptedPeer::send_tagged(Input& input) {
    const PeerLane* const lane = lanes_->some_lane(input);
    if (lane == nullptr)
        return;
    const auto choice = input.take<std::uint8_t>();
    const uct_tag_t tag = choice >> 6;
    if ((choice & 1) != 0) {
        const proto::Placeholder placeholder{name(input), input.take<std::uint8_t>() % 4U};
        uct_ep_tag_rndv_request(lane->ep, tag, &placeholder,
                                static_cast<unsigned>(sizeof placeholder) - (choice >> 1 & 1U), 0);
        return;
    }
    Message message;
    append_data(&message, input);
    const std::uint64_t imm = proto::TagImm::encode(name(input), (choice & 2) != 0, choice & 4U);
    uct_ep_tag_eager_bcopy(lane->ep, tag, imm, pack_bytes, &message, 0);
}

}  // namespace tagwire::fuzz
