// SPDX-License-Identifier: BSD-3-Clause
// The threads that wait for a worker: what each has seen, and what wakes it. Used with the worker's
// lock by the wait protocol (wait_protocol.hpp). `Event` wakes one thread: make(), wake(), take();
// the model test brings its own.
//
// 1. A thread that sleeps relies on the worker being armed. Whoever breaks the arming (by progress,
//    or by a call that leaves work to progress) arms again, or wakes the others, before it releases
//    the lock.
// 2. Whoever ends an operation wakes every thread that sleeps: each looks for what it waits for.
// 3. A wake-up is a level: it stays in the thread's own event until that thread has taken it.
//    A thread is entered here, with the lock, before it sleeps. So no wake-up is lost.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "ucs/log/repeats.hpp"
#include "ucs/memory/reserve.hpp"
#include "ucs/sys/fd.hpp"

namespace tagwire::proto {

/// An eventfd.
class WakeEvent {
  public:
    /// False: there are no descriptors left (logged).
    bool make();
    void wake() const;
    void take() const;
    int fd() const { return fd_.get(); }

  private:
    ucs::UniqueFd fd_;
    ucs::Repeats refusals_;
};

template <class Event>
struct BasicWaiter : ucs::FromReserve {
    std::uintptr_t thread = 0;
    std::uint64_t seen_ends = 0;     // when its last tw_worker_wait() returned
    std::uint64_t seen_signals = 0;  // likewise
    bool waits = false;              // is in a call that waits
    bool sleeps = false;             // ... asleep, and nobody has woken it
    bool is_woken = false;           // `event` says so
    bool has_armed = false;          // by tw_worker_arm(), and has not called in since
    Event event;                     // wakes it alone
};

using Waiter = BasicWaiter<WakeEvent>;

template <class Event>
class Waiters {
  public:
    using Waiter = BasicWaiter<Event>;

    /// The entry of a thread, in place while it waits. A thread that was not seen for long begins
    /// anew: its next wait returns at once.
    Waiter& of(std::uintptr_t thread) {
        const auto found =
            std::ranges::find(all_, thread, [](const auto& one) { return one->thread; });
        if (found != all_.end()) {
            std::rotate(found, found + 1, all_.end());
            return *all_.back();
        }
        forget_one();
        all_.push_back(std::make_unique<Waiter>());
        all_.back()->thread = thread;
        return *all_.back();
    }
    bool some_sleep() const { return sleeping_ > 0; }
    bool others_sleep(const Waiter& me) const { return sleeping_ > (me.sleeps ? 1U : 0U); }
    bool others_have_armed(const Waiter& me) const {
        return std::ranges::any_of(all_,
                                   [&](const auto& one) { return one->has_armed && &*one != &me; });
    }
    void sleep(Waiter& waiter) {
        waiter.sleeps = true;
        ++sleeping_;
    }
    /// It is awake, whoever woke it; takes the wake-up.
    void awake(Waiter& waiter) {
        if (std::exchange(waiter.is_woken, false))
            waiter.event.take();
        if (std::exchange(waiter.sleeps, false))
            --sleeping_;
    }
    void wake_others(const Waiter& me) {
        if (!others_sleep(me))
            return;
        for (const auto& waiter : all_) {
            if (!waiter->sleeps || &*waiter == &me)
                continue;
            waiter->sleeps = false;
            waiter->is_woken = true;
            --sleeping_;
            waiter->event.wake();
        }
    }

  private:
    /// Threads come and go, and nothing tells: so many that do not wait are remembered.
    static constexpr std::size_t kRemembered = 64;

    void forget_one() {
        const auto is_idle = [](const auto& one) { return !one->waits; };
        if (static_cast<std::size_t>(std::ranges::count_if(all_, is_idle)) < kRemembered)
            return;
        const auto oldest = std::ranges::find_if(
            all_, [](const auto& one) { return !one->waits && !one->has_armed; });
        all_.erase(oldest != all_.end() ? oldest : std::ranges::find_if(all_, is_idle));
    }

    // From the reserve: progress takes note of the thread that calls it, and cannot fail.
    ucs::ReserveVector<std::unique_ptr<Waiter>> all_;  // those seen last are at the end
    std::size_t sleeping_ = 0;
};

}  // namespace tagwire::proto
