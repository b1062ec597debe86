// SPDX-License-Identifier: BSD-3-Clause
// A number that names the calling thread among those that live, cheap to read.
#pragma once

#include <cstdint>

namespace tagwire::ucs {

/// The variable's address names the thread. Initial-exec: found without a call, for one byte of the
/// room that the loader keeps for that.
[[gnu::tls_model("initial-exec")]] inline thread_local constinit char self_of_thread = 0;

/// Never 0.
inline std::uintptr_t this_thread() {
    return reinterpret_cast<std::uintptr_t>(&self_of_thread);
}

}  // namespace tagwire::ucs
