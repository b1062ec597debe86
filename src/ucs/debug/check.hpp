// SPDX-License-Identifier: BSD-3-Clause
// Checks for bugs in this library or its caller: never for what a peer, a file or a user's input
// can cause.
//
// TW_CHECK(cond): in every build; for set-up, tear-down and once per batch.
// TW_ASSERT(cond): only with TAGWIRE_DEBUG_CHECKS; cheap to write on the data path, free in a
// release build. Both abort with file, line and condition on standard error.
#pragma once

namespace tagwire::ucs {

#if defined(TAGWIRE_DEBUG_CHECKS)
inline constexpr bool kDebugChecks = true;
#else
inline constexpr bool kDebugChecks = false;
#endif

[[noreturn]] void check_failed(const char* file, int line, const char* condition);

}  // namespace tagwire::ucs

#define TW_CHECK(condition)                                               \
    do {                                                                  \
        if (!(condition)) [[unlikely]] {                                  \
            ::tagwire::ucs::check_failed(__FILE__, __LINE__, #condition); \
        }                                                                 \
    } while (false)

// A release build still compiles the condition, so it cannot rot, but never evaluates it.
#define TW_ASSERT(condition)                          \
    do {                                              \
        if constexpr (::tagwire::ucs::kDebugChecks) { \
            TW_CHECK(condition);                      \
        } else {                                      \
            static_cast<void>(sizeof(!(condition)));  \
        }                                             \
    } while (false)
