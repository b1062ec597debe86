// SPDX-License-Identifier: BSD-3-Clause
// Peers on this host, which may need the processor of the thread that waits for them. Nothing tells
// whether one runs, so all of them count as standing: yields that find nobody grow rare by
// themselves, and strangers show by how long they keep the processor.
//
// A peer is known to be here by its address, which is the interface's own one. Owner thread only.
#pragma once

#include <cstddef>

#include "uct/peer_watch.hpp"

namespace tagwire::tcp {

class Connection;
class TcpIface;

class LocalPeers : public uct::PeerWatch {
  public:
    explicit LocalPeers(TcpIface& owner) : iface_(owner) {}

    [[nodiscard]] bool sees_peers() const override { return false; }
    /// Connections, to any host.
    [[nodiscard]] std::size_t peers() const override;
    /// At some of all, in turn.
    Peers look_at_peers(const uct::Whereabouts&) override;
    Peers look_at_peer(uct_ep_h ep, const uct::Whereabouts&) override;

  private:
    static constexpr std::size_t kPerLook = 16;

    [[nodiscard]] Peers state_of(const Connection& connection) const;

    TcpIface& iface_;
    std::size_t next_ = 0;  // in its connections
};

}  // namespace tagwire::tcp
