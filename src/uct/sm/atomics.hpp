// SPDX-License-Identifier: BSD-3-Clause
// Atomic read-modify-write on memory that several processes have mapped.
#pragma once

#include <uct/api/uct.h>

#include <atomic>
#include <cstddef>

namespace tagwire::sm {

/// Executes `opcode` (uct_atomic_op_t, valid) on the aligned T at `address`; returns what was there
/// before. SYNC sm_atomic: acquire and release, so that a program may build locks on it; the
/// partner is the program's.
template <class T>
T apply_atomic(std::byte* address, unsigned opcode, T value, T compare) {
    std::atomic_ref<T> target(*reinterpret_cast<T*>(address));
    constexpr auto order = std::memory_order_acq_rel;  // SYNC sm_atomic
    switch (opcode) {
        case UCT_ATOMIC_OP_ADD:
            return target.fetch_add(value, order);
        case UCT_ATOMIC_OP_AND:
            return target.fetch_and(value, order);
        case UCT_ATOMIC_OP_OR:
            return target.fetch_or(value, order);
        case UCT_ATOMIC_OP_XOR:
            return target.fetch_xor(value, order);
        case UCT_ATOMIC_OP_SWAP:
            return target.exchange(value, order);
        default:
            target.compare_exchange_strong(compare, value, order);
            return compare;
    }
}

}  // namespace tagwire::sm
