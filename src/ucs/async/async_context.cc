// SPDX-License-Identifier: BSD-3-Clause
// Asynchronous contexts are tokens: nothing in this library runs outside the caller's progress.
#include <ucs/async/async_fwd.h>

#include <new>

#include "ucs/log/log.hpp"

struct tagwire_ucs_async_context {
    ucs_async_mode_t mode;
};

extern "C" ucs_status_t ucs_async_context_create(ucs_async_mode_t mode,
                                                 ucs_async_context_t** async_p) {
    if (async_p == nullptr) {
        TW_LOG_ERROR("ucs_async_context_create: async_p is NULL");
        return UCS_ERR_INVALID_PARAM;
    }
    if (static_cast<unsigned>(mode) >= UCS_ASYNC_MODE_LAST) {
        TW_LOG_ERROR("ucs_async_context_create: mode %u is not a ucs_async_mode_t",
                     static_cast<unsigned>(mode));
        return UCS_ERR_INVALID_PARAM;
    }
    auto* async = new (std::nothrow) tagwire_ucs_async_context{mode};
    if (async == nullptr)
        return UCS_ERR_NO_MEMORY;
    *async_p = async;
    return UCS_OK;
}

extern "C" void ucs_async_context_destroy(ucs_async_context_t* async) {
    delete async;
}

extern "C" void ucs_async_poll(ucs_async_context_t* async) {
    static_cast<void>(async);
}
