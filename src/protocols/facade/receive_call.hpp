// SPDX-License-Identifier: BSD-3-Clause
// Calls that receive have this in common: their arguments are checked, then the worker's receiver
// has them. Each function logs the wrong argument, as `call`.
#pragma once

#include "protocols/eager/receiver.hpp"

namespace tagwire::proto {

class Worker;
class WorkerCore;

/// nullptr: no message of this worker that the program has.
Unexpected* check_message(const char* call, const WorkerCore& worker, tw_message_h message);
/// `source` may be nullptr.
tw_status_t check_source(const char* call, const WorkerCore& worker, tw_ep_h source);
/// `wanted.message` may be anything.
tw_status_t receive_long(const char* call, Worker& worker, Incoming wanted);
/// As receive_long(), into the list of `wanted`; its length is computed here.
tw_status_t receive_list(const char* call, tw_worker_h worker, Incoming wanted);

}  // namespace tagwire::proto
