// SPDX-License-Identifier: BSD-3-Clause
// The interfaces that we send to, and the address handles of their ports.
//
// Threads: owner of the interface.
// Invariants
//  (1) One Peer per (queue pair number, cookie, port), shared by all connections with it; it stays
//      where it is while anybody uses it.
//  (2) An address handle stays until the table goes, since requests under way may need it. There
//      are at most kPortsMax; beyond them nobody new is answered or connected.
#pragma once

#include <array>
#include <map>
#include <memory>

#include "uct/ib/ib_md.hpp"
#include "uct/ib/ud/ud_liveness.hpp"
#include "uct/ib/ud/ud_packet.hpp"

namespace tagwire::ud {

struct UdPeer {
    std::uint32_t cookie;
    std::uint32_t owed = 0;  // Node's
    std::uint32_t qp_num;
    ibv_ah* path;
    unsigned users = 0;
    ReturnAddress address;
    std::uint64_t host = 0;
    LifeLine life{};
};

class PeerTable {
  public:
    static constexpr std::size_t kPortsMax = 65536;

    void init(const ib::IbMd& md, const ib::Port& port) {
        md_ = &md;
        port_ = &port;
    }
    LifeSign life;
    /// `interface` in the order of the machine, both checked. Null: the device gives no more
    /// address handles, or there are too many.
    UdPeer* get(const ib::PortAddress& port, const InterfaceAddress& interface);
    void put(UdPeer& peer);

    [[nodiscard]] std::size_t size() const { return peers_.size(); }

  private:
    using PortKey = std::array<std::byte, sizeof(ib::PortAddress)>;
    using Key = std::array<std::byte, sizeof(ReturnAddress)>;

    ibv_ah* path_of(const ib::PortAddress& port);

    const ib::IbMd* md_ = nullptr;
    const ib::Port* port_ = nullptr;
    std::map<PortKey, ib::OwnedAh> paths_;
    std::map<Key, std::unique_ptr<UdPeer>> peers_;
};

}  // namespace tagwire::ud
