// SPDX-License-Identifier: BSD-3-Clause
// Notices of a worker about its endpoints and peers: failures, and peers that come and go.
//
// A transport may find out in any call that a peer has gone. Its notice waits for progress, behind
// the ends of operations that waited for progress before it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "protocols/api/tw_worker.h"
#include "protocols/index/fifo.hpp"
#include "protocols/request/callback_port.hpp"
#include "protocols/worker/peer_endpoint.hpp"

namespace tagwire::proto {

class Notices {
  public:
    Notices(const CallbackPort& callbacks, const tw_worker_params_t& params)
        : callbacks_(callbacks), params_(params) {}
    Notices(const Notices&) = delete;
    Notices& operator=(const Notices&) = delete;

    /// `after`: how many ends the worker has told of, ever, when this may be told.
    void add_failure(PeerEndpoint& ep, tw_status_t status, std::uint64_t after);
    void add_event(std::uint64_t worker_id, tw_peer_event_t event, tw_status_t status,
                   std::uint64_t after);
    /// The endpoint goes: its failure is not told any more.
    void drop(PeerEndpoint& ep);

    bool empty() const { return queue_.empty(); }
    /// Something may be told after `told` ends: the first, and what it is told of has ended.
    bool is_due(std::uint64_t told);
    /// Tells what may be told after `told` ends, but nothing that is added meanwhile.
    unsigned run(std::uint64_t told);

  private:
    struct Notice {
        PeerEndpoint* ep = nullptr;  // of a failure; it may have gone
        std::uint64_t worker_id = 0;
        std::uint64_t after = 0;
        tw_peer_event_t event = TW_PEER_UP;
        tw_status_t status = TW_OK;
        bool is_event = false;
    };

    void tell(const Notice& notice) const;

    const CallbackPort& callbacks_;
    const tw_worker_params_t& params_;
    Fifo<Notice> queue_;
};

}  // namespace tagwire::proto
