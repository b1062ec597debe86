// SPDX-License-Identifier: BSD-3-Clause
// The command line of `tagwire`.
#pragma once

#include <optional>
#include <string>

#include "tools/perf.hpp"

namespace tagwire::tools {

struct InfoArguments {
    std::string what;  // devices, config, build or empty: all
    std::string json;  // file, "-" or empty
};

struct CommandLine {
    /// Help or the version was printed.
    bool done = false;
    std::optional<PerfArguments> perf;
    std::optional<InfoArguments> info;
};

/// Throws UsageError.
CommandLine parse_command_line(int argc, char** argv);

}  // namespace tagwire::tools
