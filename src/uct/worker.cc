// SPDX-License-Identifier: BSD-3-Clause
#include "uct/worker.hpp"

#include <memory>
#include <new>

#include "ucs/memory/reserve.hpp"

namespace tagwire::uct {

ucs_status_t Worker::create(ucs_async_context_t* async, ucs_thread_mode_t mode, Worker** worker_p) {
    constexpr std::align_val_t kAlignment{alignof(Worker)};
    void* memory = ucs::reserve_open() && !ucs::reserve_is_low()
                       ? ::operator new(sizeof(Worker), kAlignment, std::nothrow)
                       : nullptr;
    if (memory == nullptr)
        return UCS_ERR_NO_MEMORY;
    auto* worker = ::new (memory) Worker(async, mode);
    const ucs_status_t status = ucs_callbackq_init(&worker->progress_q);
    if (status != UCS_OK) {
        ::operator delete(memory, kAlignment);  // no queue yet that the destructor could clean up
        return status;
    }
    *worker_p = worker;
    return UCS_OK;
}

Worker::~Worker() {
    ucs_callbackq_cleanup(&progress_q);
}

}  // namespace tagwire::uct
