// SPDX-License-Identifier: BSD-3-Clause
// The C API of workers: check, convert, call.
#include <uct/api/uct.h>

#include "uct/refuse.hpp"
#include "uct/worker.hpp"

namespace uct = tagwire::uct;
using uct::refuse;

extern "C" {

ucs_status_t uct_worker_create(ucs_async_context_t* async, ucs_thread_mode_t thread_mode,
                               uct_worker_h* worker_p) {
    if (uct::has_null(__func__, {{"async", async}, {"worker_p", worker_p}}))
        return UCS_ERR_INVALID_PARAM;
    if (static_cast<unsigned>(thread_mode) >= UCS_THREAD_MODE_LAST) {
        return refuse(UCS_ERR_INVALID_PARAM, __func__,
                      "thread_mode is %u, which is not a ucs_thread_mode_t",
                      static_cast<unsigned>(thread_mode));
    }
    uct::Worker* worker = nullptr;
    const ucs_status_t status = uct::Worker::create(async, thread_mode, &worker);
    if (status == UCS_OK)
        *worker_p = worker;
    return status;
}

void uct_worker_destroy(uct_worker_h handle) {
    if (handle == nullptr)
        return;
    uct::Worker& worker = uct::worker_of(handle);
    if (worker.iface_count() != 0) {
        refuse(UCS_ERR_BUSY, __func__, "the worker stays: close its %u interfaces first",
               worker.iface_count());
        return;
    }
    delete &worker;
}

void uct_worker_progress_register_safe(uct_worker_h worker, ucs_callback_t func, void* arg,
                                       unsigned flags, uct_worker_cb_id_t* id_p) {
    if (uct::has_null(__func__, {{"worker", worker}, {"func", func}, {"id_p", id_p}}))
        return;
    constexpr unsigned kFlags = UCS_CALLBACKQ_FLAG_FAST | UCS_CALLBACKQ_FLAG_ONESHOT;
    if ((flags & ~kFlags) != 0 || flags == kFlags) {
        refuse(UCS_ERR_INVALID_PARAM, __func__,
               "flags is 0x%x; expected UCS_CALLBACKQ_FLAG_FAST, _ONESHOT or 0", flags);
        return;
    }
    if (*id_p != UCS_CALLBACKQ_ID_NULL)
        return;
    *id_p = ucs_callbackq_add_safe(&worker->progress_q, func, arg, flags);
}

void uct_worker_progress_unregister_safe(uct_worker_h worker, uct_worker_cb_id_t* id_p) {
    if (uct::has_null(__func__, {{"worker", worker}, {"id_p", id_p}}))
        return;
    if (*id_p == UCS_CALLBACKQ_ID_NULL)
        return;
    ucs_callbackq_remove_safe(&worker->progress_q, *id_p);
    *id_p = UCS_CALLBACKQ_ID_NULL;
}

}  // extern "C"
