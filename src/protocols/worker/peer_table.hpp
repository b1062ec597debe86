// SPDX-License-Identifier: BSD-3-Clause
// The peers of a worker, and its endpoints to them: found, made, failed, destroyed.
//
// 1. An endpoint is found by the id of its peer and by the id that the peer names itself with; the
//    same object by both. A peer is a worker, or a transmit context of one (tx_contexts.hpp).
// 2. Ids of ended connections are retired: messages that still come by them find nothing, and are
//    not taken for those of a later connection.
// 3. The program hears of ends and failures in progress, behind the callbacks of the requests that
//    ended by them.
// 4. An endpoint that fails is detached at once, and destroyed in progress when the program has it
//    no more; one that has not failed, when both sides have left.
#pragma once

#include <uct/api/uct.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "protocols/api/tw_worker.h"
#include "protocols/connect/lingering_lanes.hpp"
#include "protocols/connect/peer_records.hpp"
#include "protocols/cost/options.hpp"
#include "protocols/match/match_table.hpp"
#include "protocols/request/callback_port.hpp"
#include "protocols/request/request_table.hpp"
#include "protocols/wire/address.hpp"
#include "protocols/worker/notices.hpp"
#include "protocols/worker/peer_endpoint.hpp"
#include "ucs/log/repeats.hpp"
#include "ucs/memory/reserve.hpp"

namespace tagwire::proto {

/// The functions of a worker for its table of peers; the first argument of each is the worker.
struct PeerTableCalls {
    /// The endpoint has no id. Throws std::bad_alloc.
    PeerEndpoint* (*make)(void* owner, std::uint64_t peer_id, std::uint64_t worker_id);
    void (*destroy)(PeerEndpoint& ep);
    /// Messages of its peer find the endpoint by the id. 0: there are too many endpoints.
    std::uint32_t (*add_id)(void* owner, PeerEndpoint& ep);
    /// The end of that. Nothing happens if the id is that of another one, or of none.
    void (*release_id)(void* owner, PeerEndpoint& ep);
    /// Operations that wait to be sent go over a new connection.
    void (*begin_anew)(PeerEndpoint& ep);
    /// The slow work that the endpoint has asked for. False: to be called again.
    bool (*work)(PeerEndpoint& ep);
    /// False: the lane is none beside the endpoint's own, or that one is to fail with it.
    bool (*stripe_failed)(PeerEndpoint& ep, uct_ep_h lane, ucs_status_t status);
    /// Messages of the peer that are not all here end; `is_last`: no other endpoint to it stays.
    void (*drop_incoming)(void* owner, PeerEndpoint& ep, ucs_status_t status, bool is_last);
    /// Receives of the endpoint that have matched end.
    void (*end_receives)(void* owner, PeerEndpoint& ep, ucs_status_t status);
    /// The program has the endpoint: it gets its transmit contexts, if the worker has any.
    ucs_status_t (*open_contexts)(void* owner, PeerEndpoint& ep, unsigned flags);
    /// False: the worker is no transmit context. Else the endpoint that the program has fails.
    bool (*fail_front)(void* owner, PeerEndpoint& ep, ucs_status_t status);
    /// The connection of a worker, no transmit context, has ended. Calls nothing of the program.
    /// Null: nobody wants to know.
    void (*ended)(void* owner, std::uint64_t worker_id, ucs_status_t status) = nullptr;
};

/// The world of a table of peers.
struct PeerTablePorts {
    const std::uint64_t id;  // the worker's
    const Options& options;
    Attention& attention;
    RequestTable& requests;
    MatchTable& matches;
    const CallbackPort& callbacks;
    const tw_worker_params_t& params;
    void* const owner;
    const PeerTableCalls& calls;
};

class PeerTable {
  public:
    explicit PeerTable(const PeerTablePorts& ports)
        : to_(ports), notices_(ports.callbacks, ports.params) {}
    PeerTable(const PeerTable&) = delete;
    PeerTable& operator=(const PeerTable&) = delete;

    // ---- Endpoints

    /// Peers, also some that have no endpoint any more.
    std::size_t remembered() const { return records_.size(); }
    /// nullptr: none.
    PeerEndpoint* endpoint_to(std::uint64_t peer_id) const;
    /// The program's endpoint to the peer, or to its worker if that is a transmit context; nullptr:
    /// the program has none.
    tw_ep_h handle_to(std::uint64_t peer_id) const;
    /// `flags`: TW_EP_x.
    ucs_status_t connect(const Address& address, unsigned flags, void* user_data,
                         PeerEndpoint** ep_p);
    /// UCS_ERR_NO_ELEM: no worker of this id is connected.
    ucs_status_t connect_to(std::uint64_t worker_id, void* user_data, PeerEndpoint** ep_p);
    /// The endpoint to the worker, which is made if there is none, and connects when it is asked
    /// to. nullptr: out of memory.
    PeerEndpoint* found_or_made(std::uint64_t worker_id);
    /// A connection of that worker would meet one that its program is not known to have left: that
    /// may be about to be heard.
    bool is_engaged(std::uint64_t worker_id) const;
    /// Both programs connect anew: the connection that the one which asked for that has left ends,
    /// in order, and the next one takes its place.
    void end_left(std::uint64_t worker_id, bool is_asked);
    /// The program has it.
    void asked(PeerEndpoint& ep);
    /// By force.
    void close(PeerEndpoint& ep);
    /// The peer hears of the end by the first hello of another connection, which no program has
    /// asked for: of something under way it would wait for the rest, and it might never speak.
    void tell_anew(PeerEndpoint& closed);
    /// The endpoint is asked in progress whether it can be destroyed.
    void retire(PeerEndpoint& ep);
    /// Another endpoint to the same worker may be made.
    void detach(PeerEndpoint& ep);
    /// Messages of its peer find no endpoint from now on.
    void release_id(PeerEndpoint& ep) { to_.calls.release_id(to_.owner, ep); }
    /// Destroys all.
    void clear();

