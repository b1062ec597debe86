// SPDX-License-Identifier: BSD-3-Clause
// Words that threads sleep on, of this process or of several: futex(2).
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdint>

#include "ucs/time/clock.hpp"

namespace tagwire::ucs {

class FutexWord {
  public:
    FutexWord() = default;
    FutexWord(const FutexWord&) = delete;
    FutexWord& operator=(const FutexWord&) = delete;

    std::uint32_t load(std::memory_order order) const { return word_.load(order); }
    void store(std::uint32_t value, std::memory_order order) { word_.store(value, order); }
    std::uint32_t fetch_add(std::uint32_t operand, std::memory_order order) {
        return word_.fetch_add(operand, order);
    }

    /// Sleeps while the word is `value`, until a wake-up, a signal handler, or this time of
    /// clock_now_ns(); UINT64_MAX: no limit. False: the time has come.
    bool wait_until(std::uint32_t value, std::uint64_t end_ns) {
        const std::uint64_t now = end_ns == UINT64_MAX ? 0 : clock_now_ns();
        if (now >= end_ns)
            return false;
        const timespec time = timespec_of(end_ns - now);
        const long slept = ::syscall(SYS_futex, &word_, FUTEX_WAIT_PRIVATE, value,
                                     end_ns == UINT64_MAX ? nullptr : &time, nullptr, 0);
        return slept == 0 || errno != ETIMEDOUT;
    }
    void wake_one() { wake(1); }
    void wake_all() { wake(INT_MAX); }

  private:
    void wake(int threads) {
        ::syscall(SYS_futex, &word_, FUTEX_WAKE_PRIVATE, threads, nullptr, nullptr, 0);
    }

    std::atomic<std::uint32_t> word_{0};
};
static_assert(sizeof(FutexWord) == sizeof(std::uint32_t));

/// Sleeps while the word, which is in memory that processes share, is `value`, `ns` nanoseconds at
/// most.
inline void sleep_shared(std::atomic<std::uint32_t>& word, std::uint32_t value, std::uint64_t ns) {
    const timespec time = timespec_of(ns);
    ::syscall(SYS_futex, &word, FUTEX_WAIT, value, &time, nullptr, 0);
}
/// Whoever sleeps on it, in whatever process.
inline void wake_shared(std::atomic<std::uint32_t>& word) {
    ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace tagwire::ucs
