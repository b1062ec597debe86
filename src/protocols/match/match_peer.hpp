// SPDX-License-Identifier: BSD-3-Clause
// A peer as the match table and the receiver know it: its name, its messages that wait for a
// receive or for their place, their share of the budget, and the long message whose parts are
// coming. An endpoint is one.
#pragma once

#include <cstdint>

#include "protocols/api/tw_def.h"
#include "protocols/cost/timing.hpp"
#include "protocols/match/announcements.hpp"
#include "protocols/match/unexpected.hpp"
#include "protocols/port/lane_port.hpp"
#include "protocols/request/ep_hold.hpp"
#include "protocols/request/lane_state.hpp"

// NOLINTNEXTLINE(readability-identifier-naming): the name of the C API
struct tw_ep {};

namespace tagwire::proto {

/// The part of a worker's budget that a peer uses, and what it was told about that. MatchTable
/// writes it.
struct PeerBudget {
    std::uint64_t held_bytes = 0;  // of messages that are kept, and of announced ones
    std::uint64_t sent_on = 0;     // bytes that came although it was told to pause
    bool told_to_pause_eager = false;
    bool told_to_pause = false;
    bool has_flooded = false;  // it fails because of that

    /// Another connection: nobody was told anything by that.
    void begin_anew() { told_to_pause_eager = told_to_pause = false; }
};

/// A long eager message whose parts are coming, and where they go; to neither: they are dropped.
/// A peer has one at a time.
struct IncomingParts {
    Request* request = nullptr;
    Unexpected* message = nullptr;
    std::uint64_t bytes = 0;  // that are here
    std::uint64_t length = 0;
    Timing timing;
    bool is_under_way = false;

    /// The first part, of `now` bytes, is here.
    void begin(Request* to, std::uint64_t now, std::uint64_t of, const Timing& at = {}) {
        *this = {to, nullptr, now, of, at, true};
    }
    void begin(Unexpected& to, std::uint64_t now, std::uint64_t of) {
        *this = {nullptr, &to, now, of, {}, true};
    }
    /// The message has `more` bytes still to come, or more.
    bool has_room(std::uint64_t more) const { return is_under_way && more <= length - bytes; }
    void end() {
        is_under_way = false;
        request = nullptr;
        message = nullptr;
    }
};

struct MatchPeer : tw_ep {
    MatchPeer(const LanePort& port, std::uint64_t of_worker) : lane(port), worker_id(of_worker) {}
    MatchPeer(const MatchPeer&) = delete;
    MatchPeer& operator=(const MatchPeer&) = delete;

    UnexpectedList kept;  // its messages that nobody has received, and their memory
    IncomingParts incoming;
    Announcements announced;
    PeerBudget budget;
    LaneCopies copies;
    bool sends_to_device = false;  // tagged messages, which a device here matches; DeviceTags'
    const LanePort& lane;
    // The line of what each message reads; an endpoint goes on there.
    alignas(64) const std::uint64_t worker_id;  // of the peer, or of the worker that it is of
    std::uint32_t id = 0;          // by which the peer names itself, new for each connection
    std::uint32_t source = 0;      // what matching knows it by, the same for all endpoints to it
    std::uint32_t peer_names = 0;  // by which we name ourselves; Connector writes it
    EpHold hold;
};

/// The endpoint that the program sees as the sender of messages; nullptr: it does not have it.
inline tw_ep_h handle_of(MatchPeer& peer) {
    return peer.hold.is_held() ? &peer : peer.lane.handle();
}

inline MatchPeer& peer_of(tw_ep_h handle) {
    return *static_cast<MatchPeer*>(handle);
}

}  // namespace tagwire::proto
