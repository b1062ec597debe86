// SPDX-License-Identifier: BSD-3-Clause
// Sends what waits for room of a transport: at once, and again when the transport has room.
#pragma once

#include <uct/api/uct.h>

#include <utility>

#include "protocols/request/request.hpp"

namespace tagwire::proto {

/// The waiting of one lane. Its Owner has
///     ucs_status_t drain();      sends; UCS_ERR_NO_RESOURCE: there was no room for all
///     uct_ep_h drainable();      the lane; nullptr: it cannot be used
///     void drained();            after each drain, and after the decision to wait
///     void stall();              asks that progress calls run() again
/// An operation that ends in a drain may come here again: an inner call does nothing.
template <class Owner>
class RoomWaiter {
  public:
    explicit RoomWaiter(Owner& owner) : owner_(owner) {
        pending_.owner = this;
        pending_.func = [](uct_pending_req_t* self) {
            return static_cast<OwnedBy<uct_pending_req_t, RoomWaiter>*>(self)->owner->has_room();
        };
    }
    RoomWaiter(const RoomWaiter&) = delete;
    RoomWaiter& operator=(const RoomWaiter&) = delete;

    /// The lane's pending requests were purged.
    void disarm() { is_armed_ = false; }
    /// The transport calls when it has room; until then it refuses everything.
    bool is_armed() const { return is_armed_; }
    /// The transport calls no more: run() tries at once.
    void release() {
        if (std::exchange(is_armed_, false)) {
            uct_ep_pending_purge(
                owner_.drainable(), [](uct_pending_req_t*, void*) {}, nullptr);
        }
    }

    /// A transport that has no room, and yet answers that there is nothing to wait for, is asked
    /// again in progress, so that this call returns whatever it answers.
    void run() {
        for (int round = 0; owner_.drainable() != nullptr && !is_armed_ && !is_draining_; ++round) {
            if (drain() != UCS_ERR_NO_RESOURCE)
                break;
            if (round == kRoundsMax) {
                owner_.stall();
                break;
            }
            const ucs_status_t added = uct_ep_pending_add(owner_.drainable(), &pending_, 0);
            is_armed_ = added == UCS_OK;
            if (added != UCS_ERR_BUSY)
                break;
        }
        owner_.drained();
    }

  private:
    /// Drains without room after which the transport had nothing to wait for.
    static constexpr int kRoundsMax = 2;

    ucs_status_t has_room() {
        is_armed_ = false;
        const ucs_status_t status = drain();
        is_armed_ = status != UCS_OK;
        owner_.drained();
        return status;
    }

    ucs_status_t drain() {
        if (std::exchange(is_draining_, true))
            return UCS_OK;
        const ucs_status_t status = owner_.drain();
        is_draining_ = false;
        return owner_.drainable() != nullptr ? status : UCS_OK;  // the lane may have gone
    }

    Owner& owner_;
    bool is_armed_ = false;
    bool is_draining_ = false;
    OwnedBy<uct_pending_req_t, RoomWaiter> pending_{};
};

}  // namespace tagwire::proto
