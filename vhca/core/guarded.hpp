// SPDX-License-Identifier: BSD-3-Clause
// Accesses to registered memory that may have been unmapped.
//
// A card pins the pages of a region, so they stay until it is deregistered, even if the program
// unmaps them. This device has only the mapping. An access to unmapped memory does not kill the
// process from a thread that the program does not know: it fails like an access with a wrong key,
// and the queue pair with it.
//
// The engine's fault handler (engine/fault_handler.hpp) makes a thread that faults within guarded()
// return from it. Without that handler the process gets the signal.
#pragma once

#include <setjmp.h>

#include <atomic>

namespace tagwire::vhca {

struct FaultLanding {
    sigjmp_buf place;
    bool is_surprise;  // counted, and told in the log
};

/// Where this thread continues when an access faults, nullptr outside of guarded(). In static TLS,
/// because a signal handler reads it.
extern constinit thread_local FaultLanding* fault_landing [[gnu::tls_model("initial-exec")]];

/// False: access() faulted, and what it did until then is done. It owns nothing that has to be
/// destroyed. `is_surprise`: the memory was there, or whoever named it gets no other error.
template <typename F>
[[nodiscard, gnu::noinline]] bool guarded(const F& access, bool is_surprise = true) {
    FaultLanding landing;
    landing.is_surprise = is_surprise;
    if (sigsetjmp(landing.place, 0) != 0) [[unlikely]] {
        fault_landing = nullptr;
        return false;
    }
    fault_landing = &landing;
    // SYNC fault_landing: pairs with the fault handler, which runs in this thread. The access stays
    // between the two stores.
    std::atomic_signal_fence(std::memory_order_seq_cst);
    access();
    // SYNC fault_landing: as above.
    std::atomic_signal_fence(std::memory_order_seq_cst);
    fault_landing = nullptr;
    return true;
}

}  // namespace tagwire::vhca
