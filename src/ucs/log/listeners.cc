// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/log/listeners.hpp"

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace tagwire::ucs {

/// A line that waits for the end of a scope.
struct detail::LogLine {
    std::uint64_t id;
    LogLevel level;
    const char* file;
    int line;
    std::string text;
    LogLine* next = nullptr;
};

namespace {

using detail::LogFrame;
using detail::LogLine;

struct Context {
    std::uint64_t id;
    LogListener listener;  // null: its lines go to the log
    void* arg;
    unsigned running = 0;  // threads inside the listener
};

// A pointer alone: variables of threads take of the room that the loader keeps for all libraries.
[[gnu::tls_model("initial-exec")]] thread_local constinit detail::LogFrame* here = nullptr;

/// The context whose listener runs in this thread; 0: none.
std::uint64_t running_here() {
    return here == nullptr ? 0 : here->running;
}

struct Contexts {
    std::mutex lock;
    std::condition_variable has_returned;
    std::vector<Context> all;
    std::uint64_t last_id = 0;

    Context* find(std::uint64_t id) {
        const auto found = std::ranges::find(all, id, &Context::id);
        return found == all.end() ? nullptr : &*found;
    }
};

// Never destroyed: other objects' destructors may still log at exit.
Contexts& contexts() {
    static Contexts* const all = new Contexts;
    return *all;
}

/// The only context, if it listens; else 0.
std::uint64_t only_context() {
    Contexts& every = contexts();
    const std::lock_guard locked(every.lock);
    return every.all.size() == 1 && every.all.front().listener != nullptr ? every.all.front().id
                                                                          : 0;
}

/// False: the context has gone, or does not listen.
bool tell(std::uint64_t id, LogLevel level, const char* file, int line, const char* text) {
    Contexts& every = contexts();
    LogListener listener = nullptr;
    void* arg = nullptr;
    {
        const std::lock_guard locked(every.lock);
        Context* const context = every.find(id);
        if (context == nullptr || context->listener == nullptr)
            return false;
        ++context->running;
        listener = context->listener;
        arg = context->arg;
    }
    LogFrame frame{here, 0, id, nullptr, nullptr};
    here = &frame;
    listener(arg, level, file, line, text);
    here = frame.around;
    const std::lock_guard locked(every.lock);
    if (Context* const context = every.find(id); context != nullptr && --context->running == 0)
        every.has_returned.notify_all();
    return true;
}

/// Adds lines to those that wait for the end of the scope.
void add(LogFrame& scope, LogLine* first, LogLine* last) {
    (scope.last == nullptr ? scope.first : scope.last->next) = first;
    scope.last = last;
}

/// False: there is no memory for it.
bool keep(LogFrame& scope, LogLevel level, const char* file, int line,
          std::string_view text) noexcept {
    try {
        auto one =
            std::make_unique<LogLine>(LogLine{scope.scope, level, file, line, std::string(text)});
        LogLine* const added = one.release();
        add(scope, added, added);
        return true;
    } catch (const std::bad_alloc&) {
        return false;
    }
}

}  // namespace

std::uint64_t log_add(LogListener listener, void* arg) {
    Contexts& every = contexts();
    const std::lock_guard locked(every.lock);
    every.all.push_back({.id = every.last_id + 1, .listener = listener, .arg = arg});
    return ++every.last_id;
}

void log_remove(std::uint64_t id) {
    Contexts& every = contexts();
    std::unique_lock locked(every.lock);
    Context* const context = every.find(id);
    if (context == nullptr)
        return;
    context->listener = nullptr;  // no thread enters it any more
    const unsigned own = running_here() == id ? 1 : 0;
    every.has_returned.wait(locked, [&] { return every.find(id)->running == own; });
    std::erase_if(every.all, [id](const Context& each) { return each.id == id; });
}

bool log_hear(LogLevel level, const char* file, int line, std::string_view text) {
    if (running_here() != 0)
        return false;
    while (text.ends_with('\n'))
        text.remove_suffix(1);
    if (here != nullptr)
        return keep(*here, level, file, line, text);
    const std::uint64_t id = only_context();
    if (id == 0)
        return false;
    try {
        return tell(id, level, file, line, std::string(text).c_str());
    } catch (const std::bad_alloc&) {
        return false;
    }
}

void detail::begin_log_scope(LogFrame& frame, std::uint64_t id) {
    frame = {here, id, running_here(), nullptr, nullptr};
    here = &frame;
}

void detail::end_log_scope(LogFrame& frame) {
    here = frame.around;
    if (frame.first == nullptr)
        return;
    if (here != nullptr)
        return add(*here, frame.first, frame.last);
    // Lines of calls that a listener makes go to the log, so none is added meanwhile.
    LogLine* next = frame.first;
    while (next != nullptr) {
        const std::unique_ptr<LogLine> one(next);
        next = one->next;
        if (!tell(one->id, one->level, one->file, one->line, one->text.c_str()))
            log_write_line(one->level, one->file, one->line, one->text);
    }
}

}  // namespace tagwire::ucs
