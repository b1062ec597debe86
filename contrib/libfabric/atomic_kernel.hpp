// SPDX-License-Identifier: BSD-3-Clause
// The operations of fi_atomic(3) on numbers of this process.
//
// 1. Each element is one atomic operation; a call of many elements is not one.
// 2. Operations on one datatype are atomic with each other, in all threads and all open domains of
//    the process: up to 8 bytes by the processor, so that they are atomic with the program's own
//    operations, too; longer elements, and elements that are not aligned to their length, under a
//    lock that their address chooses.
// 3. Integers wrap around. The table has no operation that a datatype lacks: bits of a float, an
//    order of complex numbers.
#pragma once

#include <rdma/fi_atomic.h>

#include <cstddef>
#include <cstdint>

namespace tagwire::fi {

/// Families of calls.
enum class AtomicKind : std::uint8_t {
    kWrite,   ///< fi_atomic(): tells nothing.
    kFetch,   ///< fi_fetch_atomic(): tells what was there before.
    kCompare  ///< fi_compare_atomic(): the same, and compares.
};

/// The arguments of an operation. Only `target` is the peers'; everything else is one caller's,
/// and need not be aligned.
struct AtomicElements {
    std::byte* target;
    const std::byte* operand;  ///< nullptr: FI_ATOMIC_READ.
    const std::byte* compare;  ///< nullptr: not of kCompare.
    std::byte* result;         ///< nullptr: of kWrite.
    std::size_t count;
};
using AtomicApply = void (*)(const AtomicElements& elements);

/// Carries out the operation on that datatype. nullptr: there is none such; any numbers may be
/// asked for.
AtomicApply find_atomic(AtomicKind kind, unsigned op, unsigned datatype);
/// 0: the datatype is unknown.
std::size_t atomic_bytes_of(unsigned datatype);

}  // namespace tagwire::fi
