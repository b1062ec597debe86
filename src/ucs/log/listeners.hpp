// SPDX-License-Identifier: BSD-3-Clause
// Listeners of the log: a context of a program may take the lines that concern it.
//
//     thread: LogScope(context's id) { ... TW_LOG_WARN() ... }  --> the listener, behind the scope
//     thread without a scope: the only context of the process, at once; else the log itself
//
// 1. A line of a thread inside a scope waits until the outermost scope of the thread ends: the
//    thread has no lock of the library then, so a listener may call the library.
// 2. A line that a thread logs while a listener runs in it goes to the log itself: listeners do not
//    nest.
// 3. When log_remove() has returned, the listener does not run and will not run again; a listener
//    that removes itself is the exception: it returns.
//
// Any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "ucs/log/log.hpp"

namespace tagwire::ucs {

/// `text` ends with a 0, and has no newline at its end.
using LogListener = void (*)(void* arg, LogLevel level, const char* file, int line,
                             const char* text);

/// A context begins; `listener` null: its lines go to the log. The id is never 0. Throws
/// std::bad_alloc.
std::uint64_t log_add(LogListener listener, void* arg);
void log_remove(std::uint64_t id);

/// False: nobody listens to this line of the calling thread. (log_write())
bool log_hear(LogLevel level, const char* file, int line, std::string_view text);

namespace detail {
struct LogLine;

/// A scope of a thread, or a listener that runs in it; on the thread's stack.
struct LogFrame {
    LogFrame* around;       // nullptr: it is the outermost
    std::uint64_t scope;    // the context that lines concern; 0: none is known
    std::uint64_t running;  // the context whose listener runs here or around; 0: none
    LogLine* first;         // lines that wait for the end of the scope
    LogLine* last;
};

void begin_log_scope(LogFrame& frame, std::uint64_t id);
void end_log_scope(LogFrame& frame);
/// Writes a line to the log itself. (log.cc)
void log_write_line(LogLevel level, const char* file, int line, std::string_view text);
}  // namespace detail

/// Lines of the calling thread concern the context of this id. 0: whoever they concerned before.
class LogScope {
  public:
    explicit LogScope(std::uint64_t id) : id_(id) {
        if (id_ != 0) [[unlikely]]
            detail::begin_log_scope(frame_, id);
    }
    LogScope(const LogScope&) = delete;
    LogScope& operator=(const LogScope&) = delete;
    ~LogScope() {
        if (id_ != 0) [[unlikely]]
            detail::end_log_scope(frame_);
    }

  private:
    const std::uint64_t id_;
    detail::LogFrame frame_;  // with an id
};

}  // namespace tagwire::ucs
