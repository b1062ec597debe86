// SPDX-License-Identifier: BSD-3-Clause
// Handlers of the messages from peers: each decodes a message, finds its endpoint, and passes it to
// the part of the worker that serves it.
#pragma once

namespace tagwire::proto {

class Rail;
class WorkerCore;

/// Messages that come over `rail` go to `worker` from now on.
void set_message_handlers(const Rail& rail, WorkerCore& worker);
/// Drops messages over `rail` from now on; Closing::has_gone tells whose peer says that it has
/// gone, too.
void drop_messages(const Rail& rail, WorkerCore& worker);

}  // namespace tagwire::proto
