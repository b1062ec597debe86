// SPDX-License-Identifier: BSD-3-Clause
// The processes that an interface talks to, and their deaths.
#pragma once

#include <memory>

#include "ucs/memory/reserve.hpp"
#include "uct/sm/event_set.hpp"
#include "uct/sm/force.hpp"
#include "uct/sm/link.hpp"

namespace tagwire::sm {

class PeerProcesses {
  public:
    PeerProcesses(EventSet& events, DeathMode mode) : events_(events), mode_(mode) {}

    /// The link's peer is known: its death becomes an event.
    void join(Link& link);
    void leave(Link& link);
    /// The process of an event, if it has died; null: it lives, or is gone from here.
    PeerProcess* find_dead(std::uint32_t id);
    [[nodiscard]] std::size_t fd_count() const;

  private:
    PeerProcess* find_alive(pid_t pid);
    void open_pidfd(const Link& link, PeerProcess& process) const;

    EventSet& events_;
    DeathMode mode_;
    std::uint32_t serial_ = 0;
    ucs::ReserveHashMap<std::uint32_t, std::unique_ptr<PeerProcess>> processes_;  // by id
};

}  // namespace tagwire::sm
