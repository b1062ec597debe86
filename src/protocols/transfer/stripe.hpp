// SPDX-License-Identifier: BSD-3-Clause
// Additional lanes of an endpoint, which carry parts of rendezvous data and nothing else.
//
// They are made when the first message that is long enough for them moves; until both sides are
// connected the endpoint's own lane carries everything. Whoever moves the data divides it: the
// receiver that reads, the sender that writes.
//
//      none ----> offered ----> ready ----> failed (for as long as the connection lives)
//                 rc: addresses cross
//
// 1. A transfer has ended when each of its parts has; only then are its buffers given back.
// 2. A rail that fails loses its parts to the endpoint's own lane, which moves them again; the peer
//    is told, and ends its side of the rail before it hears of the end of any message. A put, whose
//    end the peer does not hear, waits for its reply (RmaSender::await_down()).
// 3. Lanes go with the endpoint's own (Endpoint::disconnect()); objects stay until the endpoint
//    goes or begins anew, because a callback may be the one that ends it.
#pragma once

#include <uct/api/uct.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "protocols/connect/connector.hpp"
#include "protocols/connect/lane_connection.hpp"
#include "protocols/cost/options.hpp"
#include "protocols/cost/stripe_plan.hpp"
#include "protocols/match/match_peer.hpp"
#include "protocols/port/worker_port.hpp"
#include "protocols/request/lane_state.hpp"
#include "protocols/request/outstanding.hpp"
#include "protocols/request/request.hpp"
#include "protocols/request/room_waiter.hpp"
#include "protocols/transfer/transfer.hpp"
#include "protocols/wire/control_message.hpp"
#include "protocols/wire/rndv_messages.hpp"
#include "protocols/wire/wireup_messages.hpp"
#include "ucs/datastruct/queue.hpp"
#include "ucs/memory/reserve.hpp"

namespace tagwire::proto {

class Rail;
class Stripes;

/// A lane beside the endpoint's own. Its parts wait for it in the order in which they came.
struct StripeLane : ucs::FromReserve {
    StripeLane(Stripes& owner, Rail& over, std::uint8_t to);

    void push(TransferPart& part);
    /// The part, which waits, does so no more.
    void forget(TransferPart& part);
    /// A piece of it has failed.
    void failed(ucs_status_t status);

    // For RoomWaiter.
    ucs_status_t drain();
    uct_ep_h drainable() const { return connection.ep(); }
    void drained() {}
    void stall();

    /// The lane moves parts.
    bool is_usable() const { return connection.is_ready() && !has_failed; }

    Stripes& stripes;
    LaneConnection connection;
    Rail& rail;
    bool has_failed = false;
    ucs::Queue<TransferPart, &TransferPart::link> waiting;
    RoomWaiter<StripeLane> room{*this};
};

/// The world of additional lanes.
struct StripesPorts {
    const WorkerPort& worker;
    const WireupWorld& rails;  // and the id of the worker
    const MatchPeer& peer;
    std::uint64_t peer_id;
    const LaneState& lane;
    const Connector& connector;
    RequestList& receiving;    // requests that may have a transfer
    Outstanding& outstanding;  // likewise
};

/// The additional lanes of one endpoint.
class Stripes : public ucs::FromReserve {
  public:
    explicit Stripes(const StripesPorts& ports) : to_(ports) {}
    Stripes(const Stripes&) = delete;
    Stripes& operator=(const Stripes&) = delete;
    ~Stripes() = default;

    /// Gives parts of the request's transfer, which has not begun, to rails that are ready and have
    /// keys among `keys` (KeyHead, key); they wait for drain(). `only_connections`: no rail that
    /// leads to an interface.
    void divide(Request& request, std::span<const std::byte> keys, bool only_connections);
    /// Parts that wait begin.
    void drain();

    void on_offer(const OfferMessage& message);
    void on_ready(const Offer& offer);
    void on_refuse(const Offer& offer);
    /// The peer has lost it.
    void on_down(Down message);
    /// False: it is none of these.
    bool lane_failed(uct_ep_h lane, ucs_status_t status);
    void lane_failed(StripeLane& lane, ucs_status_t status);
    /// Every lane ends; nothing is said of it.
    void disconnect();
    std::size_t ready() const;
    /// nullptr: nothing has been divided yet.
    const StripePlan* plan(bool is_put) const {
        return !has_chosen_ ? nullptr : is_put ? &put_plan_ : &get_plan_;
    }

    // ---- For lanes

    const WireupPort& wireup() const { return to_.connector.wireup(); }
    /// Progress runs what waits for room.
    void stall() { to_.peer.lane.stall(); }

  private:
    struct Pair {
        std::size_t rail, peer_rail;
    };

    void make_lanes();
    ucs::ReserveVector<Pair> choose() const;
    StripeLane* find(std::size_t rail, std::size_t peer_rail) const;
    StripeLane& add(Rail& rail, std::uint8_t peer_rail);
    bool connect(StripeLane& lane);
    void drop(StripeLane& lane);
    void lose(StripeLane& lane);
    std::unique_ptr<TransferPart> make_part(const Request& request, StripeLane& lane,
                                            std::span<const std::byte> keys) const;
    std::unique_ptr<TransferPart> make_list_part(const Request& request, StripeLane& lane) const;

    const StripesPorts to_;
    bool has_chosen_ = false;
    ucs::ReserveVector<std::unique_ptr<StripeLane>> lanes_;
    // Lanes that carry the data that this side moves; null: the endpoint's lane.
    ucs::ReserveVector<StripeLane*> members_;
    StripePlan get_plan_, put_plan_;
};

/// Rails beside `lane` over which data is divided, the best first: those that lead to the peer
/// (`reaches`) and that add something, or any that can where so many were asked for.
ucs::ReserveVector<std::size_t> companions_of(std::span<const std::unique_ptr<Rail>> rails,
                                              std::size_t lane, const Options& options,
                                              const std::function<bool(const Rail&)>& reaches);
/// Plans how to divide data with `rail` as the lane, as if all rails led to the peer.
void plan_stripes(Rail& rail, std::span<const std::unique_ptr<Rail>> rails);
StripeMember member_of(const Rail& rail);
StripeRules rules_of(const Options& options);

}  // namespace tagwire::proto
