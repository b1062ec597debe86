// SPDX-License-Identifier: BSD-3-Clause
// Ownership of cache lines: a processor writes only to lines that no other cache has. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "ucs/time/clock.hpp"

namespace tagwire::ucs {

/// Starts to fetch the line for writing, without a wait. The builtin fetches it for reading unless
/// the compiler may assume the instruction, which processors that lack it ignore.
inline void prefetch_ownership(const std::byte* line) {
#if defined(__x86_64__) || defined(__i386__)
    asm volatile("prefetchw %0" : : "m"(*line));
#elif defined(__aarch64__)
    asm volatile("prfm pstl1keep, %0" : : "Q"(*line));
#else
    __builtin_prefetch(line, 1);
#endif
}

namespace detail {
/// Nothing behind it starts, a look at the clock included, before everything in front, stores
/// included, has ended.
inline void order_measurement() {
#if defined(__x86_64__) || defined(__i386__)
    asm volatile("mfence\n\tlfence" : : : "memory");
#elif defined(__aarch64__)
    asm volatile("dsb sy\n\tisb" : : : "memory");
#endif
}
}  // namespace detail

/// Ticks until this processor owns the line of `word`, to which it adds 1. Waits for all stores
/// before, so it costs several hundred nanoseconds.
inline std::uint64_t ownership_ticks(std::uint32_t& word) {
    detail::order_measurement();
    const std::uint64_t begin = ticks_now();
    std::atomic_ref(word).fetch_add(1, std::memory_order_relaxed);
    detail::order_measurement();
    return ticks_now() - begin;
}

}  // namespace tagwire::ucs
