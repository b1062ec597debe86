// SPDX-License-Identifier: BSD-3-Clause
// A lock that its owner may take again. Taking one that is free costs some ten instructions, where
// std::recursive_mutex costs about eighty. A thread that finds it taken spins for a while, then
// yields the processor: for sections that are short and never wait.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

#include "ucs/sys/spin_pause.hpp"

namespace tagwire::ucs {

/// Its address names the thread. Initial-exec: found without a call, for one byte of the room that
/// the loader keeps for that.
[[gnu::tls_model("initial-exec")]] inline thread_local constinit char self_of_thread = 0;

class RecursiveLock {
  public:
    RecursiveLock() = default;
    RecursiveLock(const RecursiveLock&) = delete;
    RecursiveLock& operator=(const RecursiveLock&) = delete;

    void lock() {
        const auto self = reinterpret_cast<std::uintptr_t>(&self_of_thread);
        // Relaxed: this thread wrote it, or it names another thread.
        if (owner_.load(std::memory_order_relaxed) == self) {
            ++depth_;
            return;
        }
        std::uintptr_t nobody = kNobody;
        // SYNC recursive_lock: pairs with the release in unlock().
        if (!owner_.compare_exchange_strong(nobody, self, std::memory_order_acquire,
                                            std::memory_order_relaxed)) [[unlikely]]
            wait(self);
    }

    void unlock() {
        if (depth_ > 0) {
            --depth_;
            return;
        }
        // SYNC recursive_lock: pairs with the acquires in lock() and take().
        owner_.store(kNobody, std::memory_order_release);
    }

    /// For who takes it again and again, right after unlock(): those who wait for it get a turn,
    /// who else could hardly ever find it free.
    void give_way() const {
        // Relaxed: who comes later has its turn later.
        for (unsigned spins = 0; waiting_.load(std::memory_order_relaxed) > 0 &&
                                 owner_.load(std::memory_order_relaxed) == kNobody;
             ++spins) {
            if (spins == kSpins) {
                ::sched_yield();
                return;
            }
            spin_pause();
        }
    }

  private:
    static constexpr std::uintptr_t kNobody = 0;
    static constexpr unsigned kSpins = 200;

    [[gnu::noinline]] void wait(std::uintptr_t self) {
        waiting_.fetch_add(1, std::memory_order_relaxed);
        take(self);
        waiting_.fetch_sub(1, std::memory_order_relaxed);
    }

    void take(std::uintptr_t self) {
        for (unsigned spins = 0;; ++spins) {
            std::uintptr_t nobody = kNobody;
            // SYNC recursive_lock: pairs with the release in unlock().
            if (owner_.load(std::memory_order_relaxed) == kNobody &&
                owner_.compare_exchange_weak(nobody, self, std::memory_order_acquire,
                                             std::memory_order_relaxed))
                return;
            if (spins < kSpins)
                spin_pause();
            else
                ::sched_yield();
        }
    }

    std::atomic<std::uintptr_t> owner_{kNobody};
    std::atomic<unsigned> waiting_{0};
    unsigned depth_ = 0;  // times that the owner took it beyond the first
};

}  // namespace tagwire::ucs
