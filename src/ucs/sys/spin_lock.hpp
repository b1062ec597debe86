// SPDX-License-Identifier: BSD-3-Clause
// A lock for sections that are short and never wait. Taking one that is free is one atomic
// instruction, releasing it is a store. A thread that finds it taken spins for a while, then steps
// aside. Its owner must not take it again.
#pragma once

#include <atomic>

#include "ucs/sys/spin_pause.hpp"
#include "ucs/sys/step_aside.hpp"

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

  private:
    static constexpr unsigned kSpins = 200;

    [[gnu::noinline]] void wait() {
        for (unsigned spins = 0; !try_lock(); ++spins) {
            if (spins < kSpins)
                spin_pause();
            else
                step_aside();
        }
    }

    std::atomic<bool> taken_{false};
};

}  // namespace tagwire::ucs
