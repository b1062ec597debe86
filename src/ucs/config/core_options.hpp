// SPDX-License-Identifier: BSD-3-Clause
// Values of core_option_table(): what concerns the library as a whole.
#pragma once

#include "ucs/config/config.hpp"

namespace tagwire::ucs {

struct CoreOptions {
    int log_level;  // a LogLevel
    OptionString log_file;
};

}  // namespace tagwire::ucs
