// SPDX-License-Identifier: BSD-3-Clause
// An endpoint as the table of peers knows it: names, marks, and the parts that connect and end it.
// Endpoint is derived from it.
#pragma once

#include <cstdint>

#include "protocols/api/tw_def.h"
#include "protocols/connect/closing.hpp"
#include "protocols/connect/connector.hpp"
#include "protocols/match/match_peer.hpp"
#include "protocols/port/lane_port.hpp"
#include "protocols/port/peer_port.hpp"

namespace tagwire::proto {

/// Marks of an endpoint in the lists and counts of its worker. PeerTable writes those that name no
/// other.
struct EpMarks {
    bool wants_wireup = false;   // it is asked for its slow work
    bool is_retired = false;     // it is asked whether it can go
    bool is_up = false;          // the connection was told of, and its end was not
    bool has_notice = false;     // the program is to be told of its failure (Notices)
    bool is_unasked = false;     // made by its peer; the program has never had it
    std::uint32_t draining = 0;  // requests of it whose data a device still moves (WorkerCore)
};

/// `worker`: as the program names the peer; `peer` itself, if that is no transmit context.
struct PeerNames {
    std::uint64_t own;
    std::uint64_t peer;
    std::uint64_t worker;
};

class PeerEndpoint : public MatchPeer {
  public:
    PeerEndpoint(const PeerEndpoint&) = delete;
    PeerEndpoint& operator=(const PeerEndpoint&) = delete;

    Closing& closing() { return closing_; }
    const Closing& closing() const { return closing_; }
    Connector& connector() { return connector_; }
    /// nullptr: the program does not have it.
    tw_ep_h own_handle() { return hold.is_held() ? this : nullptr; }

    const std::uint64_t peer_id;

  protected:
    /// Ports and connector are of the endpoint, and may be constructed later.
    PeerEndpoint(const PeerNames& names, const LanePort& port, const PeerPort& peer_port,
                 Connector& connector)
        : MatchPeer(port, names.worker),
          peer_id(names.peer),
          closing_(port, peer_port, hold, names.own, names.peer),
          connector_(connector) {}
    ~PeerEndpoint() = default;

    Closing closing_;

  private:
    Connector& connector_;

  public:
    EpMarks marks;
};

/// The peer is a transmit context of a worker.
inline bool is_to_tx_context(const PeerEndpoint& ep) {
    return ep.peer_id != ep.worker_id;
}

inline PeerEndpoint& peer_endpoint_of(tw_ep_h handle) {
    return *static_cast<PeerEndpoint*>(handle);
}

}  // namespace tagwire::proto
