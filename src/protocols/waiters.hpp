// SPDX-License-Identifier: BSD-3-Clause
// The threads that wait for a worker: what each has seen, and what wakes it. Used with the worker's
// lock by worker_wait.cc.
//
// 1. A thread that sleeps relies on the worker being armed. Whoever breaks the arming (by progress,
//    or by a call that leaves work to progress) arms again, or wakes the others, before it releases
//    the lock.
// 2. Whoever ends an operation wakes every thread that sleeps: each looks for what it waits for.
// 3. A wake-up is a level: it stays in the thread's own descriptor until that thread has taken it.
//    A thread is entered here, with the lock, before it sleeps. So no wake-up is lost.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ucs/sys/fd.hpp"

namespace tagwire::proto {

struct Waiter {
    std::uintptr_t thread = 0;
    std::uint64_t seen_ends = 0;     // when its last tw_worker_wait() returned
    std::uint64_t seen_signals = 0;  // likewise
    bool waits = false;              // is in a call that waits
    bool sleeps = false;             // ... asleep, and nobody has woken it
    bool is_woken = false;           // `event` says so
    bool has_armed = false;          // by tw_worker_arm(), and has not called in since
    ucs::UniqueFd event;             // wakes it alone
};

class Waiters {
  public:
    /// That of the calling thread, in place as long as it waits. A thread that was not seen for
    /// long begins anew: its next wait returns at once.
    Waiter& mine();
    bool some_sleep() const { return sleeping_ > 0; }
    bool others_sleep(const Waiter& me) const { return sleeping_ > (me.sleeps ? 1U : 0U); }
    bool others_have_armed(const Waiter& me) const;
    /// False: there are no descriptors left.
    bool make_event(Waiter& waiter) const;
    void sleep(Waiter& waiter);
    /// It is awake, whoever woke it; takes the wake-up.
    void awake(Waiter& waiter);
    void wake_others(const Waiter& me);

  private:
    /// Threads come and go, and nothing tells: so many that do not wait are remembered.
    static constexpr std::size_t kRemembered = 64;

    void forget_one();

    std::vector<std::unique_ptr<Waiter>> all_;  // those seen last are at the end
    std::size_t sleeping_ = 0;
};

}  // namespace tagwire::proto
