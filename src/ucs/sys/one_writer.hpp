// SPDX-License-Identifier: BSD-3-Clause
// Adding to a word in memory that one thread writes and others may read.
#pragma once

#include <atomic>
#include <cstdint>

namespace tagwire::ucs {

/// Relaxed. A load, an addition and a store in C++, which compilers keep apart: one instruction on
/// x86-64, where readers see the word before or after it. Not atomic towards another writer.
inline void add_alone(std::atomic<std::uint64_t>& word, std::uint64_t amount) {
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
    static_assert(sizeof word == sizeof amount);
    asm("addq %1, %0" : "+m"(word) : "er"(amount) : "cc");
#else
    word.store(word.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
#endif
}

}  // namespace tagwire::ucs
