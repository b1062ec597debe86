// SPDX-License-Identifier: BSD-3-Clause
//
// Kinds of memory that a memory domain may allocate, register or recognise. Names and numbers are
// those of UCX 1.13; tagwire itself works with host memory.
#ifndef TAGWIRE_UCS_MEMORY_MEMORY_TYPE_H
#define TAGWIRE_UCS_MEMORY_MEMORY_TYPE_H

#include <ucs/sys/compiler_def.h>

BEGIN_C_DECLS

typedef enum tagwire_ucs_memory_type {
    UCS_MEMORY_TYPE_HOST,
    UCS_MEMORY_TYPE_CUDA,
    UCS_MEMORY_TYPE_CUDA_MANAGED,
    UCS_MEMORY_TYPE_ROCM,
    UCS_MEMORY_TYPE_ROCM_MANAGED,
    UCS_MEMORY_TYPE_LAST,
    UCS_MEMORY_TYPE_UNKNOWN = UCS_MEMORY_TYPE_LAST
} ucs_memory_type_t;

/// Bitmap of the kinds that processor instructions can reach.
#define UCS_MEMORY_TYPES_CPU_ACCESSIBLE \
    (UCS_BIT(UCS_MEMORY_TYPE_HOST) | UCS_BIT(UCS_MEMORY_TYPE_ROCM_MANAGED))

#define ucs_memory_type_for_each(type) \
    for ((type) = UCS_MEMORY_TYPE_HOST; (type) < UCS_MEMORY_TYPE_LAST; (type)++)

/// Short names and one-line descriptions, indexed by type (UCS_MEMORY_TYPE_UNKNOWN included).
TAGWIRE_API extern const char* ucs_memory_type_names[] TAGWIRE_SYMBOL(ucs_memory_type_names);
TAGWIRE_API extern const char* ucs_memory_type_descs[] TAGWIRE_SYMBOL(ucs_memory_type_descs);

END_C_DECLS

#endif
