// SPDX-License-Identifier: BSD-3-Clause
// The pending requests of all endpoints of an interface. An endpoint has a group only while
// requests of it wait, and until the queue is empty; so endpoints stay small.
//
// Threads: owner of the interface.
#pragma once

#include <cstdint>

#include "ucs/memory/mpool.hpp"
#include "ucs/memory/reserve.hpp"
#include "uct/ib/ep_table.hpp"
#include "uct/pending.hpp"

namespace tagwire::ib {

class PendingGroups {
  public:
    ucs_status_t init();

    /// UCS_ERR_NO_MEMORY: there is none for a group.
    ucs_status_t add(MessageEp& ep, uct_pending_req_t* request);
    /// The endpoint is the next whose requests run.
    void put_first(MessageEp& ep);
    template <class Callback>
    void purge(uct::PendingGroup& group, Callback&& callback) {
        queue_.purge(group, std::forward<Callback>(callback));
    }
    [[nodiscard]] bool empty() const { return queue_.empty(); }
    unsigned dispatch();

    void release(MessageEp& ep);
    [[nodiscard]] bool has_groups() const { return !grouped_.empty(); }
    /// When no request waits.
    void release_all(const EpTable& eps);

  private:
    uct::PendingQueue queue_;
    ucs::ObjectPool<uct::PendingGroup> pool_;
    ucs::ReserveVector<std::uint32_t> grouped_;  // ids of endpoints that have one of them
};

}  // namespace tagwire::ib
