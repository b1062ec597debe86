// SPDX-License-Identifier: BSD-3-Clause
// The subcommands of `tagwire vhca`, and the command line of `tagwire-vhca`, which has the same.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/cli.hpp"

namespace tagwire::tools {

/// `tagwire vhca run`
struct VhcaRunArguments {
    /// The libraries that the program uses: libibverbs and libmlx5 are the virtual HCA's, or the
    /// system's, above a kernel which has it.
    enum class Driver { kTagwire, kMlx5 } driver = Driver::kTagwire;
    std::vector<std::string> command;
    /// Options of the device that were given: name as in TAGWIRE_VHCA_<name>, and value.
    std::vector<std::pair<std::string, std::string>> settings;
};

/// `tagwire vhca info`
struct VhcaInfoArguments {
    std::string json;  // file, "-" or empty
};

/// `tagwire vhca inject`
struct VhcaInjectArguments {
    unsigned process = 0;
    std::string incident;
    unsigned device = 0;  // its index
};

struct VhcaArguments {
    VhcaRunArguments run;
    VhcaInjectArguments inject;
    VhcaInfoArguments info;
};

/// Gives `app` its subcommands run, inject and info. `*arguments` outlives it.
void add_vhca_commands(const Command& app, VhcaArguments* arguments);

/// Without any, help or the version was printed.
struct VhcaCommandLine {
    std::optional<VhcaRunArguments> run;
    std::optional<VhcaInjectArguments> inject;
    std::optional<VhcaInfoArguments> info;
};

/// Reads that of `tagwire-vhca`. Throws UsageError; `*asked`, also then, is the command whose
/// --help explains it.
VhcaCommandLine parse_vhca_command_line(int argc, char** argv, std::string* asked);

}  // namespace tagwire::tools
