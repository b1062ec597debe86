// SPDX-License-Identifier: BSD-3-Clause
// Options of the ud transport: TAGWIRE_UD_x.
#pragma once

#include <cstdint>

#include "ucs/config/config.hpp"

namespace tagwire::ud {

struct UdOptions {
    std::uint64_t tx_depth;    // requests in the send queue
    std::uint64_t tx_buffers;  // of each of two sizes
    std::uint64_t inline_bytes;
    std::uint64_t rx_depth;
    std::uint64_t rx_held;  // more that the user may hold
    std::uint64_t window;   // packets of a connection that are not acknowledged
    std::uint64_t timeout_ns;
    std::uint64_t timeout_max_ns;
    std::uint64_t peer_timeout_ns;
    std::uint64_t remote_timeout_ns;
    std::uint64_t ack_delay_ns;
    std::uint64_t keepalive_ns;
};

const ucs::OptionTable& ud_option_table();

}  // namespace tagwire::ud
