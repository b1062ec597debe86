// SPDX-License-Identifier: BSD-3-Clause
// For fast paths that call one function and need little behind it.
#pragma once

namespace tagwire::ucs {

/// The compiler reads `object` anew from here on. A copy of arguments on the stack, which a slow
/// path behind a call needs again, takes one store each; in registers that survive the call it
/// would take two more moves and a store.
template <class T>
[[gnu::always_inline]] inline void keep_in_memory(T& object) {
    asm("" : "+m"(object));
}

/// As a value: what was read by this pointer before is read anew.
template <class T>
[[gnu::always_inline]] inline T* read_anew(T* pointer) {
    asm("" : "+r"(pointer));
    return pointer;
}

}  // namespace tagwire::ucs
