// SPDX-License-Identifier: BSD-3-Clause
//
// Compiler helpers that every public C header of tagwire starts from: C linkage, attributes, bit
// helpers, and the two macros that keep tagwire's symbols apart from UCX's (TAGWIRE_API,
// TAGWIRE_SYMBOL).
//
// The UCS_* and ucs_* names are those of UCX 1.13, so that programs written against its headers
// compile unchanged.
#ifndef TAGWIRE_UCS_SYS_COMPILER_DEF_H
#define TAGWIRE_UCS_SYS_COMPILER_DEF_H

#if defined(UCS_COMPILER_DEF_H) || defined(UCT_H_)
#error \
    "This translation unit already includes UCX's headers: use either UCX's or tagwire's, not both."
#endif

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define BEGIN_C_DECLS extern "C" {
#define END_C_DECLS }
#else
#define BEGIN_C_DECLS
#define END_C_DECLS
#endif

/// Marks what the shared library exports; everything else is hidden.
#define TAGWIRE_API __attribute__((visibility("default")))

/// Gives a declaration with UCX's name a linker symbol of our own ("tagwire_" before the name). A
/// process may have UCX loaded as well: without this label whichever library comes first in the
/// link order would answer both callers.
#define TAGWIRE_SYMBOL(name) __asm__("tagwire_" #name)

#define UCS_F_ALWAYS_INLINE inline __attribute__((always_inline))
#define UCS_F_NOINLINE __attribute__((noinline))
#define UCS_F_PURE __attribute__((pure))
#define UCS_F_NORETURN __attribute__((noreturn))
#define UCS_F_MAYBE_UNUSED __attribute__((used))
#define UCS_F_NON_NULL __attribute__((nonnull))
#define UCS_F_PRINTF(format_index, first_index) \
    __attribute__((format(printf, format_index, first_index)))
#define UCS_S_PACKED __attribute__((packed))
#define UCS_S_MAY_ALIAS __attribute__((may_alias))
#define UCS_V_UNUSED __attribute__((unused))
#define UCS_V_ALIGNED(alignment) __attribute__((aligned(alignment)))

/// Bit number `i`, and the mask of all bits below it. `i` is in 0..63.
#define UCS_BIT(i) (1ul << (i))
#define UCS_MASK(i) (UCS_BIT(i) - 1)

#define ucs_likely(condition) __builtin_expect((condition), 1)
#define ucs_unlikely(condition) __builtin_expect((condition), 0)
#define ucs_prefetch(address) __builtin_prefetch(address)
#define ucs_is_constant(expression) __builtin_constant_p(expression)
#define ucs_compiler_fence() __asm__ volatile("" ::: "memory")

#define ucs_typeof(type_or_value) __typeof__(type_or_value)
#define ucs_static_array_size(array) (sizeof(array) / sizeof((array)[0]))
#define ucs_offsetof(type, member) offsetof(type, member)
#define ucs_field_sizeof(type, member) sizeof(((type*)0)->member)
#define ucs_field_type(type, member) __typeof__(((type*)0)->member)

/// The object of `type` whose `member` is at `pointer`.
#define ucs_container_of(pointer, type, member) \
    ((type*)(void*)((char*)(void*)(pointer)-offsetof(type, member)))

/// Address arithmetic in bytes.
#define UCS_PTR_BYTE_OFFSET(pointer, bytes) ((void*)((intptr_t)(pointer) + (intptr_t)(bytes)))
#define UCS_PTR_TYPE_OFFSET(pointer, type) ((void*)((__typeof__(type)*)(pointer) + 1))
#define UCS_PTR_BYTE_DIFF(first, last) ((ptrdiff_t)((uintptr_t)(last) - (uintptr_t)(first)))

#endif
