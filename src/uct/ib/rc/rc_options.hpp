// SPDX-License-Identifier: BSD-3-Clause
// Options of the rc transport: TAGWIRE_RC_x.
#pragma once

#include <cstdint>

#include "ucs/config/config.hpp"
#include "uct/ib/message_options.hpp"

namespace tagwire::rc {

struct RcOptions {
    ib::MessageOptions messages;
    ib::RetryOptions retries;
};

const ucs::OptionTable& rc_option_table();

}  // namespace tagwire::rc
