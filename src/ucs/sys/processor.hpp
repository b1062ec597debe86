// SPDX-License-Identifier: BSD-3-Clause
// The maker of the processor, for what was measured to be better on one maker's than on another's.
#pragma once

namespace tagwire::ucs {

// Any thread, at any time: also before main().

inline bool is_processor_of_intel() {
#ifdef __x86_64__
    __builtin_cpu_init();
    return __builtin_cpu_is("intel") != 0;
#else
    return false;
#endif
}

inline bool is_processor_of_amd() {
#ifdef __x86_64__
    __builtin_cpu_init();
    return __builtin_cpu_is("amd") != 0;
#else
    return false;
#endif
}

}  // namespace tagwire::ucs
