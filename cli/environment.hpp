// SPDX-License-Identifier: BSD-3-Clause
// A variable of the environment as it is now. Options of the library are read by the library.
#pragma once

#include <unistd.h>

#include <string_view>

namespace tagwire::tools {

/// Empty when it is not set.
inline std::string_view environment_value(std::string_view name) {
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string_view both(*entry);
        if (both.starts_with(name) && both.substr(name.size(), 1) == "=")
            return both.substr(name.size() + 1);
    }
    return {};
}

}  // namespace tagwire::tools
