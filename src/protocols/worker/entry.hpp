// SPDX-License-Identifier: BSD-3-Clause
// Guards of calls of the API, for as long as they are inside a worker.
#pragma once

#include "protocols/worker/worker_core.hpp"
#include "ucs/log/listeners.hpp"

namespace tagwire::proto {

/// Held by every call of the API on a worker but while callbacks run (Unlocked).
class Entry {
  public:
    explicit Entry(WorkerCore& worker) : worker_(worker) {
        if (worker.guards == 0)
            return;
        if (worker.is_heard()) [[unlikely]]
            ucs::detail::begin_log_scope(log_frame_, worker.context().log_id());
        if (worker.is_multi)
            worker.enter();
    }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    ~Entry() {
        if (worker_.guards == 0)
            return;
        if (worker_.is_multi)
            worker_.leave();
        if (worker_.is_heard()) [[unlikely]]
            ucs::detail::end_log_scope(log_frame_);  // without the lock
    }

  private:
    WorkerCore& worker_;
    ucs::detail::LogFrame log_frame_;  // if it is heard
};

/// Held for moments by calls that end no operation and leave nothing to progress.
class BriefEntry {
  public:
    explicit BriefEntry(WorkerCore& worker) : worker_(worker) {
        if (worker.is_multi)
            worker.lock.lock_briefly();
    }
    BriefEntry(const BriefEntry&) = delete;
    BriefEntry& operator=(const BriefEntry&) = delete;
    ~BriefEntry() {
        if (worker_.is_multi)
            worker_.lock.unlock_briefly();
    }

  private:
    WorkerCore& worker_;
};

/// A call has left work to progress: who sleeps is woken. (waiting.cc)
void settle_waiting(WorkerCore& worker);

/// Held by every call that may leave work to progress: behind Entry, it wakes who sleeps.
class LeavesWork {
  public:
    explicit LeavesWork(WorkerCore& worker) : worker_(worker) {}
    LeavesWork(const LeavesWork&) = delete;
    LeavesWork& operator=(const LeavesWork&) = delete;
    ~LeavesWork() {
        if (worker_.is_watched()) [[unlikely]]
            settle_waiting(worker_);
    }

  private:
    WorkerCore& worker_;
};

}  // namespace tagwire::proto
