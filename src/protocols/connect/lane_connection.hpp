// SPDX-License-Identifier: BSD-3-Clause
// One lane to the peer while it is being connected: an endpoint of a transport and, where the
// transport connects endpoints (rc), the peer's, whose addresses cross in offers. The lane of an
// endpoint's messages and each of those beside it (stripe.hpp) are connected in the same way.
//
//     none ---> made ---> offered, then connected ------> ready
//                |        connected, then offered ---------^   the peer has said that it is
//                |        (it answers an offer)            |   connected, too
//                '--- leads to an interface ---------------'   over the kernel: when a ping left
//
// 1. Either side may offer first, or both; an offer is answered by an offer or, if ours has gone,
//    by "ready".
// 2. An offer that cannot be used is refused (refuse), and the lane is dropped.
// 3. An endpoint over the kernel takes messages before anybody knows whether packets reach the
//    peer. A lane beside the endpoint's own is ready when its connection stands: no part of a
//    message waits for a host that is silent.
#pragma once

#include <uct/api/uct.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "protocols/wire/wireup_messages.hpp"
#include "ucs/log/repeats.hpp"
#include "ucs/memory/reserve.hpp"

namespace tagwire::proto {

class Rail;

/// The messages of a kind of lanes.
struct OfferOps {
    WireupOp offer, ready, refuse;
};
inline constexpr OfferOps kLaneOps{WireupOp::kOffer, WireupOp::kReady, WireupOp::kRefuse};
inline constexpr OfferOps kStripeOps{WireupOp::kStripeOffer, WireupOp::kStripeReady,
                                     WireupOp::kStripeRefuse};

/// The functions of a WireupPort; the first argument of each is the owner.
struct WireupCalls {
    ucs_status_t (*make_ep)(void* owner, Rail& rail, const PeerRail& to, uct_ep_h* ep_p);
    void (*destroy_ep)(void* owner, uct_ep_h ep);
    void (*queue)(void* owner, WireupOp op, const Offer& offer, std::span<const std::byte> address);
    const PeerRail& (*peer_rail)(const void* owner, std::size_t index);
};

/// The port by which lanes are connected: Connector has one for all of an endpoint.
class WireupPort {
  public:
    WireupPort(void* owner, const WireupCalls& calls, ucs::Repeats& refusals)
        : owner_(owner), calls_(&calls), refusals_(refusals) {}

    /// `to` counts where the rail connects to interfaces.
    ucs_status_t make_ep(Rail& rail, const PeerRail& to, uct_ep_h* ep_p) const {
        return calls_->make_ep(owner_, rail, to, ep_p);
    }
    /// Purges its pending requests, then destroys it.
    void destroy_ep(uct_ep_h ep) const { calls_->destroy_ep(owner_, ep); }
    /// Queues a message about a lane, and fills in `offer.id`.
    void queue(WireupOp op, const Offer& offer, std::span<const std::byte> address) const {
        calls_->queue(owner_, op, offer, address);
    }
    /// A rail that the peer has told of.
    const PeerRail& peer_rail(std::size_t index) const { return calls_->peer_rail(owner_, index); }
    ucs::Repeats& refusals() const { return refusals_; }

  private:
    void* owner_;
    const WireupCalls* calls_;
    ucs::Repeats& refusals_;  // of messages that any stranger may send
};

class LaneConnection {
  public:
    LaneConnection(const WireupPort& wireup, Rail& rail, std::uint8_t peer_rail,
                   const OfferOps& ops)
        : wireup_(&wireup), rail_(&rail), peer_rail_(peer_rail), ops_(&ops) {}

    Rail& rail() const { return *rail_; }
    std::uint8_t peer_rail() const { return peer_rail_; }
    uct_ep_h ep() const { return ep_; }
    bool is_connected() const { return is_connected_; }
    bool is_ready() const { return is_ready_ || (probe_ != nullptr && probe_->has_left); }
    /// The offer, answer or refusal is of this pair of rails.
    bool is_about(const Offer& offer) const;

    /// Makes the transport's endpoint. One that leads to an interface is ready.
    ucs_status_t make();
    /// Tells the peer our address. A failure is the transport's.
    ucs_status_t send_offer();
    /// The peer's offer: connects, and answers. False: it cannot be used.
    bool on_offer(const OfferMessage& message);
    /// The peer has connected to ours. False: it cannot have, ours is not connected.
    bool on_ready();
    /// Tells the peer that it cannot be used.
    void refuse();
    /// Destroys the transport's endpoint.
    void drop();

    /// The offer is valid for this pair of rails.
    bool fits(const OfferMessage& message) const;

  private:
    /// Bytes on a connection that may not stand yet.
    struct Probe : uct_completion_t, ucs::FromReserve {
        bool has_left = false;
    };

    void probe();

    const WireupPort* wireup_;
    Rail* rail_;
    std::uint8_t peer_rail_;
    const OfferOps* ops_;
    uct_ep_h ep_ = nullptr;
    bool has_offered_ = false;
    bool is_connected_ = false;  // ours to theirs
    bool is_ready_ = false;      // their endpoint to ours
    std::unique_ptr<Probe> probe_;
};

}  // namespace tagwire::proto
