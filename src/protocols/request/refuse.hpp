// SPDX-License-Identifier: BSD-3-Clause
// Macros by which calls of the messaging layer refuse bad arguments, and report lack of memory.
#pragma once

#include <cstddef>

#include "protocols/api/tw_def.h"
#include "protocols/api/tw_version.h"
#include "ucs/log/log.hpp"
#include "ucs/memory/no_memory.hpp"
#include "ucs/memory/sized.hpp"

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

/// Refuses a struct that does not tell its size, or that a later header describes.
#define TW_REFUSE_SIZE(argument)                                                              \
    do {                                                                                      \
        if (!tagwire::ucs::has_size(*(argument))) [[unlikely]]                                \
            return tagwire::proto::refuse_size(__func__, #argument, (argument)->struct_bytes, \
                                               sizeof *(argument));                           \
    } while (false)

namespace tagwire::proto {

inline tw_status_t refuse_size(const char* call, const char* argument, std::size_t given,
                               std::size_t known) {
    if (given > known) {
        TW_LOG_ERROR(
            "%s: %s->struct_bytes is %zu, but this library, %s, supports %zu bytes: the program "
            "was built with newer headers and needs a newer library",
            call, argument, given, tw_version_string(), known);
    } else {
        TW_LOG_ERROR(
            "%s: %s->struct_bytes is %zu, which is not set or not valid: set it to sizeof *%s",
            call, argument, given, argument);
    }
    return TW_ERR_INVALID_PARAM;
}

inline tw_status_t tw(ucs_status_t status) {
    return static_cast<tw_status_t>(status);
}

/// The border of a call (ucs/memory/no_memory.hpp): logs, and answers TW_ERR_NO_MEMORY.
inline tw_status_t refuse_no_memory(const char* call) {
    return static_cast<tw_status_t>(ucs::no_memory(call));
}

}  // namespace tagwire::proto
