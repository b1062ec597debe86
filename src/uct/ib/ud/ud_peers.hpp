// SPDX-License-Identifier: BSD-3-Clause
// Peer interfaces that this interface sends to, and the address handles of their ports.
//
// Threads: owner of the interface.
// Invariants
//  (1) One Peer per (queue pair number, cookie, port), shared by all connections with it; it stays
//      where it is while anybody uses it.
//  (2) An address handle that no Peer uses stays for a next one; of more than kIdleMax such the
//      longest idle goes, once no request under way can need it. There are at most kPortsMax in
//      all; beyond them nobody new is answered or connected.
#pragma once

#include <array>
#include <list>
#include <map>
#include <memory>

#include "ucs/memory/reserve.hpp"
#include "uct/ib/ib_md.hpp"
#include "uct/ib/ud/ud_liveness.hpp"
#include "uct/ib/ud/ud_packet.hpp"

namespace tagwire::ud {

/// The address handle of a port.
struct UdPath {
    std::array<std::byte, sizeof(ib::PortAddress)> key;
    ib::OwnedAh handle;
    unsigned users = 0;
    std::uint32_t last_request = 0;  // that may use it, when nobody does
    ucs::ReserveList<UdPath*>::iterator idle = {};
};

struct UdPeer : ucs::FromReserve {
    std::uint32_t cookie = 0;
    std::uint32_t owed = 0;  // Node's
    std::uint32_t qp_num = 0;
    ibv_ah* path = nullptr;
    UdPath* owner_of_path = nullptr;
    unsigned users = 0;
    ReturnAddress address{};
    std::uint64_t host = 0;
    LifeLine life{};
};

class PeerTable {
  public:
    static constexpr std::size_t kPortsMax = 65536;
    static constexpr std::size_t kIdleMax = 64;

    void init(const ib::IbMd& md, const ib::Port& port) {
        md_ = &md;
        port_ = &port;
    }
    LifeSign life;
    /// `interface` in the order of the machine, both checked; requests up to `completed` have
    /// ended. Null: the device gives no more address handles, or there are too many.
    UdPeer* get(const ib::PortAddress& port, const InterfaceAddress& interface,
                std::uint32_t completed);
    /// No request after `posted` uses it.
    void put(UdPeer& peer, std::uint32_t posted);

    [[nodiscard]] std::size_t size() const { return peers_.size(); }
    [[nodiscard]] std::size_t handles() const { return paths_.size(); }

  private:
    using PortKey = std::array<std::byte, sizeof(ib::PortAddress)>;
    using Key = std::array<std::byte, sizeof(ReturnAddress)>;

    UdPath* path_of(const ib::PortAddress& port, std::uint32_t completed);
    void recycle(std::uint32_t completed);

    const ib::IbMd* md_ = nullptr;
    const ib::Port* port_ = nullptr;
    ucs::ReserveMap<PortKey, UdPath> paths_;
    ucs::ReserveList<UdPath*> idle_;  // the longest idle first
    ucs::ReserveMap<Key, std::unique_ptr<UdPeer>> peers_;
};

}  // namespace tagwire::ud
