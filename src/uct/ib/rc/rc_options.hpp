// SPDX-License-Identifier: BSD-3-Clause
// Options of the rc transport: TAGWIRE_RC_x.
#pragma once

#include <cstdint>

#include "ucs/config/config.hpp"
#include "uct/ib/message_options.hpp"

namespace tagwire::rc {

struct RcOptions {
    ib::MessageOptions messages;
    std::uint64_t timeout_ns;
    std::uint64_t retry_count;
    std::uint64_t rnr_retry;
    std::uint64_t rnr_timer_ns;
    std::uint64_t keepalive_ns;  // 0: none
};

const ucs::OptionTable& rc_option_table();

}  // namespace tagwire::rc
