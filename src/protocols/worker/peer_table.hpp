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

#include "protocols/api/tw_context.h"
#include "protocols/connect/lingering_lanes.hpp"
#include "protocols/connect/peer_records.hpp"
#include "protocols/worker/endpoint.hpp"
#include "protocols/worker/notices.hpp"
#include "ucs/log/repeats.hpp"
#include "ucs/memory/reserve.hpp"

namespace tagwire::proto {

class PeerTable {
  public:
    PeerTable(WorkerCore& owner, const tw_worker_params_t& params)
        : worker_(owner), notices_(owner, params) {}
    PeerTable(const PeerTable&) = delete;
    PeerTable& operator=(const PeerTable&) = delete;

    // ---- Endpoints

    /// Peers, also some that have no endpoint any more.
    std::size_t remembered() const { return records_.size(); }
    /// nullptr: none.
    Endpoint* endpoint_to(std::uint64_t peer_id) const;
    /// `flags`: TW_EP_x.
    ucs_status_t connect(const Address& address, unsigned flags, void* user_data, Endpoint** ep_p);
    /// UCS_ERR_NO_ELEM: no worker of this id is connected.
    ucs_status_t connect_to(std::uint64_t worker_id, void* user_data, Endpoint** ep_p);
    /// Makes the endpoint of a transmit context that carries messages of `front`, the program's. It
    /// connects when that one has. UCS_ERR_NO_MEMORY.
    ucs_status_t open_tx(Endpoint& front, TxPart& part);
    /// A connection of that worker would meet one that its program is not known to have left: that
    /// may be about to be heard.
    bool is_engaged(std::uint64_t worker_id) const;
    /// Both programs connect anew: the connection that the one which asked for that has left ends,
    /// in order, and the next one takes its place.
    void end_left(std::uint64_t worker_id, bool is_asked);
    /// The program has it.
    void asked(Endpoint& ep);
    /// By force.
    void close(Endpoint& ep);
    /// The peer hears of the end by the first hello of another connection, which no program has
    /// asked for: of something under way it would wait for the rest, and it might never speak.
    void tell_anew(Endpoint& closed);
    /// The endpoint is asked in progress whether it can be destroyed.
    void retire(Endpoint& ep);
    /// Another endpoint to the same worker may be made.
    void detach(Endpoint& ep);
    /// Messages of its peer find no endpoint from now on.
    void release_id(Endpoint& ep);
    /// Destroys all.
    void clear();

    // ---- Connections

    std::uint32_t next_connection() { return ++connections_; }
    /// The id by which the latest ended connection to the worker named itself; 0: none.
    std::uint32_t retired_id_of(std::uint64_t peer_id) { return records_.retired_id_of(peer_id); }
    /// False: the hello cannot be taken.
    bool on_hello(std::uint64_t from, HelloMessage message);
    /// The connection has ended and the program wants the endpoint: it makes a new connection.
    void reconnect(Endpoint& ep);
    /// The peer's connection of that number is over, and ours ends with `status`.
    void connection_is_over(Endpoint& ep, std::uint32_t number, ucs_status_t status);
    void ask_wireup(Endpoint& ep);

    // ---- Lanes

    /// `ep` null: the lane goes.
    void map_lane(uct_ep_h lane, Endpoint* ep);
    /// The lane is of no endpoint any more, and goes when all that it was given has arrived, or
    /// soon.
    void linger(uct_ep_h lane);
    /// A transport reports it, in any call.
    void lane_failed(uct_ep_h lane, ucs_status_t status);

    // ---- Reports to the program

    /// The connection is there; it has ended, with UCS_OK if neither side wants it.
    void tell_up(Endpoint& ep);
    /// TW_PEER_LEFT or TW_PEER_BACK.
    void tell_event(const Endpoint& ep, tw_peer_event_t event);
    void tell_end(Endpoint& ep, ucs_status_t status);
    /// Tells the program of the failure, in progress, behind the callbacks of the endpoint's
    /// operations.
    void report_failure(Endpoint& ep, ucs_status_t status);

    // ---- Slow work of progress; those that return a number count their events

    unsigned fail_lanes();
    unsigned run_notices();
    void run_wireup();
    unsigned end_connections();
    unsigned destroy_retired();
    /// True: some stay.
    bool destroy_arrived();

  private:
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

    void find_used(UsedSources& used) const;
    Endpoint* make_endpoint(std::uint64_t peer_id, std::uint64_t worker_id);
    void destroy(Endpoint& ep);
    void retire_id(const Endpoint& ep);
    bool may_be_refused(std::uint64_t from);
    void refuse_in_progress(Endpoint& ep);
    bool is_due(Ending& ending);
    void note_unasked(Endpoint& ep);
    void end_in_progress(Endpoint& ep, ucs_status_t status);
    void fail_lane(const LaneFailure& failure);
    void log_unreachable(std::uint64_t worker_id, const std::string& why);

    WorkerCore& worker_;
    ucs::ReserveHashMap<std::uint64_t, std::unique_ptr<Endpoint>> endpoints_;
    // Failed or replaced; the program has not closed them, or they have not been destroyed.
    ucs::ReserveHashMap<Endpoint*, std::unique_ptr<Endpoint>> detached_;
    ucs::ReserveHashMap<uct_ep_h, Endpoint*> lanes_;
    ucs::ReserveVector<LaneFailure> lane_failures_;  // seen outside of progress
    PeerRecords records_{this, [](void* table, UsedSources& used) {
                             static_cast<const PeerTable*>(table)->find_used(used);
                         }};
    std::uint64_t unreachable_ = 0;  // the peer that was logged as that last
    std::uint32_t connections_ = 0;
    std::size_t unasked_ = 0;   // endpoints that are
    std::size_t refusals_ = 0;  // among endings_
    ucs::Repeats refused_;
    ucs::ReserveVector<Endpoint*> wireup_;
    ucs::ReserveVector<Ending> endings_;
    LingeringLanes lingering_;
    ucs::ReserveVector<Endpoint*> retired_;
    Notices notices_;
};

}  // namespace tagwire::proto
