// SPDX-License-Identifier: BSD-3-Clause
// Refusals of the messaging layer's API: arguments, and for lack of memory.
#pragma once

#include "protocols/api/tw_def.h"
#include "ucs/log/log.hpp"
#include "ucs/memory/no_memory.hpp"

/// Logs "call: reason" and answers the status.
#define TW_REFUSE(status, format, ...)                                    \
    do {                                                                  \
        TW_LOG_ERROR("%s: " format, __func__ __VA_OPT__(, ) __VA_ARGS__); \
        return status;                                                    \
    } while (false)

#define TW_REFUSE_NULL(argument)                                   \
    do {                                                           \
        if ((argument) == nullptr) [[unlikely]]                    \
            TW_REFUSE(TW_ERR_INVALID_PARAM, #argument " is NULL"); \
    } while (false)

namespace tagwire::proto {

inline tw_status_t tw(ucs_status_t status) {
    return static_cast<tw_status_t>(status);
}

/// The border of a call (ucs/memory/no_memory.hpp): logs, and answers TW_ERR_NO_MEMORY.
inline tw_status_t refuse_no_memory(const char* call) {
    return static_cast<tw_status_t>(ucs::no_memory(call));
}

}  // namespace tagwire::proto
