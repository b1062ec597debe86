// SPDX-License-Identifier: BSD-3-Clause
// FI_PROGRESS_AUTO for data: a thread of a domain that progresses its endpoints while the program
// does not. A domain that nobody asked that for has none.
//
// 1. The thread works with the domain's lock, as every call on the domain does: such a domain is
//    locked whatever threading model was asked for.
// 2. It sleeps, on the descriptors of the workers, while none of them has anything to progress. A
//    call that leaves something to progress wakes it, too.
// 3. While the program progresses endpoints itself, the thread is not to be woken by each of these
//    calls: it looks again after kAside.
// 4. It begins before the first endpoint is opened and ends behind the last one, at the latest when
//    the process exits or unloads the provider.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <thread>

#include "sleeper.hpp"

namespace tagwire::fi {

class Domain;
class Ep;

class AutoProgress {
  public:
    explicit AutoProgress(Domain& domain) : domain_(domain) {}
    AutoProgress(const AutoProgress&) = delete;
    AutoProgress& operator=(const AutoProgress&) = delete;
    /// Waits for the thread to end. Without the domain's lock.
    ~AutoProgress();

    /// 0, or a negative errno.
    int start();

    // ---- With the domain's lock

    /// 0, or a negative error of libfabric: nothing has changed.
    int add(const Ep& ep);
    void remove(tw_worker_h worker) { sleeper_.remove(worker); }

  private:
    static constexpr std::chrono::microseconds kAside{100};

    static void stop_all();
    void stop();
    void run();

    Domain& domain_;
    Sleeper sleeper_;
    bool is_over_ = false;  ///< With the domain's lock.
    std::thread thread_;
    pid_t process_ = 0;  ///< The owner of the thread; in a child the lock may stay taken.
    AutoProgress* next_ = nullptr;  ///< In the list of all that have started.
};

}  // namespace tagwire::fi
