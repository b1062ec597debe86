// SPDX-License-Identifier: BSD-3-Clause
// The store-load barrier of the wake-up protocol (ring.hpp, invariant 4) on this machine.
#pragma once

#include <atomic>

#include "ucs/sys/process.hpp"

namespace tagwire::sm {

inline void full_barrier() {
#if defined(__SANITIZE_THREAD__)
    // ThreadSanitizer knows no fences; a locked instruction is one on the machines it runs on.
    std::atomic<int> here{0};  // SYNC sm_sleep: as the fence below
    here.fetch_add(1, std::memory_order_seq_cst);
#else
    // SYNC sm_sleep: our store comes before our load
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

struct HostFences {
    bool sender_pays = true;  // a fence per message, because membarrier(2) is not to be had

    void after_publish() const {
        if (sender_pays) [[unlikely]] {
            full_barrier();  // SYNC sm_sleep: pairs with before_recheck()
        } else {
            std::atomic_signal_fence(
                std::memory_order_seq_cst);  // SYNC sm_sleep: keeps the compiler from reordering
        }
    }
    void before_recheck() const {
        if (sender_pays) {
            full_barrier();  // SYNC sm_sleep: pairs with after_publish()
        } else {
            ucs::global_barrier();
        }
    }
};

}  // namespace tagwire::sm
