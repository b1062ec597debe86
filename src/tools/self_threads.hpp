// SPDX-License-Identifier: BSD-3-Clause
// `--threads N` at level msg: threads of one process, each with a worker that sends to itself. What
// they share is what the library shares between workers, so that the sum over that of one thread
// tells what that costs.
#pragma once

#include "tools/perf.hpp"

namespace tagwire::tools {

/// Measures and tells. Throws Failure or UsageError.
void run_self_threads(const PerfPlan& plan);

}  // namespace tagwire::tools
