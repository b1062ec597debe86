// SPDX-License-Identifier: BSD-3-Clause
// The store-load barrier of the wake-up protocol (ring.hpp, invariant 4) on this machine.
#pragma once

#include <atomic>

#include "ucs/sys/process.hpp"

namespace tagwire::sm {

struct HostFences {
    bool sender_pays = true;  // a fence per message, because membarrier(2) is not to be had

    void after_publish() const {
        if (sender_pays) [[unlikely]] {
            ucs::full_barrier();  // SYNC sm_sleep: pairs with before_recheck()
        } else {
            std::atomic_signal_fence(
                std::memory_order_seq_cst);  // SYNC sm_sleep: keeps the compiler from reordering
        }
    }
    void before_recheck() const {
        if (sender_pays)
            ucs::full_barrier();  // SYNC sm_sleep: pairs with after_publish()
        else
            ucs::global_barrier();
    }
};

}  // namespace tagwire::sm
