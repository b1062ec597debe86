// SPDX-License-Identifier: BSD-3-Clause
// A lock for sections that are short and never wait. Taking one that is free is one atomic
// instruction, releasing it is a store. A thread that finds it taken spins for a while, then yields
// the processor. Its owner must not take it again.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

#include "ucs/sys/spin_pause.hpp"

namespace tagwire::ucs {

class SpinLock {
  public:
    SpinLock() = default;
    SpinLock(const SpinLock&) = delete;
    SpinLock& operator=(const SpinLock&) = delete;

    void lock() {
        // SYNC spin_lock: pairs with the release in unlock().
        if (taken_.exchange(true, std::memory_order_acquire)) [[unlikely]]
            wait();
    }

    /// False: another thread is inside.
    bool try_lock() {
        // SYNC spin_lock: pairs with the release in unlock(). Read first: a thread that only looks
        // does not take the line away from who is inside.
        return !taken_.load(std::memory_order_relaxed) &&
               !taken_.exchange(true, std::memory_order_acquire);
    }

    void unlock() {
        // SYNC spin_lock: pairs with the acquires in lock(), try_lock() and wait().
        taken_.store(false, std::memory_order_release);
    }

    /// For who takes it again and again, right after unlock(): those who wait for it get a turn,
    /// who could hardly ever find it free else. The calling thread may yield the processor to them.
    void give_way() const {
        // Relaxed: who comes later has its turn later.
        if (waiting_.load(std::memory_order_relaxed) > 0) [[unlikely]]
            if (!let_in(kSpins))
                ::sched_yield();
    }

    /// For who takes it again at once: those who wait and run get a turn.
    void lock_behind_others() {
        if (waiting_.load(std::memory_order_relaxed) > 0) [[unlikely]]
            let_in(kSpinsBehind);
        lock();
    }

  private:
    static constexpr unsigned kSpins = 200;
    static constexpr unsigned kSpinsBehind = 20;

    /// False: nobody came in.
    [[gnu::noinline]] bool let_in(unsigned spins) const {
        // Relaxed: whoever comes later has its turn later.
        for (; spins > 0; --spins) {
            if (waiting_.load(std::memory_order_relaxed) == 0 ||
                taken_.load(std::memory_order_relaxed))
                return true;
            spin_pause();
        }
        return false;
    }

    [[gnu::noinline]] void wait() {
        waiting_.fetch_add(1, std::memory_order_relaxed);
        for (unsigned spins = 0; !try_lock(); ++spins) {
            if (spins < kSpins)
                spin_pause();
            else
                ::sched_yield();
        }
        waiting_.fetch_sub(1, std::memory_order_relaxed);
    }

    std::atomic<bool> taken_{false};
    std::atomic<std::uint32_t> waiting_{0};
};

}  // namespace tagwire::ucs
