// SPDX-License-Identifier: BSD-3-Clause
// Atomic operations of peers on memory of this side. An endpoint has one.
//
//     kAtomicAsk --> serve() --> kAtomicTell, by the endpoint's Outbox
//
// 1. A request is carried out when it arrives, so that those of one peer take effect in the order
//    of its calls, and no peer waits for another.
// 2. A request is checked as a whole (form, keys, rights, ranges), then carried out as a whole; it
//    has one reply.
// 3. Nothing is kept of a request. A reply that has to wait is the Outbox's; a peer that does not
//    take its replies is served no more.
// 4. All of this runs with the domain's lock, in progress.
#pragma once

#include <tagwire.h>

#include <cstddef>
#include <cstdint>

#include "atomic_messages.hpp"
#include "provider.hpp"

namespace tagwire::fi {

class Ep;

class AtomicServer {
  public:
    explicit AtomicServer(Ep& owner) : owner_(owner) {}
    AtomicServer(const AtomicServer&) = delete;
    AtomicServer& operator=(const AtomicServer&) = delete;

    /// Prepares the endpoint's worker for requests, before anybody can know its address.
    tw_status_t listen();

  private:
    static void on_request(void* arg, tw_am_t* am);
    void serve(std::uint64_t source, AtomicBytes header, AtomicBytes data);
    int carry_out(const AtomicRequest& request, std::byte* results);

    Ep& owner_;
};

}  // namespace tagwire::fi
