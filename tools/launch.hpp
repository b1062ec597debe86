// SPDX-License-Identifier: BSD-3-Clause
// `tagwire run`: starts a program as the ranks of a job on this host. They meet by the dir
// bootstrap in a directory of their own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tagwire::tools {

inline constexpr std::uint64_t kLaunchedRanksMax = 1024;

struct LaunchArguments {
    std::uint64_t ranks = 0;
    std::optional<std::string> transports;  // TAGWIRE_TRANSPORTS of the ranks
    bool labels = false;                    // "[2] " before each line that rank 2 prints
    bool binds = false;                     // each rank to a cpu, in turn
    std::vector<std::string> command;
};

/// Returns the exit status: 0, that of the first rank that failed (128 + signal when one ended it),
/// 127 or 126 when the program cannot be started. When a rank fails the others get SIGTERM, and
/// SIGKILL after a few seconds. SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are passed on
/// unless they were ignored. Nothing that the ranks have started is left behind, processes of other
/// users apart. Throws UsageError and Failure.
int run_launch(const LaunchArguments& arguments);

}  // namespace tagwire::tools
