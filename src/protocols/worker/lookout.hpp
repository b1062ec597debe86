// SPDX-License-Identifier: BSD-3-Clause
// Something beside the transports that a worker looks at now and then, and that wakes who sleeps.
#pragma once

#include <cstdint>
#include <memory>

#include "protocols/api/tw_def.h"

namespace tagwire::proto {

class WorkerCore;

class Lookout {
  public:
    Lookout() = default;
    Lookout(const Lookout&) = delete;
    Lookout& operator=(const Lookout&) = delete;
    virtual ~Lookout() = default;

    /// Inside progress; may call the program. Answers how many events there were.
    virtual unsigned look() = 0;
    /// Readable while there is something to see.
    virtual int fd() const = 0;
    /// The connection to a worker has ended. Calls nothing of the program.
    virtual void peer_ended(std::uint64_t /*worker_id*/, tw_status_t /*status*/) {}
};

/// The kinds of lookouts, by their subject.
enum class LookoutOf : std::uint8_t { kConnections, kCalls, kCount };

/// The worker's progress looks, from the next call on; it has none of this kind yet. (worker.cc)
void set_lookout(WorkerCore& worker, LookoutOf kind, std::unique_ptr<Lookout> lookout);

}  // namespace tagwire::proto
