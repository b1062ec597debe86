// SPDX-License-Identifier: BSD-3-Clause
//
// A set of processor numbers of fixed size. Names and layout are those of UCX 1.13.
#ifndef TAGWIRE_UCS_TYPE_CPU_SET_H
#define TAGWIRE_UCS_TYPE_CPU_SET_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <ucs/sys/compiler_def.h>

typedef unsigned long ucs_cpu_mask_t;

/// Processors are numbered 0..UCS_CPU_SETSIZE-1; other numbers are ignored by the macros below.
#define UCS_CPU_SETSIZE 1024
#define UCS_NCPUBITS (8 * sizeof(ucs_cpu_mask_t))

#define UCS_CPUELT(cpu) ((cpu) / UCS_NCPUBITS)
#define UCS_CPUMASK(cpu) ((ucs_cpu_mask_t)1 << ((cpu) % UCS_NCPUBITS))

typedef struct tagwire_ucs_cpu_set {
    ucs_cpu_mask_t ucs_bits[UCS_CPU_SETSIZE / UCS_NCPUBITS];
} ucs_cpu_set_t;

static inline void tagwire_ucs_cpu_put(size_t cpu, ucs_cpu_set_t* set, int member) {
    if (cpu >= UCS_CPU_SETSIZE)
        return;
    if (member)
        set->ucs_bits[UCS_CPUELT(cpu)] |= UCS_CPUMASK(cpu);
    else
        set->ucs_bits[UCS_CPUELT(cpu)] &= ~UCS_CPUMASK(cpu);
}

#define UCS_CPU_ZERO(set) ((void)memset((set), 0, sizeof(ucs_cpu_set_t)))
#define UCS_CPU_SET(cpu, set) tagwire_ucs_cpu_put((size_t)(cpu), (set), 1)
#define UCS_CPU_CLR(cpu, set) tagwire_ucs_cpu_put((size_t)(cpu), (set), 0)

/// Nonzero when `cpu` is in the set.
static inline int ucs_cpu_is_set(int cpu, const ucs_cpu_set_t* set) {
    const size_t index = (size_t)cpu;
    if (cpu < 0 || index >= UCS_CPU_SETSIZE)
        return 0;
    return (set->ucs_bits[UCS_CPUELT(index)] & UCS_CPUMASK(index)) != 0;
}

/// The lowest processor number in the set, 0 when the set is empty.
static inline int ucs_cpu_set_find_lcs(const ucs_cpu_set_t* set) {
    int cpu = 0;
    while (cpu < UCS_CPU_SETSIZE && !ucs_cpu_is_set(cpu, set))
        ++cpu;
    return cpu < UCS_CPU_SETSIZE ? cpu : 0;
}

#endif
