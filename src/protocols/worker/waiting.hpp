// SPDX-License-Identifier: BSD-3-Clause
// Waiting for a worker: its descriptor, its signal, and the threads that sleep
// (wait_protocol.hpp). Callers hold the worker's lock, except for signal() and signals().
#pragma once

#include <ucs/type/status.h>

#include <atomic>
#include <cstdint>

#include "protocols/worker/wait_protocol.hpp"
#include "protocols/worker/wakeup.hpp"

namespace tagwire::proto {

class Worker;

class Waiting {
  public:
    explicit Waiting(Worker& worker) : worker_(worker) {}
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

    ucs_status_t create() { return wakeup_.create(); }
    ucs_status_t event_fd(int* fd_p);
    /// The worker's descriptor tells of this one as well, while it is readable.
    void add(int fd);
    /// For the program, which sleeps on the descriptor. UCS_ERR_BUSY: there is something to
    /// progress, or to poll.
    ucs_status_t arm();
    /// Ends waits, and makes the descriptor readable. Any thread, also in a signal handler.
    void signal();
    std::uint64_t signals() const {
        // SYNC worker_signal: pairs with the release in signal(): what was written before it is
        // seen by the program whose wait it ends.
        return signals_.load(std::memory_order_acquire);
    }
    /// The calling thread begins to wait, or has woken. `arming`: what it slept on, if its
    /// descriptor has told of something; else 0.
    Waiter& wake_up(std::uint64_t arming);
    /// Progress, unless other threads sleep and nothing has come.
    unsigned progress_for(const Waiter& me) { return protocol_.progress_for(me); }
    /// Progress of a worker that is armed, or that threads sleep on.
    unsigned progress();
    /// The calling thread sleeps next. *arming_p 0: nothing is armed, and only its own event wakes
    /// it, when the progress of another thread has ended. UCS_ERR_BUSY: there is something to
    /// progress.
    ucs_status_t fall_asleep(Waiter& me, std::uint64_t* arming_p);
    /// Before the lock is released: those who sleep go on sleeping only if nothing has happened and
    /// the worker is armed. `leaves_work`: the call may have left work to progress.
    void settle(bool leaves_work);
    /// As settle(true), of a call that was delegated to the calling thread, which may be about to
    /// sleep itself.
    void settle_delegated();

    // ---- For WaitProtocol

    bool has_work() const;
    ucs_status_t take_and_arm();
    std::uint64_t ends() const;
    void ring() const { wakeup_.ring(); }
    unsigned progress_all();

  private:
    void settle_for(std::uintptr_t thread, bool leaves_work);

    Worker& worker_;
    Wakeup wakeup_;
    WaitProtocol<Waiting, WakeEvent> protocol_{*this};
    std::atomic<std::uint64_t> signals_{0};
};

}  // namespace tagwire::proto
