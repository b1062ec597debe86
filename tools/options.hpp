// SPDX-License-Identifier: BSD-3-Clause
// The command line of `tagwire`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/explain.hpp"
#include "tools/launch.hpp"
#include "tools/perf.hpp"
#include "tools/report_run.hpp"
#include "tools/soak.hpp"
#include "tools/tune.hpp"

namespace tagwire::tools {

struct InfoArguments {
    std::string what;  // devices, config, build or empty: all
    std::string json;  // file, "-" or empty
};

struct CommandLine {
    /// Help or the version was printed.
    bool done = false;
    bool lists_tests = false;         // perf --list
    std::vector<PerfArguments> perf;  // one for each test
    std::optional<InfoArguments> info;
    std::optional<ExplainArguments> explain;
    std::optional<TuneArguments> tune;
    std::optional<ReportArguments> report;
    std::optional<SoakArguments> soak;
    std::optional<LaunchArguments> launch;
    std::optional<std::string> completion;         // the script
    std::optional<std::vector<std::string>> vhca;  // the words of tagwire-vhca
};

/// Throws UsageError. `*asked`, also then: the command whose --help explains it, "tagwire perf".
CommandLine parse_command_line(int argc, char** argv, std::string* asked);

}  // namespace tagwire::tools
