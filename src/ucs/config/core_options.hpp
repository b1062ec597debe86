// SPDX-License-Identifier: BSD-3-Clause
// Values of core_option_table() and progress_option_table(): what concerns the library as a whole.
#pragma once

#include "ucs/config/config.hpp"

namespace tagwire::ucs {

enum class ProgressMode : int { kPolite, kSpin };

struct CoreOptions {
    int log_level;  // a LogLevel
    OptionString log_file;
};

struct ProgressOptions {
    int mode;  // a ProgressMode
};

}  // namespace tagwire::ucs
