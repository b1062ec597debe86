// SPDX-License-Identifier: BSD-3-Clause
// Tells the processor that this thread spins.
#pragma once

namespace tagwire::tools {

inline void pause_cpu() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

}  // namespace tagwire::tools
