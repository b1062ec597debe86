// SPDX-License-Identifier: BSD-3-Clause
// Finds out whether the process of a silent peer lives: acknowledgements come from a peer's
// progress, so silence alone cannot tell a stopped process from a dead one.
//
// Every interface listens on an abstract unix socket named by its cookie and queue pair number, and
// tells in its address which host it is on (machine and network namespace, where such a name is
// seen). A peer that wants to know connects there:
//
//   refused                     the interface is gone: dead
//   connected, process ended    a child of it has the socket: dead
//   connected, process there    alive, however long it was stopped
//   anything else               unknown, as is every peer on another host
//
// Threads: owner of the interface. Nothing waits; nothing is asked on the data path.
// Invariants
//  (1) A peer counts as dead only if from here and now this interface's own name can be reached: a
//      thread that has changed its network namespace, or a filter that refuses, kills nobody.
//  (2) A connection is kept until its peer was asked again, at most kKeptMax of them, so that who
//      asks often does not fill the queue of a peer that is stopped.
#pragma once

#include <cstdint>

#include "ucs/sys/fd.hpp"
#include "ucs/sys/unix_socket.hpp"
#include "uct/ib/ud/ud_sender.hpp"

namespace tagwire::ud {

/// A number of this machine and network namespace; 0 when it cannot be found out.
std::uint64_t host_id();

/// State that is kept for a peer between two questions.
struct LifeLine {
    ucs::UniqueFd connection;
};

class LifeSign {
  public:
    static constexpr unsigned kKeptMax = 256;

    /// Listens. When that is not possible, peers see us as they see those of another host.
    void open(std::uint32_t cookie, std::uint32_t qp_num);
    /// The host as the address tells it: 0 where nobody could connect.
    [[nodiscard]] std::uint64_t told_host() const { return listener_ ? host_ : 0; }

    /// Asks about the peer with that address.
    Liveness ask(LifeLine& line, std::uint64_t host, std::uint32_t cookie, std::uint32_t qp_num);
    /// The peer is not needed any more.
    void close(LifeLine& line);
    /// Ends connections of those who have asked about us.
    void drain();

  private:
    bool is_reachable_from_here();
    Liveness look_at(LifeLine& line);

    std::uint64_t host_ = 0;
    ucs::UnixAddress name_;
    ucs::UnixAddress asked_;  // of whom ask() asks; has its memory
    ucs::UniqueFd listener_;
    unsigned kept_ = 0;
};

}  // namespace tagwire::ud
