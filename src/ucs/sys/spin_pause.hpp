// SPDX-License-Identifier: BSD-3-Clause
// Tells the processor that this thread spins. Any thread.
#pragma once

namespace tagwire::ucs {

inline void spin_pause() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

}  // namespace tagwire::ucs
