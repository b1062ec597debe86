// SPDX-License-Identifier: BSD-3-Clause
// Connects an endpoint to its peer. Each side sends one hello, over a transport that connects to an
// interface address. A hello carries the addresses of all rails, so connects that cross make one
// connection. Then each side chooses the lane of its own messages. Lanes of rc need endpoints on
// both sides: these exchange their addresses in offers (lane_connection.hpp), and a side sends
// messages when the peer has reported that it is connected.
//
//        idle ----> greeting ----> (offering) ----> lane chosen
//                   hello sent,    rc: addresses
//                   theirs awaited cross
//
// An address names several contacts. Where packets may vanish on the way to one, several are asked
// at the same time (contact_plan.hpp), and the one by which the peer answers stays. One that fails
// before the peer is heard is followed by the next one; a later failure is the end of the
// connection.
#pragma once

#include <uct/api/uct.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "protocols/connect/contact_plan.hpp"
#include "protocols/connect/lane_connection.hpp"
#include "protocols/cost/options.hpp"
#include "protocols/index/fifo.hpp"
#include "protocols/match/match_peer.hpp"
#include "protocols/port/lane_port.hpp"
#include "protocols/port/peer_port.hpp"
#include "protocols/port/worker_counters.hpp"
#include "protocols/wire/address.hpp"
#include "protocols/wire/reserve_bytes.hpp"
#include "protocols/wire/wireup_messages.hpp"
#include "ucs/log/repeats.hpp"
#include "ucs/memory/reserve.hpp"

namespace tagwire::proto {

class Rail;

/// The name of a transmit context: its number, from 1 on, and the id of the worker that has it.
struct TxName {
    std::uint32_t number = 0;
    std::uint64_t worker = 0;
};

/// A worker, as its connectors see it. `owner` is the first argument of the function.
struct WireupWorld {
    std::uint64_t id;
    const ucs::ReserveVector<std::unique_ptr<Rail>>& rails;
    const Options& options;
    WorkerCounters& counters;
    ucs::Repeats& refusals;
    TxName tx;  // as peers learn it; zeroes: it is a worker of a program
    void* owner;
    /// False: a peer that has our hello would send by a lane that receives do not see yet.
    bool (*may_greet)(void* owner);
};

/// The world of a connector. `names`: its endpoint, whose `peer_names` it writes.
struct ConnectorPorts {
    MatchPeer& names;
    std::uint64_t peer_id;
    const PeerPort& peer;
    const WireupWorld& worker;
};

class Connector {
  public:
    explicit Connector(const ConnectorPorts& ports);
    Connector(const Connector&) = delete;
    Connector& operator=(const Connector&) = delete;

    /// First contact: makes the lane of wire-up, by the first of the peer's contacts that lead
    /// there, and says hello. UCS_ERR_UNREACHABLE. *why, which may be null, gets the reason of each
    /// failure.
    ucs_status_t contact(Address to, std::string* why);
    /// An endpoint of first contact has failed. True: the peer has not been heard yet, and hello
    /// has gone, or goes, to it by others of its contacts.
    bool contact_elsewhere(uct_ep_h failed, ucs_status_t status);
    /// As contact(), at a later progress if there is no memory now; the endpoint fails if it fails.
    void begin(Address to);
    /// First contact with a peer of these rails.
    void greet(const Hello& hello, ucs::ReserveVector<PeerRail> rails);
    /// Says hello again for a new connection. Only the peer's contacts are kept.
    void begin_anew();
    /// Sends the wire-up messages that wait. False: some still wait.
    bool work();
    /// Destroys the endpoints of first contact and of an offered lane. Messages that wait stay.
    void disconnect();
    void clear() {
        messages_.clear();
        is_flooded_ = false;
    }
    /// `ep` is about to be destroyed: drops references to it.
    void forget(uct_ep_h ep);

    // ---- Messages of the peer

    void on_hello(const Hello& hello, ucs::ReserveVector<PeerRail> rails);
    void on_offer(const OfferMessage& message);
    void on_ready(const Offer& offer);
    void on_refuse(const Offer& offer);

