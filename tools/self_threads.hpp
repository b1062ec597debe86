// SPDX-License-Identifier: BSD-3-Clause
// `--threads N` at level msg: threads of one process that send to themselves, each over its own
// worker or all over one. The ratio of their sum to the rate of one thread shows the cost of what
// they share. With --pollers further threads do nothing but progress the shared worker.
#pragma once

#include "tools/perf.hpp"

namespace tagwire::tools {

/// Measures and tells. Throws Failure or UsageError.
void run_self_threads(PerfPlan plan);

}  // namespace tagwire::tools
