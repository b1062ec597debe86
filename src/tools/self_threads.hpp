// SPDX-License-Identifier: BSD-3-Clause
// `--threads N` at level msg: threads of one process, each with a worker that sends to itself. They
// share only what the library shares between workers, so the ratio of their sum to the rate of one
// thread shows the cost of that.
#pragma once

#include "tools/perf.hpp"

namespace tagwire::tools {

/// Measures and tells. Throws Failure or UsageError.
void run_self_threads(const PerfPlan& plan);

}  // namespace tagwire::tools
