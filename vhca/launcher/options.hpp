// SPDX-License-Identifier: BSD-3-Clause
// The command line of `tagwire-vhca`.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.hpp"

namespace tagwire::tools {

/// `tagwire-vhca run`
struct VhcaRunArguments {
    /// The libraries that the program uses: libibverbs and libmlx5 are the virtual HCA's, or the
    /// system's, above a kernel which has it.
    enum class Driver { kTagwire, kMlx5 } driver = Driver::kTagwire;
    std::vector<std::string> command;
    /// Options of the device that were given: name as in TAGWIRE_VHCA_<name>, and value.
    std::vector<std::pair<std::string, std::string>> settings;
};

/// `tagwire-vhca info`
struct VhcaInfoArguments {
    std::string json;  // file, "-" or empty
};

/// `tagwire-vhca inject`
struct VhcaInjectArguments {
    unsigned process = 0;
    std::string incident;
    unsigned device = 0;  // its index
};

/// "tagwire-vhca", or "tagwire vhca" where `tagwire` has started this program.
std::string command_name();

/// Its first word, with which messages begin.
std::string program_name();

/// Without any, help or the version was printed.
struct VhcaCommandLine {
    std::optional<VhcaRunArguments> run;
    std::optional<VhcaInjectArguments> inject;
    std::optional<VhcaInfoArguments> info;
    /// The output of --describe, which `tagwire completion` asks for.
    std::optional<std::string> description;
};

/// Reads that of `tagwire-vhca`. Throws UsageError; `*asked`, also then, is the command whose
/// --help explains it.
VhcaCommandLine parse_vhca_command_line(int argc, char** argv, std::string* asked);

}  // namespace tagwire::tools
