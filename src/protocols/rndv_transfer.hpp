// SPDX-License-Identifier: BSD-3-Clause
// A rendezvous whose data one side moves: a receive that reads, or a send that writes.
//
// It belongs to its request until end_transfer(); pieces that are under way then end by themselves,
// those of other rails too, and the last one frees it.
#pragma once

#include <uct/api/uct.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "protocols/reg_cache.hpp"
#include "protocols/request.hpp"
#include "ucs/memory/reserve.hpp"

namespace tagwire::proto {

struct StripePart;

/// The most that one read or write moves: a longer one would keep one peer's progress to itself.
inline constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

struct RndvTransfer : ucs::FromReserve {
    bool is_put = false;
    uct_rkey_bundle_t key{};  // of the peer's buffer
    uct_component_h component = nullptr;
    uct_mem_h memh = UCT_MEM_HANDLE_NULL;  // of our buffer
    CachedRegion* cached = nullptr;        // whose it is
    RegCache* cache = nullptr;
    std::uint64_t address = 0;  // of the peer's
    std::uint64_t end = 0;      // where the lane's part ends; all of it, unless it is divided
    OwnedBy<uct_completion_t, RndvTransfer> done{};
    Request* request = nullptr;     // null: it has ended, and only the pieces are waited for
    ucs_status_t ending = UCS_OK;   // not UCS_OK: the request ends so when the pieces have
    Endpoint* failed_ep = nullptr;  // ... whose failure is told after that

    // Parts that other rails move (stripe.hpp), and the status of all parts that have ended so far.
    ucs::ReserveVector<std::unique_ptr<StripePart>> parts;
    ucs_status_t status = UCS_OK;
    bool lane_has_ended = false;

    RndvTransfer();
    RndvTransfer(const RndvTransfer&) = delete;
    RndvTransfer& operator=(const RndvTransfer&) = delete;
    ~RndvTransfer();
    /// Pieces are under way.
    bool is_busy() const;
    bool has_lost() const;
    /// Pieces of what has been given up have ended.
    void idle();
};

}  // namespace tagwire::proto
