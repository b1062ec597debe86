// SPDX-License-Identifier: BSD-3-Clause
// Waiting for a worker: its descriptor, its signal, and the threads that sleep
// (wait_protocol.hpp). Callers hold the worker's lock, except for signal() and signals().
#pragma once

#include <ucs/type/status.h>

#include <atomic>
#include <cstdint>

#include "protocols/worker/wait_protocol.hpp"
#include "protocols/worker/wakeup.hpp"
#include "ucs/log/log.hpp"

namespace tagwire::proto {

class Worker;

class Waiting {
  public:
    explicit Waiting(Worker& worker) : worker_(worker) {}
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

    ucs_status_t create() { return wakeup_.create(); }
    ucs_status_t event_fd(int* fd_p) { return open(fd_p, ucs::LogLevel::kError); }
    /// As event_fd(), for the program, which may sleep on it from now on.
    ucs_status_t event_fd_of_program(int* fd_p);
    /// The worker's descriptor tells of this one as well, while it is readable.
    void add(int fd);
    /// For the program, which sleeps on the descriptor. UCS_ERR_BUSY: there is something to
    /// progress, or to poll.
    ucs_status_t arm();
    /// As WaitProtocol has it, of the calling thread.
    bool has_news_for_nap();
    /// For a nap of the calling thread, on *fd_p. UCS_ERR_BUSY: as arm(). Another status: the
    /// worker cannot be slept on.
    ucs_status_t arm_nap(int* fd_p);
    /// The event by which others end a nap of the calling thread on descriptors. nullptr: there are
    /// no others, or no descriptors are left.
    const WakeEvent* event_for_nap();
    /// The worker naps next, on event_for_nap() besides, or else on `word`. end_nap() follows.
    void begin_nap(const NapWord* word);
    void end_nap();
    /// Ends waits, and makes the descriptor readable. Any thread, also in a signal handler.
    void signal();
    std::uint64_t signals() const {
        // SYNC worker_signal: pairs with the release in signal(): what was written before it is
        // seen by the program whose wait it ends.
        return signals_.load(std::memory_order_acquire);
    }
    /// As WaitProtocol has it, of the calling thread.
    Waiter& wake_up(std::uint64_t arming);
    unsigned progress_for(const Waiter& me, bool falls_asleep) {
        return protocol_.progress_for(me, falls_asleep);
    }
    /// Progress of a worker that is armed, or that threads sleep on. settle() follows.
    unsigned progress();
    /// The calling thread sleeps next, until what it wants is there, on fd_of(*on) and on its
    /// own event. UCS_ERR_BUSY: there is something to progress.
    ucs_status_t fall_asleep(Waiter& me, const Wanted& wanted, SleepsOn* on);
    bool sleeps_on(SleepsOn* on) const { return protocol_.sleeps_on(on); }
    /// The descriptor of what `on` names; -1: none.
    [[nodiscard]] int fd_of(const SleepsOn& on) const;
    /// Before the lock is released: those who sleep go on sleeping only if nothing has happened and
    /// the worker is armed. `leaves_work`: the call may have left work to progress. `wakes`: of
    /// those who do not, if the lock is released next.
    void settle(bool leaves_work, Wakes& wakes);
    void settle(bool leaves_work) {
        Wakes wakes;
        settle(leaves_work, wakes);
    }
    /// As settle(true), of a call that was delegated to the calling thread, which may be about to
    /// sleep itself.
    void settle_delegated();

    // ---- For WaitProtocol

    bool has_work() const;
    ucs_status_t take_and_arm();
    std::uint64_t ends() const;
    void count_wake_ups(unsigned number);
    bool has_one_lock() const;
    void ring() const { wakeup_.ring(); }
    unsigned progress_all();

  private:
    ucs_status_t open(int* fd_p, ucs::LogLevel level);
    void settle_for(std::uintptr_t thread, bool leaves_work, Wakes& wakes);

    Worker& worker_;
    Wakeup wakeup_;
    WaitProtocol<Waiting, WakeEvent> protocol_{*this};
    bool has_told_fd_ = false;  // the program has the descriptor
    std::atomic<std::uint64_t> signals_{0};
};

}  // namespace tagwire::proto
