// SPDX-License-Identifier: BSD-3-Clause
// The lane of an endpoint: where its messages go, and whether the peer wants them. Endpoint writes
// it, and its parts read it.
#pragma once

#include <uct/api/uct.h>

#include <cstdint>

#include "protocols/cost/copy_chooser.hpp"
#include "protocols/port/lane_port.hpp"
#include "protocols/request/rail.hpp"
#include "ucs/debug/check.hpp"

namespace tagwire::proto {

struct LaneState {
    uct_ep_h ep = nullptr;  // of the transport; nullptr: there is none
    Rail* over = nullptr;
    std::uint8_t peer_rail = 0;            // the rail of the peer that it leads to
    std::uint8_t peer_domain = UINT8_MAX;  // the memory domain of that, as the peer numbers them
    EpState state = EpState::kConnecting;
    ucs_status_t failure = UCS_OK;
    bool eager_is_paused = false;  // the peer wants requests of rendezvous only
    bool is_paused = false;        // the peer wants no message

    bool is_ready() const { return state == EpState::kReady; }
    /// With is_ready().
    Rail& rail() const {
        TW_ASSERT(over != nullptr);
        return *over;
    }
    /// Messages over it are learnt from.
    bool is_learning() const { return is_ready() && rail().is_learning(); }
};

/// Copies into and out of shared memory; with kReady.
struct LaneCopies {
    CopyChooser in;
    CopyRule out;
};

}  // namespace tagwire::proto
