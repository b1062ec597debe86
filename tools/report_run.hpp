// SPDX-License-Identifier: BSD-3-Clause
// `tagwire report`: measures the transports of this machine and writes one page with plots of it.
#pragma once

#include <optional>
#include <string>

namespace tagwire::tools {

struct ReportArguments {
    std::string file;                    // the page
    bool quick = false;                  // few sizes, short runs
    std::optional<std::string> compare;  // "ucx", "libfabric" or both with a comma
    std::string command;                 // how it was called, for the page
};

/// `program`: the `tagwire` command, which is run for each measurement. False when a measurement of
/// this library failed: the page says which. Throws UsageError for unknown names, Failure when the
/// page cannot be drawn or written.
bool run_report(const ReportArguments& arguments, const std::string& program);

}  // namespace tagwire::tools
