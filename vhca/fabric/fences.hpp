// SPDX-License-Identifier: BSD-3-Clause
// The store-load barrier of the wake-up (ring.hpp, invariant 4) on this machine.
#pragma once

#include <atomic>

#include "ucs/sys/process.hpp"

namespace tagwire::vhca {

struct HostFences {
    bool has_membarrier = false;  // this process is registered for membarrier(2)

    void after_publish(bool sender_pays) const {
        if (sender_pays) [[unlikely]] {
            ucs::full_barrier();  // SYNC vhca_sleep: pairs with before_recheck()
        } else {
            // SYNC vhca_sleep: keeps the compiler from reordering.
            std::atomic_signal_fence(std::memory_order_seq_cst);
        }
    }
    void before_recheck() const {
        if (has_membarrier)
            ucs::global_barrier();
        ucs::full_barrier();  // SYNC vhca_sleep: pairs with after_publish()
    }
};

}  // namespace tagwire::vhca
