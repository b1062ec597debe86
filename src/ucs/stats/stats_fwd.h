// SPDX-License-Identifier: BSD-3-Clause
//
// Handles of UCX 1.13's statistics tree. tagwire has no such tree: an interface's counters are read
// with tagwire_uct_iface_query_counters() of <uct/api/tagwire_uct.h>.
#ifndef TAGWIRE_UCS_STATS_STATS_FWD_H
#define TAGWIRE_UCS_STATS_STATS_FWD_H

#include <stdint.h>

#include <ucs/sys/compiler_def.h>

BEGIN_C_DECLS

typedef uint64_t ucs_stats_counter_t;
typedef struct tagwire_ucs_stats_class ucs_stats_class_t;
typedef struct tagwire_ucs_stats_node ucs_stats_node_t;

/// Always NULL: for programs that pass the root on in uct_iface_params_t.
TAGWIRE_API ucs_stats_node_t* ucs_stats_get_root(void) TAGWIRE_SYMBOL(ucs_stats_get_root);

END_C_DECLS

#endif
