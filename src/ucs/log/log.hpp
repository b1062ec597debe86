// SPDX-License-Identifier: BSD-3-Clause
// The library's log: printf-style macros, one short line per message.
//
//     [tagwire] warning node7:4711 shm.cc:48: memfd arena: F_ADD_SEALS failed: Invalid argument
//
// Any thread. Nothing happens at load time: the first message that passes the level opens the sink,
// which is standard error or the file TAGWIRE_LOG_FILE. No thread flushes it; every line is written
// at once. Normal flow (no resource, in progress, busy) is counted and never logged; a failure is
// logged once, where it is first known. Nothing above trace belongs on the data path.
#pragma once

#include <atomic>

namespace tagwire::ucs {

enum class LogLevel : int { kOff, kError, kWarn, kInfo, kDebug, kTrace };

namespace detail {
/// Above every level until the first message has read TAGWIRE_LOG_LEVEL, so that this one reaches
/// log_write().
extern std::atomic<int> log_threshold;
}  // namespace detail

inline bool log_enabled(LogLevel level) {
    return static_cast<int>(level) <= detail::log_threshold.load(std::memory_order_relaxed);
}

/// Tells a wrong TAGWIRE_LOG_LEVEL or TAGWIRE_LOG_FILE, the first time that this process calls it:
/// else nobody hears of it until something is logged. Opens nothing when they are right.
void log_check_options();

/// Overrides TAGWIRE_LOG_LEVEL for this process.
void log_set_level(LogLevel level);

[[gnu::format(printf, 4, 5)]] void log_write(LogLevel level, const char* file, int line,
                                             const char* format, ...);

}  // namespace tagwire::ucs

#define TW_LOG(level, ...)                                                     \
    do {                                                                       \
        if (::tagwire::ucs::log_enabled(level)) [[unlikely]] {                 \
            ::tagwire::ucs::log_write(level, __FILE__, __LINE__, __VA_ARGS__); \
        }                                                                      \
    } while (false)

#define TW_LOG_ERROR(...) TW_LOG(::tagwire::ucs::LogLevel::kError, __VA_ARGS__)
#define TW_LOG_WARN(...) TW_LOG(::tagwire::ucs::LogLevel::kWarn, __VA_ARGS__)
#define TW_LOG_INFO(...) TW_LOG(::tagwire::ucs::LogLevel::kInfo, __VA_ARGS__)
#define TW_LOG_DEBUG(...) TW_LOG(::tagwire::ucs::LogLevel::kDebug, __VA_ARGS__)
#define TW_LOG_TRACE(...) TW_LOG(::tagwire::ucs::LogLevel::kTrace, __VA_ARGS__)
