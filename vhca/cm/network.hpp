// SPDX-License-Identifier: BSD-3-Clause
// The connection manager's view of the world: a port, the way to others, and their names.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "vhca/cm/address.hpp"
#include "vhca/cm/message.hpp"
#include "vhca/core/wire.hpp"

namespace tagwire::vhca::cm {

/// Our port.
struct LocalPort {
    std::uint64_t guid = 0;  // of the node, host order
    ibv_gid gid{};
    std::uint16_t lid = 0;
    bool is_ethernet = false;
    ibv_mtu mtu = IBV_MTU_4096;
};

/// A port that requests go to, or came from.
struct Peer {
    Route route;
    ibv_gid gid{};
    std::uint16_t lid = 0;
};

class Network {
  public:
    virtual ~Network() = default;

    /// Everything else happens under this lock; it is that of the device. Others may wait for
    /// messages once it is given back.
    virtual void lock() = 0;
    virtual void unlock() = 0;

    [[nodiscard]] virtual Time now() const = 0;
    [[nodiscard]] virtual LocalPort port() const = 0;
    /// `source` is no is_any(). EADDRNOTAVAIL: no address of this machine. ENODEV: it is, but
    /// leads to no port of ours.
    [[nodiscard]] virtual int check_source(const Address& source) const = 0;
    /// Fills `source_p`, our end of a way to `destination`; its port stays as it is. EHOSTUNREACH.
    [[nodiscard]] virtual int find_source(const Address& destination, Address* source_p) const = 0;
    /// The node that serves requests for this service at `destination`, at present.
    [[nodiscard]] virtual Peer find_peer(std::uint64_t service_id,
                                         const Address& destination) const = 0;
    [[nodiscard]] virtual Peer peer_at(Route route) const = 0;

    /// A service belongs to one process of all that share the address. EADDRINUSE.
    virtual int claim(std::uint64_t service_id) = 0;
    virtual void release(std::uint64_t service_id) = 0;

    /// May be lost.
    virtual void send(Route to, const Mad& mad) = 0;
};

}  // namespace tagwire::vhca::cm
