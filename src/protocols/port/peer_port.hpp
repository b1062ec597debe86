// SPDX-License-Identifier: BSD-3-Clause
// The port by which a part of an endpoint reaches the table of peers, on behalf of its endpoint.
// As lane_port.hpp.
#pragma once

#include <ucs/type/status.h>
#include <uct/api/uct.h>

#include <cstdint>

#include "protocols/api/tw_worker.h"

namespace tagwire::proto {

struct PeerCalls {
    void (*asked)(void* owner);
    void (*retire)(void* owner);
    void (*linger)(void* owner);
    void (*reconnect)(void* owner);
    void (*tell_anew)(void* owner);
    void (*tell_event)(void* owner, tw_peer_event_t event);
    void (*tell_end)(void* owner, ucs_status_t status);
    void (*release_contexts)(void* owner);
    tw_status_t (*flush_contexts)(void* owner, bool closes, tw_flush_level_t level, bool is_kept);
    bool (*awaits_contexts)(const void* owner);
    void (*map_lane)(void* owner, uct_ep_h lane, bool is_made);
    void (*ask_wireup)(void* owner);
    std::uint32_t (*next_connection)(void* owner);
    std::uint32_t (*retired_id)(void* owner);
};

class PeerPort {
  public:
    PeerPort(void* owner, const PeerCalls& calls) : owner_(owner), calls_(&calls) {}

    /// The program has the endpoint.
    void asked() const { calls_->asked(owner_); }
    /// The peer is asked in progress whether it can be destroyed (Closing::leave()).
    void retire() const { calls_->retire(owner_); }
    /// The lane is the peer's own no more; it goes when all that it was given has arrived, or soon.
    void linger() const { calls_->linger(owner_); }
    /// The connection has ended, and the program wants the endpoint: it makes a new one.
    void reconnect() const { calls_->reconnect(owner_); }
    /// The peer hears of the end by another connection.
    void tell_anew() const { calls_->tell_anew(owner_); }
    /// The program hears that the one of the peer has left, or is back.
    void tell_event(tw_peer_event_t event) const { calls_->tell_event(owner_, event); }
    /// Tells that the connection has ended; UCS_OK: neither side wants it.
    void tell_end(ucs_status_t status) const { calls_->tell_end(owner_, status); }
    /// Endpoints of transmit contexts that send in place of this one go.
    void release_contexts() const { calls_->release_contexts(owner_); }
    /// Flushes or closes those. TW_ERR_NO_RESOURCE: to be called again. `is_kept`: with
    /// TW_OP_QUEUE.
    tw_status_t flush_contexts(bool closes, tw_flush_level_t level, bool is_kept) const {
        return calls_->flush_contexts(owner_, closes, level, is_kept);
    }
    /// The flush or close of them has not ended.
    bool awaits_contexts() const { return calls_->awaits_contexts(owner_); }

    // ---- Connecting

    /// An endpoint of a transport is the endpoint's; `is_made` false: it goes.
    void map_lane(uct_ep_h lane, bool is_made) const { calls_->map_lane(owner_, lane, is_made); }
    /// Progress asks Connector::work().
    void ask_wireup() const { calls_->ask_wireup(owner_); }
    /// The number of a new connection.
    std::uint32_t next_connection() const { return calls_->next_connection(owner_); }
    /// The id by which the latest ended connection to the peer named itself; 0: none.
    std::uint32_t retired_id() const { return calls_->retired_id(owner_); }

  private:
    void* owner_;
    const PeerCalls* calls_;
};

}  // namespace tagwire::proto
