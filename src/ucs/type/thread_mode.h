// SPDX-License-Identifier: BSD-3-Clause
//
// Which threads may use an object. The names are those of UCX 1.13.
#ifndef TAGWIRE_UCS_TYPE_THREAD_MODE_H
#define TAGWIRE_UCS_TYPE_THREAD_MODE_H

#include <ucs/sys/compiler_def.h>

BEGIN_C_DECLS

typedef enum tagwire_ucs_thread_mode {
    UCS_THREAD_MODE_SINGLE,      ///< Only the thread that created the object.
    UCS_THREAD_MODE_SERIALIZED,  ///< Any thread, one at a time: the caller locks.
    UCS_THREAD_MODE_MULTI,       ///< Any thread at any time.
    UCS_THREAD_MODE_LAST
} ucs_thread_mode_t;

/// Lower-case names, indexed by mode.
TAGWIRE_API extern const char* ucs_thread_mode_names[] TAGWIRE_SYMBOL(ucs_thread_mode_names);

END_C_DECLS

#endif
