// SPDX-License-Identifier: BSD-3-Clause
// An interface's part in polite progress: it sees whether its peers run, lets them see where this
// thread waits, and can be slept on for a nap. Interfaces that have none know nothing of their
// peers, and wake by their descriptor only.
//
// Threads: the owner of the interface.
#pragma once

#include <uct/api/tagwire_uct.h>
#include <uct/api/uct.h>

#include <cstddef>
#include <cstdint>

#include "uct/politeness.hpp"

namespace tagwire::uct {

class PeerWatch {
  public:
    using Peers = Politeness::Peers;

    virtual ~PeerWatch() = default;

    /// The watch sees processes. False: its answers are the same at all times.
    [[nodiscard]] virtual bool sees_peers() const { return true; }
    /// Number of peers, or more.
    [[nodiscard]] virtual std::size_t peers() const { return 0; }
    /// Whether those that the interface is connected with run.
    virtual Peers look_at_peers(const Whereabouts& here) = 0;
    /// As look_at_peers(), of the peer of one endpoint.
    virtual Peers look_at_peer(uct_ep_h ep, const Whereabouts& here) = 0;
    /// A number that changes when something comes or ends; 0: the interface has one itself.
    [[nodiscard]] virtual std::uint64_t moved() const { return 0; }
    /// Lets peers see where this thread waits, and whether it gives its processor away now.
    virtual void tell_wait(const Whereabouts&, bool) {}
    /// A peer is known to have had the processor since `begin`.
    virtual bool had_processor(const Whereabouts&, std::uint64_t) { return false; }
    /// The worker naps now and then from now on, or does no more.
    virtual void expect_naps(bool) {}
    /// Arms the interface for a nap in which the thread sleeps on a word, which it sets.
    /// UCS_ERR_BUSY: something is to be done. UCS_ERR_UNSUPPORTED: it wakes by its descriptor only.
    virtual ucs_status_t prepare_nap(tagwire_uct_nap_t*) { return UCS_ERR_UNSUPPORTED; }
    virtual void end_nap() {}
    /// Wakes the threads that sleep on the word. Any thread.
    virtual void wake_nap() {}
};

}  // namespace tagwire::uct
