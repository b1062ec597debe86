// SPDX-License-Identifier: BSD-3-Clause
// When the read of a rendezvous begins.
#pragma once

#include "protocols/cost/advisor.hpp"
#include "protocols/cost/timing.hpp"
#include "protocols/wire/rndv_messages.hpp"
#include "protocols/worker/endpoint.hpp"
#include "ucs/time/clock.hpp"

namespace tagwire::proto {

/// Of `bytes` bytes of the message that `rts` announces; wanted where the receiver learns from it.
inline Timing timing_of(const Endpoint& ep, const Rts& rts, std::size_t bytes) {
    if (!is_learning(ep) || !Advisor::is_learnt(bytes))
        return {};
    const bool is_of_stream = (rts.flags & kRtsOfStream) != 0;
    return {.since = ucs::ticks_now(),
            .pattern = is_of_stream ? Pattern::kStream : Pattern::kTurns};
}

}  // namespace tagwire::proto
