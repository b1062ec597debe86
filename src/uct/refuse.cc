// SPDX-License-Identifier: BSD-3-Clause
#include "uct/refuse.hpp"

#include <cstdarg>
#include <cstdio>

#include "ucs/log/log.hpp"

namespace tagwire::uct {

bool has_null(const char* call, std::initializer_list<Required> arguments) {
    for (const Required& argument : arguments) {
        if (argument.is_given)
            continue;
        TW_LOG_ERROR("%s: %s is NULL", call, argument.name);
        return true;
    }
    return false;
}

ucs_status_t refuse(ucs_status_t status, const char* call, const char* reason, ...) {
    char text[256];
    va_list arguments;
    va_start(arguments, reason);
    std::vsnprintf(text, sizeof text, reason, arguments);
    va_end(arguments);
    TW_LOG_ERROR("%s: %s", call, text);
    return status;
}

}  // namespace tagwire::uct