    // ---- For lanes

    const WireupPort& wireup() const { return wireup_; }
    /// Purges its pending requests, then destroys it.
    void destroy_ep(uct_ep_h ep);

    /// Where the peer takes first contact.
    const Address& address() const { return address_; }
    /// By which the peer tells this connection from others.
    std::uint32_t number() const { return number_; }
    /// Empty before the peer's hello.
    std::span<const PeerRail> peer_rails() const {
        return {peer_rails_.data(), peer_rails_.size()};
    }
    /// UINT8_MAX: the peer has told of no such rail.
    std::uint8_t domain_of_peer(std::size_t rail) const {
        return rail < peer_rails_.size() ? peer_rails_[rail].domain : std::uint8_t{UINT8_MAX};
    }
    /// The endpoint of first contact and its rail; nullptr: none.
    uct_ep_h contact_ep() const { return contact_; }
    Rail* contact_rail() const { return contact_rail_; }
    bool is_offering() const { return is_offering_; }

  private:
    /// An endpoint by which the peer is asked while it is not known which way leads to it.
    struct Rival {
        ContactWay way;
        uct_ep_h ep;
        bool has_greeted;
    };

    ucs_status_t make_ep(Rail& rail, std::span<const std::byte> device,
                         std::span<const std::byte> iface, uct_ep_h* ep_p);
    void queue(WireupOp op, Offer offer, std::span<const std::byte> address);
    const LanePort& lane() const { return to_.names.lane; }
    void plan(std::optional<std::size_t> known_rail, std::string* why);
    ucs_status_t contact_next(std::string* why);
    ucs_status_t ask(const ContactWay& way, std::string* why);
    void use(const Rival& rival);
    bool greet_rivals();
    void settle_contact(const Hello& hello, std::span<const PeerRail> rails);
    bool is_by(const ContactWay& way, const Hello& hello, std::span<const PeerRail> rails) const;
    void drop_contacts();
    void contact_again();
    void answer_contact();
    void learn_rails(const Hello& hello, ucs::ReserveVector<PeerRail> rails);
    Address address_of_peer() const;
    std::uint8_t contacted_rail() const;
    void choose_lane();
    bool try_lane(std::size_t rail, std::size_t peer_rail);
    void use_offered();
    void choose(uct_ep_h lane, Rail& rail, std::uint8_t peer_rail);
    void refuse(const Offer& offer);
    void add_refused(const Offer& offer);
    bool send();
    void queue(ReserveBytes bytes);
    ReserveBytes hello_bytes(const ContactWay& way) const;
    ContactWay contact_way() const { return {contacted_, contact_rail_}; }

    /// Wire-up messages that may wait: a hello, and offers for all rails. A peer that makes more
    /// wait does not read, and its endpoint fails; in progress, so that no caller of queue() loses
    /// the endpoint under its feet.
    static constexpr std::size_t kMessagesMax = 512;

    static const WireupCalls kWireupCalls;

    const ConnectorPorts to_;
    const WireupPort wireup_;
    Address address_;
    ContactPlan plan_;
    std::optional<std::size_t> known_rail_;  // by which the peer was heard
    std::size_t contacted_ = 0;              // the contact that contact_ leads to
    std::uint32_t heard_by_ = 0;             // Hello::from_rail
    std::uint32_t number_ = 0;
    uct_ep_h contact_ = nullptr;
    Rail* contact_rail_ = nullptr;
    ucs::ReserveVector<Rival> rivals_;  // of contact_; none once the peer is heard
    bool owes_contact_ = false;         // there was no memory for it
    bool is_offering_ = false;          // the lane is to be one that both sides connect
    std::optional<LaneConnection> offered_;
    ucs::ReserveVector<PeerRail> peer_rails_;
    ucs::ReserveVector<std::pair<std::size_t, std::size_t>> refused_;
    Fifo<ReserveBytes> messages_;
    bool is_flooded_ = false;  // too many were to wait: the endpoint fails in work()
};

}  // namespace tagwire::proto
