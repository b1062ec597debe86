// SPDX-License-Identifier: BSD-3-Clause
// The options that rc and dc share: TAGWIRE_RC_x, TAGWIRE_DC_x.
#pragma once

#include <cstdint>

namespace tagwire::ib {

enum class TagMatching : int { kAuto, kDevice, kSoftware };

struct MessageOptions {
    std::uint64_t tx_depth;      // requests in a send queue
    std::uint64_t tx_cq_depth;   // of all send queues
    std::uint64_t tx_buffers;    // for packed data, of all endpoints
    std::uint64_t inline_bytes;  // wanted
    std::uint64_t rx_depth;      // buffers posted
    std::uint64_t rx_held;       // more that the user may hold
    std::uint64_t seg_bytes;     // the longest bcopy message
    std::uint64_t credits;       // unprocessed messages of one peer
    std::uint64_t reads;         // outstanding on a queue pair, either side
    std::uint64_t keepalive_ns;  // 0: none
    int tag_matching;            // TagMatching
    std::uint64_t tag_depth;     // posted receives
    std::uint64_t rndv_max;      // outstanding rendezvous sends of the interface
};

/// When a peer is given up.
struct RetryOptions {
    std::uint64_t timeout_ns;
    std::uint64_t retry_count;
    std::uint64_t rnr_retry;
    std::uint64_t rnr_timer_ns;
};

}  // namespace tagwire::ib
