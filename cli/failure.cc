// SPDX-License-Identifier: BSD-3-Clause
#include "cli/failure.hpp"

#include <cstdarg>
#include <cstdio>

namespace tagwire::tools {

std::string text(const char* format, ...) {
    std::va_list args;
    va_start(args, format);
    std::va_list again;
    va_copy(again, args);
    const int length = std::vsnprintf(nullptr, 0, format, args);
    va_end(args);
    std::string result(length > 0 ? static_cast<std::size_t>(length) : 0, '\0');
    std::vsnprintf(result.data(), result.size() + 1, format, again);
    va_end(again);
    return result;
}

}  // namespace tagwire::tools
