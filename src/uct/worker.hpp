// SPDX-License-Identifier: BSD-3-Clause
// The progress engine: the object that uct_worker_h points to. The C base is the callback queue
// that uct_worker_progress() calls.
//
// Threads: the owner's (UCS_THREAD_MODE_SINGLE), or the thread that holds the program's lock.
// add_progress_safe() and remove_progress_safe() may be called from any thread.
#pragma once

#include <uct/api/uct.h>

namespace tagwire::uct {

// On lines of its own: dispatching reads the queue each time.
class alignas(64) Worker : public uct_worker_t {
  public:
    /// UCS_OK or UCS_ERR_NO_MEMORY. `async` outlives the worker.
    static ucs_status_t create(ucs_async_context_t* async, ucs_thread_mode_t mode,
                               Worker** worker_p);
    ~Worker();
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;

    [[nodiscard]] ucs_async_context_t* async() const { return async_; }
    [[nodiscard]] ucs_thread_mode_t thread_mode() const { return mode_; }
    [[nodiscard]] unsigned iface_count() const { return iface_count_; }

    /// Returns the identifier for removal. A callback may add and remove.
    int add_progress(ucs_callback_t callback, void* arg) {
        return ucs_callbackq_add(&progress_q, callback, arg, UCS_CALLBACKQ_FLAG_FAST);
    }
    void remove_progress(int id) { ucs_callbackq_remove(&progress_q, id); }
    int add_progress_safe(ucs_callback_t callback, void* arg) {
        return ucs_callbackq_add_safe(&progress_q, callback, arg, UCS_CALLBACKQ_FLAG_FAST);
    }
    void remove_progress_safe(int id) { ucs_callbackq_remove_safe(&progress_q, id); }

  private:
    Worker(ucs_async_context_t* async, ucs_thread_mode_t mode) : async_(async), mode_(mode) {}

    friend class BaseIface;  // counts itself
    ucs_async_context_t* async_;
    ucs_thread_mode_t mode_;
    unsigned iface_count_ = 0;
};

inline Worker& worker_of(uct_worker_h handle) {
    return *static_cast<Worker*>(handle);
}

}  // namespace tagwire::uct
