// SPDX-License-Identifier: BSD-3-Clause
//
// The progress callback queue: what a worker calls when the program calls uct_worker_progress().
//
// Threads: one thread dispatches. add and remove belong to that thread (a callback may call them);
// the _safe forms may be called by any thread and take effect at the next dispatch.
//
//   fast_elems  | cb 0 | cb 1 | ... | cb n-1 | NULL |   n <= UCS_CALLBACKQ_FAST_COUNT; dispatch
//                                                       stops at the NULL
//   priv        | private to the library: further callbacks, requests of other threads |
#ifndef TAGWIRE_UCS_DATASTRUCT_CALLBACKQ_H
#define TAGWIRE_UCS_DATASTRUCT_CALLBACKQ_H

#include <stddef.h>
#include <stdint.h>

#include <ucs/datastruct/list.h>
#include <ucs/sys/compiler_def.h>
#include <ucs/type/status.h>

BEGIN_C_DECLS

#define UCS_CALLBACKQ_FAST_COUNT 7
#define UCS_CALLBACKQ_ID_NULL (-1)

typedef struct tagwire_ucs_callbackq ucs_callbackq_t;
typedef struct tagwire_ucs_callbackq_elem ucs_callbackq_elem_t;

/// Returns how much it did: 0 when there was nothing to do.
typedef unsigned (*ucs_callback_t)(void* arg);

/// Nonzero selects the element.
typedef int (*ucs_callbackq_predicate_t)(const ucs_callbackq_elem_t* elem, void* arg);

enum tagwire_ucs_callbackq_flags {
    UCS_CALLBACKQ_FLAG_FAST =
        UCS_BIT(0),  ///< Wants a place in fast_elems; gets one while there is room.
    UCS_CALLBACKQ_FLAG_ONESHOT = UCS_BIT(1)  ///< Called once, then removed. Not together with FAST.
};

struct tagwire_ucs_callbackq_elem {
    ucs_callback_t cb;
    void* arg;
    unsigned flags;
    int id;
};

struct tagwire_ucs_callbackq {
    ucs_callbackq_elem_t fast_elems[UCS_CALLBACKQ_FAST_COUNT + 1];
    char priv[72];
};

/// Makes an empty queue in the caller's memory. UCS_OK or UCS_ERR_NO_MEMORY.
TAGWIRE_API ucs_status_t ucs_callbackq_init(ucs_callbackq_t* cbq)
    TAGWIRE_SYMBOL(ucs_callbackq_init);

/// Releases the queue's own memory. Callbacks that are still in it are reported by a warning.
TAGWIRE_API void ucs_callbackq_cleanup(ucs_callbackq_t* cbq) TAGWIRE_SYMBOL(ucs_callbackq_cleanup);

/// Adds a callback and returns its identifier (>= 0, unique in the queue until it is removed).
/// Dispatching thread.
TAGWIRE_API int ucs_callbackq_add(ucs_callbackq_t* cbq, ucs_callback_t cb, void* arg,
                                  unsigned flags) TAGWIRE_SYMBOL(ucs_callbackq_add);

/// Removes a callback at once: it does not run again. Dispatching thread; a callback may remove
/// itself or another.
TAGWIRE_API void ucs_callbackq_remove(ucs_callbackq_t* cbq, int id)
    TAGWIRE_SYMBOL(ucs_callbackq_remove);

/// As ucs_callbackq_add(), from any thread; it runs from the next dispatch on.
TAGWIRE_API int ucs_callbackq_add_safe(ucs_callbackq_t* cbq, ucs_callback_t cb, void* arg,
                                       unsigned flags) TAGWIRE_SYMBOL(ucs_callbackq_add_safe);

/// As ucs_callbackq_remove(), from any thread; it may still run until the dispatch that is under
/// way ends.
TAGWIRE_API void ucs_callbackq_remove_safe(ucs_callbackq_t* cbq, int id)
    TAGWIRE_SYMBOL(ucs_callbackq_remove_safe);

/// Removes every callback for which `pred` is nonzero. Dispatching thread.
TAGWIRE_API void ucs_callbackq_remove_if(ucs_callbackq_t* cbq, ucs_callbackq_predicate_t pred,
                                         void* arg) TAGWIRE_SYMBOL(ucs_callbackq_remove_if);

/// Calls every callback once and returns the sum of what they did. The elements are read anew each
/// time round because a callback may add or remove some; a removal may make one other callback wait
/// for the next dispatch.
// SYNC publish(callbackq): pairs with publish() in callbackq.cc. Another thread may append an
// element while this runs; its argument is visible once its callback is.
static inline unsigned ucs_callbackq_dispatch(ucs_callbackq_t* cbq) {
    unsigned done = 0;
    const ucs_callbackq_elem_t* elem = cbq->fast_elems;
    ucs_callback_t cb;
    while ((cb = __atomic_load_n(&elem->cb, __ATOMIC_ACQUIRE)) != NULL) {
        done += cb(elem->arg);
        ++elem;
    }
    return done;
}

END_C_DECLS

#endif
