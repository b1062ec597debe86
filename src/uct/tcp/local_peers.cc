// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/local_peers.hpp"

#include <algorithm>

#include "uct/tcp/tcp_ep.hpp"
#include "uct/tcp/tcp_iface.hpp"

namespace tagwire::tcp {

using Peers = uct::PeerWatch::Peers;

std::size_t LocalPeers::peers() const {
    return iface_.connections.all().size();
}

Peers LocalPeers::state_of(const Connection& connection) const {
    const bool is_here = connection.address.bytes == iface_.device().address.bytes;
    return is_here ? Peers::kStand : Peers::kUnknown;
}

Peers LocalPeers::look_at_peers(const uct::Whereabouts&) {
    const auto all = iface_.connections.all();
    Peers last = Peers::kNone;
    for (std::size_t seen = 0; seen < std::min(kPerLook, all.size()); ++seen) {
        next_ = next_ + 1 < all.size() ? next_ + 1 : 0;
        last = std::max(last, state_of(*all[next_]));
    }
    return last;
}

Peers LocalPeers::look_at_peer(uct_ep_h ep, const uct::Whereabouts&) {
    return state_of(static_cast<TcpEp*>(ep)->connection());
}

}  // namespace tagwire::tcp