    // ---- Connections

    std::uint32_t next_connection() { return ++connections_; }
    /// The id by which the latest ended connection to the worker named itself; 0: none.
    std::uint32_t retired_id_of(std::uint64_t peer_id) { return records_.retired_id_of(peer_id); }
    /// False: the hello cannot be taken.
    bool on_hello(std::uint64_t from, HelloMessage message);
    /// The connection has ended and the program wants the endpoint: it makes a new connection.
    void reconnect(PeerEndpoint& ep);
    /// The peer's connection of that number is over, and ours ends with `status`.
    void connection_is_over(PeerEndpoint& ep, std::uint32_t number, ucs_status_t status);
    void ask_wireup(PeerEndpoint& ep);

    // ---- Lanes

    /// `ep` null: the lane goes.
    void map_lane(uct_ep_h lane, PeerEndpoint* ep);
    /// The lane is of no endpoint any more, and goes when all that it was given has arrived, or
    /// soon.
    void linger(uct_ep_h lane);
    /// A transport reports it, in any call.
    void lane_failed(uct_ep_h lane, ucs_status_t status);

    // ---- Reports to the program

    /// The connection is there; it has ended, with UCS_OK if neither side wants it.
    void tell_up(PeerEndpoint& ep);
    /// TW_PEER_LEFT or TW_PEER_BACK.
    void tell_event(const PeerEndpoint& ep, tw_peer_event_t event);
    void tell_end(PeerEndpoint& ep, ucs_status_t status);
    /// Tells the program of the failure, in progress, behind the callbacks of the endpoint's
    /// operations.
    void report_failure(PeerEndpoint& ep, ucs_status_t status);

    // ---- Slow work of progress; those that return a number count their events

    unsigned fail_lanes();
    unsigned run_notices();
    void run_wireup();
    unsigned end_connections();
    unsigned destroy_retired();
    /// True: some stay.
    bool destroy_arrived();

  private:
    struct Destroy {
        void (*function)(PeerEndpoint& ep) = nullptr;
        void operator()(PeerEndpoint* ep) const { function(*ep); }
    };

    struct LaneFailure {
        uct_ep_h lane;
        ucs_status_t status;
    };

    /// A connection that the peer has ended; it fails after so many calls of progress.
    struct Ending {
        std::uint64_t peer_id;
        std::uint32_t peer_names;
        ucs_status_t status;
        unsigned passes;
        std::uint64_t refused_until;  // ns; this side ends it, when the peer has been told; 0: no
        bool is_told;
    };

    static constexpr unsigned kPassesToEnd = 64;
    static constexpr std::uint64_t kRefusalNs = 2'000'000'000;
    static constexpr std::size_t kRefusalsMax = 64;  // at a time

    using Owned = std::unique_ptr<PeerEndpoint, Destroy>;

    void find_used(UsedSources& used) const;
    PeerEndpoint* present(std::uint64_t peer_id);
    PeerEndpoint* make_endpoint(std::uint64_t peer_id, std::uint64_t worker_id);
    void destroy(PeerEndpoint& ep);
    void retire_id(const PeerEndpoint& ep);
    bool may_be_refused(std::uint64_t from);
    void refuse_in_progress(PeerEndpoint& ep);
    bool is_due(Ending& ending);
    void note_unasked(PeerEndpoint& ep);
    void end_in_progress(PeerEndpoint& ep, ucs_status_t status);
    void fail_lane(const LaneFailure& failure);
    void log_unreachable(std::uint64_t worker_id, const std::string& why);

    const PeerTablePorts to_;
    ucs::ReserveHashMap<std::uint64_t, Owned> endpoints_;
    // Failed or replaced; the program has not closed them, or they have not been destroyed.
    ucs::ReserveHashMap<PeerEndpoint*, Owned> detached_;
    ucs::ReserveHashMap<uct_ep_h, PeerEndpoint*> lanes_;
    ucs::ReserveVector<LaneFailure> lane_failures_;  // seen outside of progress
    PeerRecords records_{this, [](void* table, UsedSources& used) {
                             static_cast<const PeerTable*>(table)->find_used(used);
                         }};
    std::uint64_t unreachable_ = 0;  // the peer that was logged as that last
    std::uint32_t connections_ = 0;
    std::size_t unasked_ = 0;   // endpoints that are
    std::size_t refusals_ = 0;  // among endings_
    ucs::Repeats refused_;
    ucs::ReserveVector<PeerEndpoint*> wireup_;
    ucs::ReserveVector<Ending> endings_;
    LingeringLanes lingering_;
    ucs::ReserveVector<PeerEndpoint*> retired_;
    Notices notices_;
};

}  // namespace tagwire::proto
