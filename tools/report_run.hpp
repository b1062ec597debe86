// SPDX-License-Identifier: BSD-3-Clause
// `tagwire report`: a program in Python, in the folder `report`, which runs this command for each
// measurement.
#pragma once

#include <optional>
#include <string>

namespace tagwire::tools {

struct ReportArguments {
    std::string file;                    // the page
    bool quick = false;                  // few sizes, short runs
    std::optional<std::string> compare;  // "ucx", "libfabric", "openmpi" or several with commas
    std::string command;                 // how it was called, for the page
};

/// Becomes that program. `program`: this command. Throws Failure when it cannot be started.
[[noreturn]] void run_report(const ReportArguments& arguments, const std::string& program);

}  // namespace tagwire::tools
