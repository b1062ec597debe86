// SPDX-License-Identifier: BSD-3-Clause
// Messages of peers: each is decoded, its endpoint is found, and it goes to the part of the worker
// that it is for.
#pragma once

namespace tagwire::proto {

class Rail;
class WorkerCore;

/// Messages that come over `rail` go to `worker` from now on.
void set_message_handlers(const Rail& rail, WorkerCore& worker);

}  // namespace tagwire::proto
