// SPDX-License-Identifier: BSD-3-Clause
// Time for progress loops, deadlines and measurements. Any thread.
//
// clock_now_ns(): CLOCK_MONOTONIC in nanoseconds (about 20 ns a call).
// ticks_now(): the processor's counter where it runs at one constant rate on all cores (invariant
// TSC, CNTVCT), else clock_now_ns(): a few nanoseconds a call. Only differences of ticks have a
// meaning, only within one machine.
//
// The length of a tick comes from the processor if it says so, else it is measured between the
// first use of ticks and a conversion. The first conversion sleeps (never spins) until they are 1
// ms apart; each later one measures over a longer time, until 1 s has passed and the figure is
// final. Convert once at set-up and compare ticks afterwards.
#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>

namespace tagwire::ucs {

std::uint64_t clock_now_ns();

inline timespec timespec_of(std::uint64_t ns) {
    constexpr std::uint64_t kNsPerS = 1'000'000'000;
    return {static_cast<time_t>(ns / kNsPerS), static_cast<long>(ns % kNsPerS)};
}

namespace detail {
enum class TickSource : int { kUnknown, kProcessor, kClock };
extern std::atomic<TickSource> tick_source;
/// Nanoseconds per tick, 0 until it is final.
extern std::atomic<double> tick_ns_final;
std::uint64_t ticks_now_slow();
double tick_ns_slow();

inline std::uint64_t processor_ticks() {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();  // its header is a large one
#elif defined(__aarch64__)
    std::uint64_t ticks;
    asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
    return clock_now_ns();
#endif
}
}  // namespace detail

inline std::uint64_t ticks_now() {
    if (detail::tick_source.load(std::memory_order_relaxed) == detail::TickSource::kProcessor)
        [[likely]] {
        return detail::processor_ticks();
    }
    return detail::ticks_now_slow();
}

/// Length of one tick in nanoseconds.
inline double tick_ns() {
    const double final_ns = detail::tick_ns_final.load(std::memory_order_relaxed);
    return final_ns != 0.0 ? final_ns : detail::tick_ns_slow();
}

inline std::uint64_t ticks_from_ns(std::uint64_t ns) {
    return static_cast<std::uint64_t>(static_cast<double>(ns) / tick_ns() + 0.5);
}

inline std::uint64_t ticks_to_ns(std::uint64_t ticks) {
    return static_cast<std::uint64_t>(static_cast<double>(ticks) * tick_ns() + 0.5);
}

}  // namespace tagwire::ucs
