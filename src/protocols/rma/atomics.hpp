// SPDX-License-Identifier: BSD-3-Clause
// Atomic operations on numbers of 4 or 8 bytes, as the API names them.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "protocols/api/tw_rma.h"

namespace tagwire::proto {

/// The number after `operation`, which is not TW_ATOMIC_CSWAP.
template <class T>
T combined(std::uint8_t operation, T number, T operand) {
    using Bits = std::make_unsigned_t<T>;
    switch (operation) {
        case TW_ATOMIC_ADD:
            return static_cast<T>(static_cast<Bits>(number) + static_cast<Bits>(operand));
        case TW_ATOMIC_AND:
            return number & operand;
        case TW_ATOMIC_OR:
            return number | operand;
        case TW_ATOMIC_XOR:
            return number ^ operand;
        case TW_ATOMIC_MIN:
            return number < operand ? number : operand;
        case TW_ATOMIC_MAX:
            return number > operand ? number : operand;
        default:
            return operand;
    }
}

/// As above, for a number and an operand in the low bytes of words.
inline std::uint64_t combined(std::uint8_t operation, std::uint8_t type, std::uint64_t number,
                              std::uint64_t operand) {
    const auto as = [&]<class T>(T) {
        using Bits = std::make_unsigned_t<T>;
        return std::uint64_t{static_cast<Bits>(
            combined(operation, static_cast<T>(number), static_cast<T>(operand)))};
    };
    switch (type) {
        case TW_UINT32:
            return as(std::uint32_t{});
        case TW_INT32:
            return as(std::int32_t{});
        case TW_UINT64:
            return as(std::uint64_t{});
        default:
            return as(std::int64_t{});
    }
}

/// Carries out an operation on the number at `at`, which is aligned; returns what was there.
template <class T>
std::uint64_t apply_atomic(std::byte* at, std::uint8_t operation, std::uint8_t type,
                           std::uint64_t operand, std::uint64_t compare) {
    const std::atomic_ref<T> number(*reinterpret_cast<T*>(at));
    if (operation == TW_ATOMIC_CSWAP) {
        T before = static_cast<T>(compare);
        // SYNC rma_atomic: as below.
        number.compare_exchange_strong(before, static_cast<T>(operand), std::memory_order_acq_rel);
        return before;
    }
    T before = number.load(std::memory_order_relaxed);  // Relaxed: a guess
    T after;
    do {
        after = static_cast<T>(combined(operation, type, before, operand));
        // SYNC rma_atomic: whoever reads a number sees what its writer had done before.
    } while (!number.compare_exchange_weak(before, after, std::memory_order_acq_rel));
    return before;
}

}  // namespace tagwire::proto
