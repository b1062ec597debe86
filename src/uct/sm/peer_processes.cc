// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/peer_processes.hpp"

#include <algorithm>
#include <utility>

namespace tagwire::sm {

void PeerProcesses::join(Link& link) {
    if (link.peer.pid == events_.pid())
        return;  // its end is ours
    auto opened = std::make_unique<PeerProcess>();
    opened->pid = link.peer.pid;
    open_pidfd(link, *opened);
    PeerProcess* process = opened->pidfd ? find_alive(link.peer.pid) : nullptr;
    if (process == nullptr) {
        process = opened.get();
        process->id = ++serial_;
        if (process->pidfd)
            events_.watch(process->pidfd.get(), Watched::kProcess, process->id);
        processes_.emplace(process->id, std::move(opened));
    }
    ++process->link_count;
    link.process = process;
}

// The process that has this pid and lives. Two of the same pid are the same process only where both
// live, and where the pid is one of this namespace.
PeerProcess* PeerProcesses::find_alive(pid_t pid) {
    for (const auto& [id, process] : processes_)
        if (pid > 0 && process->pid == pid && process->pidfd &&
            ucs::pidfd_is_alive(process->pidfd.get()))
            return process.get();
    return nullptr;
}

void PeerProcesses::open_pidfd(const Link& link, PeerProcess& process) const {
    const auto attempt = [&](ucs::DeathSource source) {
        return ucs::open_peer_pidfd(source, link.socket.get(), link.peer.pid, &process.pidfd) ==
               UCS_OK;
    };
    if ((mode_ == DeathMode::kAuto || mode_ == DeathMode::kPeerPidfd) &&
        attempt(ucs::DeathSource::kPeerPidfd)) {
        process.source = "SO_PEERPIDFD";
        return;
    }
    if ((mode_ == DeathMode::kAuto || mode_ == DeathMode::kPidfd) &&
        attempt(ucs::DeathSource::kPidfdOpen)) {
        process.source = "pidfd_open";
    }
}

void PeerProcesses::leave(Link& link) {
    PeerProcess* process = std::exchange(link.process, nullptr);
    if (process == nullptr || --process->link_count > 0)
        return;
    if (process->pidfd)
        events_.unwatch(process->pidfd.get());
    processes_.erase(process->id);
}

PeerProcess* PeerProcesses::find_dead(std::uint32_t id) {
    const auto found = processes_.find(id);
    if (found == processes_.end() || ucs::pidfd_is_alive(found->second->pidfd.get()))
        return nullptr;
    events_.unwatch(found->second->pidfd.get());
    return found->second.get();
}

std::size_t PeerProcesses::fd_count() const {
    std::size_t count = 0;
    for (const auto& [id, process] : processes_)
        count += process->pidfd ? 1 : 0;
    return count;
}

}  // namespace tagwire::sm
