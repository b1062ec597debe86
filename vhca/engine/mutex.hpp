// SPDX-License-Identifier: BSD-3-Clause
// The lock around the device: a spinning try-lock that gives the processor away.
//
// Held for a microsecond or less. A waiter spins shortly, then yields, then sleeps, so that a
// preempted holder gets its processor back even when the waiter has the higher priority. The event
// descriptor that the helper thread sleeps on is under the lock, too: the first release after the
// helper went to sleep wakes it, because the holder may have left timers or packets behind.
#pragma once

#include <atomic>

#include "vhca/fabric/fabric.hpp"

namespace tagwire::vhca {

class EngineMutex {
  public:
    bool try_lock() {
        // SYNC vhca_lock: what the last holder did is seen by the next.
        return !is_locked_.load(std::memory_order_relaxed) &&
               !is_locked_.exchange(true, std::memory_order_acquire);
    }

    void lock() {
        if (!try_lock()) [[unlikely]]
            lock_slow();
    }

    void unlock() {
        if (wake_fd_ < 0 && to_flush_ == nullptr) [[likely]]
            is_locked_.store(false, std::memory_order_release);  // SYNC vhca_lock
        else
            unlock_slow();
    }

    /// By the holder, who releases with unlock_quietly(): the next holder's unlock() writes to
    /// `event_fd`, once.
    void wake_at_next_unlock(int event_fd) { wake_fd_ = event_fd; }
    void clear_wake() { wake_fd_ = -1; }
    void unlock_quietly() {
        is_locked_.store(false, std::memory_order_release);  // SYNC vhca_lock
    }

    /// Whoever releases the lock sends what he left in `fabric`. Before anybody takes it.
    void flush_before_unlock(Fabric* fabric) { to_flush_ = fabric; }

  private:
    void lock_slow();
    void unlock_slow();

    std::atomic<bool> is_locked_{false};
    int wake_fd_ = -1;
    Fabric* to_flush_ = nullptr;  // one that gathers packets
};

}  // namespace tagwire::vhca
