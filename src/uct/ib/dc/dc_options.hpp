// SPDX-License-Identifier: BSD-3-Clause
// Options of the dc transport: TAGWIRE_DC_x.
#pragma once

#include <cstdint>

#include "ucs/config/config.hpp"
#include "uct/ib/message_options.hpp"

namespace tagwire::dc {

enum class Policy : int { kDcs, kDcsQuota, kRand, kHash };

/// The number of initiators and the way endpoints share them.
struct DciOptions {
    std::uint64_t dcis;
    std::uint64_t streams;
    int policy;  // Policy
    std::uint64_t quota;
};

struct DcOptions {
    ib::MessageOptions messages;
    ib::RetryOptions retries;
    DciOptions dci;
};

const ucs::OptionTable& dc_option_table();

}  // namespace tagwire::dc
