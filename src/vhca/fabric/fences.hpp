// SPDX-License-Identifier: BSD-3-Clause
// The store-load barrier of the wake-up (ring.hpp, invariant 4) on this machine.
#pragma once

#include <atomic>

#include "ucs/sys/process.hpp"

namespace tagwire::vhca {

struct HostFences {
    bool has_membarrier = false;  // this process is registered for membarrier(2)

    static void full_barrier() {
#if defined(__SANITIZE_THREAD__)
        // ThreadSanitizer knows no fences; a locked instruction is one on the machines it runs on.
        std::atomic<int> here{0};  // SYNC vhca_sleep: as the fence below
        here.fetch_add(1, std::memory_order_seq_cst);
#else
        // SYNC vhca_sleep: our store comes before our load.
        std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
    }

    void after_publish(bool sender_pays) const {
        if (sender_pays) [[unlikely]] {
            full_barrier();
        } else {
            // SYNC vhca_sleep: keeps the compiler from reordering.
            std::atomic_signal_fence(std::memory_order_seq_cst);
        }
    }
    void before_recheck() const {
        if (has_membarrier) {
            ucs::global_barrier();
        }
        full_barrier();
    }
};

}  // namespace tagwire::vhca
