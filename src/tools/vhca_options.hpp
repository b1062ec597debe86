// SPDX-License-Identifier: BSD-3-Clause
// The subcommands of `tagwire vhca`, which are those of `tagwire-vhca`, too.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
}

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

struct VhcaArguments {
    VhcaRunArguments run;
    VhcaInfoArguments info;
};

/// Gives `app` its subcommands run and info. `*arguments` outlives it.
void add_vhca_commands(CLI::App* app, VhcaArguments* arguments);

/// "tagwire vhca run": the subcommands that were understood.
std::string asked_of(const CLI::App& app);

}  // namespace tagwire::tools
