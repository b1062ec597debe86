// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/cm/engine_network.hpp"

#include <endian.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <string>

#include "ucs/sys/process.hpp"
#include "ucs/sys/unix_socket.hpp"

namespace tagwire::vhca::cm {

namespace {

constexpr std::uint16_t kPrivilegedPorts = 1024;

std::string claim_name(std::uint64_t service_id) {
    return "tagwire-vhca-cm." + std::to_string(::geteuid()) + "." + std::to_string(service_id);
}

/// LID of the process that claimed the service; 0: none did.
std::uint16_t find_claim(std::uint64_t service_id) {
    std::ifstream sockets("/proc/net/unix");
    const std::string wanted = "@" + claim_name(service_id) + ".";
    for (std::string line; std::getline(sockets, line);) {
        const std::size_t at = line.find(wanted);
        if (at != std::string::npos) {
            std::uint16_t lid = 0;
            std::from_chars(line.data() + at + wanted.size(), line.data() + line.size(), lid);
            return lid;
        }
    }
    return 0;
}

/// This machine has the address.
bool is_of_machine(const Address& address) {
    if (address.is_any())
        return true;
    Address own = address;
    own.set_port(0);
    const ucs::UniqueFd fd(::socket(static_cast<int>(own.family()), SOCK_DGRAM | SOCK_CLOEXEC, 0));
    return fd && ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&own.storage()),
                        static_cast<socklen_t>(own.bytes())) == 0;
}

std::uint32_t ip_of(const Address& address) {
    return be32toh(address.ip4().sin_addr.s_addr);
}

}  // namespace

EngineNetwork& EngineNetwork::of(Engine& engine) {
    const auto guard = engine.lock();
    // Never destroyed, as the engine. Another engine is that of a child after fork(2).
    static EngineNetwork* network = nullptr;
    if (network == nullptr || &network->engine_ != &engine) {
        network = new EngineNetwork(engine);
        network->manager_ = std::make_unique<Manager>(*network, ucs::random_u64());
        engine.set_management(network);
    }
    return *network;
}

void EngineNetwork::unlock() {
    // The program is about to wait; the device's thread has new timers.
    engine_.progress_locked();
    engine_.note_arm();
    mutex_->unlock();
}

LocalPort EngineNetwork::port() const {
    return {.guid = engine_.port().guid(),
            .gid = engine_.port().gid(),
            .lid = engine_.port().lid(),
            .is_ethernet = engine_.port().is_ethernet(),
            .mtu = engine_.device().config().active_mtu};
}

int EngineNetwork::check_source(const Address& source) const {
    const ibv_gid own = port().gid, wanted = gid_of(source);
    const bool is_own = std::memcmp(&own, &wanted, sizeof own) == 0;
    if (source.family() == AF_IB)
        return is_own ? 0 : ENODEV;
    if (!is_of_machine(source))
        return EADDRNOTAVAIL;
    return is_udp() && !is_own ? ENODEV : 0;
}

int EngineNetwork::find_source(const Address& destination, Address* source_p) const {
    const std::uint16_t own_port = source_p->port();
    if (destination.family() == AF_IB) {
        SockaddrIb own = source_p->ib();
        own.sib_addr = port().gid;
        *source_p = Address::of(own);
        return 0;
    }
    if (is_udp()) {
        if (destination.family() != AF_INET)
            return EHOSTUNREACH;
        sockaddr_in own = destination.ip4();
        const ibv_gid gid = port().gid;
        std::memcpy(&own.sin_addr, &gid.raw[12], sizeof own.sin_addr);
        *source_p = Address::of(own);
    } else {
        if (!is_of_machine(destination))
            return EHOSTUNREACH;
        *source_p = destination;
    }
    source_p->set_port(own_port);
    return 0;
}

Peer EngineNetwork::find_peer(std::uint64_t service_id, const Address& destination) const {
    if (destination.family() == AF_IB && !is_udp()) {
        const SockaddrIb to = destination.ib();
        return peer_at({be64toh(to.sib_addr.global.interface_id) & kLidBits});
    }
    if (is_udp()) {
        const Address to = destination;
        if (to.family() == AF_IB)
            return peer_at({be64toh(to.ib().sib_addr.global.interface_id) & 0xffffffff});
        const ibv_gid own = port().gid;
        return peer_at({to.is_zero() ? be64toh(own.global.interface_id) & 0xffffffff : ip_of(to)});
    }
    // Nobody: our own port answers that there is no such service.
    const std::uint16_t lid = find_claim(service_id);
    return peer_at({lid != 0 ? lid : engine_.port().lid()});
}

Peer EngineNetwork::peer_at(Route route) const {
    Peer peer{.route = route, .gid = port().gid, .lid = 0};
    const std::uint64_t bits = is_udp() ? 0xffffffff : kLidBits;
    peer.gid.global.interface_id =
        htobe64((be64toh(peer.gid.global.interface_id) & ~bits) | (route.node & bits));
    peer.lid = is_udp() ? std::uint16_t{0} : static_cast<std::uint16_t>(route.node);
    return peer;
}

int EngineNetwork::claim(std::uint64_t service_id) {
    if ((service_id & 0xffff) < kPrivilegedPorts && ::geteuid() != 0)
        return EACCES;
    Claim made;
    if (!is_udp()) {
        const std::string name = claim_name(service_id);
        ucs_status_t status = ucs::unix_listen({"", name}, &made.name);
        if (status == UCS_OK) {
            status = ucs::unix_listen({"", name + "." + std::to_string(engine_.port().lid())},
                                      &made.location);
        }
        if (status != UCS_OK)
            return status == UCS_ERR_ALREADY_EXISTS ? EADDRINUSE : EMFILE;
    }
    claims_.emplace(service_id, std::move(made));
    return 0;
}

}  // namespace tagwire::vhca::cm
