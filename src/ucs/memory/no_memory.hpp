// SPDX-License-Identifier: BSD-3-Clause
// The border at which an allocation that failed becomes a status: no exception crosses a C call.
// Each call that may allocate beyond the reserve (reserve.hpp) is a function-try-block:
//
//     ucs_status_t uct_md_open(...) try {
//         ...
//     } catch (const std::bad_alloc&) {
//         return ucs::no_memory(__func__);
//     }
//
// Whatever the call had made until then goes with its owners, so that all is as it was. Verbs
// registrations and mappings have none until they are written down in memory of the reserve.
#pragma once

#include <ucs/type/status.h>

#include <new>

#include "ucs/log/log.hpp"
#include "ucs/memory/reserve.hpp"

namespace tagwire::ucs {

/// UCS_ERR_NO_MEMORY, which is logged.
[[gnu::noinline, gnu::cold]] inline ucs_status_t no_memory(const char* call) {
    TW_LOG_ERROR("%s: out of memory", call);
    return UCS_ERR_NO_MEMORY;
}

}  // namespace tagwire::ucs
