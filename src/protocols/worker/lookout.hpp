// SPDX-License-Identifier: BSD-3-Clause
// Something beside the transports that a worker looks at now and then, and that wakes who sleeps.
#pragma once

#include <memory>

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
};

/// The worker's progress looks, from the next call on; it has none yet. (worker.cc)
void set_lookout(WorkerCore& worker, std::unique_ptr<Lookout> lookout);

}  // namespace tagwire::proto
