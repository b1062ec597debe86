// SPDX-License-Identifier: BSD-3-Clause
// The flush of all endpoints of a worker: one request of the program, and a part of it for each
// endpoint that has something to wait for.
#pragma once

#include "protocols/api/tw_def.h"

namespace tagwire::proto {

class Worker;

/// tw_worker_flush(), with the lock of the worker; `level` is one of a flush.
tw_status_t flush_endpoints(Worker& worker, tw_flush_level_t level, const tw_op_t* op,
                            tw_request_h* request_p);

}  // namespace tagwire::proto
