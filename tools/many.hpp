// SPDX-License-Identifier: BSD-3-Clause
// many_to_one and all_to_all: a job of any number of processes, which meet by the bootstrap. Those
// of a launcher (mpirun, srun, or TAGWIRE_BOOTSTRAP by hand) are its ranks; without one the command
// starts itself again once per rank, with a directory of this host to meet in.
#pragma once

#include "tools/perf.hpp"

namespace tagwire::tools {

/// Ranks that the command itself starts; a launcher may start more.
inline constexpr std::uint64_t kStartedRanksMax = 256;
inline constexpr std::uint64_t kDefaultManyPeers = 3;

/// The exit status. Rank 0 tells the results. Throws Failure or UsageError.
int run_many(const PerfPlan& plan);

/// Starts this process's command line once per rank and waits for them. When one fails the others
/// have a few seconds to end by themselves, then they are killed, as they are when this process is
/// told to end. 0, or 2 when all say wrong usage; throws Failure that names who failed.
int start_ranks(std::uint64_t ranks, const std::vector<int>& cpus);

}  // namespace tagwire::tools
