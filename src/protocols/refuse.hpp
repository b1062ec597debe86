// SPDX-License-Identifier: BSD-3-Clause
// How the API of the messaging layer refuses arguments.
#pragma once

#include "protocols/api/tw_def.h"
#include "ucs/log/log.hpp"

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
