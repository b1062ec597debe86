// SPDX-License-Identifier: BSD-3-Clause
// When the read of a rendezvous begins.
#pragma once

#include "protocols/cost/advisor.hpp"
#include "protocols/cost/timing.hpp"
#include "protocols/wire/rndv_messages.hpp"
#include "ucs/time/clock.hpp"

namespace tagwire::proto {

/// The timing of a read of `bytes` bytes, which begins, of the message that `rts` announces.
/// `is_learning`: the receiver may learn from messages of the endpoint.
inline Timing timing_of(bool is_learning, const Rts& rts, std::size_t bytes) {
    if (!is_learning || !Advisor::is_learnt(bytes))
        return {};
    const bool is_of_stream = (rts.flags & kRtsOfStream) != 0;
    return {.since = ucs::ticks_now(),
            .pattern = is_of_stream ? Pattern::kStream : Pattern::kTurns};
}

}  // namespace tagwire::proto
