// SPDX-License-Identifier: BSD-3-Clause
//
// The asynchronous context that UCT programs create and hand to uct_worker_create().
//
// tagwire has no progress besides the calls of the program, so a context is a token: every mode is
// accepted, no thread is started, no signal is installed, and ucs_async_poll() has nothing to do.
// Any thread may create and destroy one.
#ifndef TAGWIRE_UCS_ASYNC_ASYNC_FWD_H
#define TAGWIRE_UCS_ASYNC_ASYNC_FWD_H

#include <ucs/config/types.h>
#include <ucs/sys/event_set.h>
#include <ucs/time/time_def.h>
#include <ucs/type/status.h>

BEGIN_C_DECLS

typedef struct tagwire_ucs_async_context ucs_async_context_t;

/// Creates a context; the caller owns it and destroys it after the workers that use it.
/// UCS_OK; UCS_ERR_INVALID_PARAM for a mode outside the enumeration or a NULL `async_p`;
/// UCS_ERR_NO_MEMORY.
TAGWIRE_API ucs_status_t ucs_async_context_create(ucs_async_mode_t mode,
                                                  ucs_async_context_t** async_p)
    TAGWIRE_SYMBOL(ucs_async_context_create);

/// Releases a context. NULL is ignored.
TAGWIRE_API void ucs_async_context_destroy(ucs_async_context_t* async)
    TAGWIRE_SYMBOL(ucs_async_context_destroy);

/// Does nothing: no event is ever delivered outside progress. NULL is allowed.
TAGWIRE_API void ucs_async_poll(ucs_async_context_t* async) TAGWIRE_SYMBOL(ucs_async_poll);

END_C_DECLS

#endif
