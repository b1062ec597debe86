// SPDX-License-Identifier: BSD-3-Clause
// Polite progress of a domain with a lock: the thread that polls in vain gives its processor away
// where it does not have it. Workers of a domain without a lock do so inside progress.
//
//   with the lock:     progress --> a worker asks (Ep::away) --> take(): a nap is armed
//   without the lock:  go(): a yield, or a nap until something comes to one of the endpoints
//   with the lock:     a second poll: a caller that yields by itself when nothing was found would
//                      give away what the end of the nap has given it
//
// A nap ends for every endpoint of the domain: a program may poll several queues in one loop.
#pragma once

#include <poll.h>

#include <array>
#include <cstddef>
#include <span>

#include "provider.hpp"

namespace tagwire::fi {

class Domain;
class Ep;

/// On the stack of a call that has polled.
class Away {
  public:
    explicit Away(Domain& domain) : domain_(domain) {}
    Away(const Away&) = delete;
    Away& operator=(const Away&) = delete;

    /// With the lock, behind a poll of these endpoints that found nothing.
    void take(std::span<Ep* const> polled);
    /// Without the lock. False: nobody has asked.
    bool go();

  private:
    /// A domain with more endpoints has no naps.
    static constexpr std::size_t kNapMax = 16;

    bool arm();

    Domain& domain_;
    Ep* asking_ = nullptr;
    tw_away_t how_ = TW_AWAY_YIELD;
    std::array<pollfd, kNapMax> slept_on_;  ///< As many as the domain has endpoints; for a nap.
    std::size_t count_ = 0;
};

}  // namespace tagwire::fi
