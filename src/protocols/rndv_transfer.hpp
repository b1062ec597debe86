// SPDX-License-Identifier: BSD-3-Clause
// A rendezvous whose data one side moves: a receive that reads, or a send that writes.
//
// It belongs to its request until end_transfer(); pieces that are under way then end by themselves,
// and the last one takes it away.
#pragma once

#include <uct/api/uct.h>

#include <cstdint>

#include "protocols/reg_cache.hpp"
#include "protocols/request.hpp"

namespace tagwire::proto {

struct RndvTransfer {
    bool is_put = false;
    uct_rkey_bundle_t key{};  // of the peer's buffer
    uct_component_h component = nullptr;
    uct_mem_h memh = UCT_MEM_HANDLE_NULL;  // of our buffer
    CachedRegion* cached = nullptr;        // whose it is
    RegCache* cache = nullptr;
    std::uint64_t address = 0;  // of the peer's
    OwnedBy<uct_completion_t, RndvTransfer> done{};
    Request* request = nullptr;  // null: it has ended, and only the pieces are waited for

    RndvTransfer() = default;
    RndvTransfer(const RndvTransfer&) = delete;
    RndvTransfer& operator=(const RndvTransfer&) = delete;
    ~RndvTransfer() {
        if (cached != nullptr)
            cache->release(*cached, true);
        if (component != nullptr)
            uct_rkey_release(component, &key);
    }
};

}  // namespace tagwire::proto
