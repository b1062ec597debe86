// SPDX-License-Identifier: BSD-3-Clause
// Values of option_table(): how processes of a job find each other.
#pragma once

#include <cstdint>

#include "ucs/config/config.hpp"

namespace tagwire::bootstrap {

inline constexpr std::uint64_t kRankNotGiven = UINT64_MAX;

struct Options {
    ucs::OptionString method;
    std::uint64_t rank;  // kRankNotGiven
    std::uint64_t size;  // 0: not given
    std::uint64_t timeout_ns;
    ucs::OptionString job;
};

const ucs::OptionTable& option_table();

}  // namespace tagwire::bootstrap
