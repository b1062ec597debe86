// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/ud/ud_liveness.hpp"

#include <array>
#include <cstdio>
#include <string>
#include <utility>

#include "ucs/log/log.hpp"
#include "ucs/sys/process.hpp"

namespace tagwire::ud {

namespace {

constexpr unsigned kDrainMax = 1024;  // in one go

constexpr std::size_t kNameBytesMax = 40;

/// Does not allocate where `to` has room for kNameBytesMax.
void name_of(std::uint32_t cookie, std::uint32_t qp_num, std::string* to) {
    std::array<char, kNameBytesMax> text{};
    std::snprintf(text.data(), text.size(), "tagwire-ud-%08x-%06x", cookie, qp_num);
    to->assign(text.data());
}

/// Looks at the process at the other end of a connection.
Liveness life_of_process(int connection) {
    ucs::UniqueFd pidfd;
    ucs_status_t status = ucs::open_peer_pidfd(ucs::DeathSource::kPeerPidfd, connection, 0, &pidfd);
    if (status == UCS_ERR_CONNECTION_RESET)
        return Liveness::kDead;
    if (status == UCS_ERR_UNSUPPORTED) {
        ucs::PeerCredentials peer{};
        if (ucs::unix_peer_credentials(connection, &peer) != UCS_OK)
            return Liveness::kUnknown;
        // It says "gone", too, when the peer ended the connection in the meantime: that is unknown.
        status = ucs::open_peer_pidfd(ucs::DeathSource::kPidfdOpen, connection, peer.pid, &pidfd);
    }
    if (status != UCS_OK)
        return Liveness::kUnknown;
    return ucs::pidfd_is_alive(pidfd.get()) ? Liveness::kAlive : Liveness::kDead;
}

}  // namespace

std::uint64_t host_id() {
    const std::uint64_t boot = ucs::boot_id();
    const std::uint64_t network = ucs::network_namespace();
    if (boot == 0 || network == 0)
        return 0;
    std::uint64_t mixed = (boot ^ network * 0x9e3779b97f4a7c15ULL) * 0xff51afd7ed558ccdULL;
    mixed ^= mixed >> 32;
    return mixed == 0 ? 1 : mixed;
}

void LifeSign::open(std::uint32_t cookie, std::uint32_t qp_num) {
    host_ = host_id();
    name_of(cookie, qp_num, &name_.name);
    asked_.name.reserve(kNameBytesMax);
    const ucs_status_t status = ucs::unix_listen(name_, &listener_);
    if (status != UCS_OK)
        TW_LOG_DEBUG("ud cannot listen on \"%s\" (%s): peers notice our death later",
                     name_.name.c_str(), ucs_status_string(status));
}

Liveness LifeSign::ask(LifeLine& line, std::uint64_t host, std::uint32_t cookie,
                       std::uint32_t qp_num) {
    if (host == 0 || host != host_ || !listener_)
        return Liveness::kUnknown;
    name_of(cookie, qp_num, &asked_.name);
    const Liveness seen = look_at(line);
    return seen == Liveness::kDead && !is_reachable_from_here() ? Liveness::kUnknown : seen;
}

Liveness LifeSign::look_at(LifeLine& line) {
    if (line.connection && ucs::unix_is_hung_up(line.connection.get()))
        close(line);  // the peer has taken it and looked at it, or is gone
    if (line.connection)
        return life_of_process(line.connection.get());
    ucs::UniqueFd connection;
    const ucs_status_t status = ucs::unix_connect(asked_, &connection);
    if (status == UCS_ERR_UNREACHABLE)
        return Liveness::kDead;
    if (status != UCS_OK)
        return Liveness::kUnknown;
    const Liveness seen = life_of_process(connection.get());
    if (kept_ < kKeptMax) {
        line.connection = std::move(connection);
        ++kept_;
    }
    return seen;
}

bool LifeSign::is_reachable_from_here() {
    ucs::UniqueFd connection;
    const ucs_status_t status = ucs::unix_connect(name_, &connection);
    drain();
    return status == UCS_OK || status == UCS_ERR_NO_RESOURCE;
}

void LifeSign::close(LifeLine& line) {
    kept_ -= line.connection ? 1 : 0;
    line.connection.reset();
}

void LifeSign::drain() {
    ucs::UniqueFd connection;
    for (unsigned i = 0;
         listener_ && i < kDrainMax && ucs::unix_accept(listener_.get(), &connection) == UCS_OK;
         ++i)
        connection.reset();
}

}  // namespace tagwire::ud
