// SPDX-License-Identifier: BSD-3-Clause
// Accesses to registered memory that may have been unmapped.
//
// A card pins the pages of a region, so they are there until it is deregistered, whatever becomes
// of the mapping. This device has nothing but the mapping. An access to memory that is gone does
// not end the process in a thread that the program knows nothing of: it fails, as an access with a
// key that does not open fails, and the queue pair with it.
//
// The engine's fault handler (engine/fault_handler.hpp) sends a thread that faults within
// guarded() to its end. Without that handler the fault is a fault.
#pragma once

#include <setjmp.h>

#include <atomic>

namespace tagwire::vhca {

struct FaultLanding {
    sigjmp_buf place;
    bool is_surprise;  // counted, and told in the log
};

/// Where this thread goes on when an access faults, nullptr outside of guarded(). Of a fixed place,
/// because a signal handler reads it.
extern constinit thread_local FaultLanding* fault_landing [[gnu::tls_model("initial-exec")]];

/// False: access() faulted, and what it did until then is done. It owns nothing that has to be
/// destroyed. `is_surprise`: the memory was there, or who named it is not told otherwise.
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
