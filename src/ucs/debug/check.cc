// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/debug/check.hpp"

#include <cstdio>
#include <cstdlib>

namespace tagwire::ucs {

// Straight to standard error: the logger may be what is broken.
void check_failed(const char* file, int line, const char* condition) {
    std::fprintf(stderr, "[tagwire] %s:%d: check failed: %s\n", file, line, condition);
    std::fflush(stderr);
    std::abort();
}

}  // namespace tagwire::ucs
