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

namespace {

struct Context {
    std::uint64_t id;
    LogListener listener;  // null: its lines go to the log
    void* arg;
    unsigned running = 0;  // threads inside the listener
};

/// A line that waits for the end of a scope.
struct Line {
    std::uint64_t id;
    LogLevel level;
    const char* file;
    int line;
    std::string text;
    Line* next = nullptr;
};

struct OfThread {
    std::uint64_t scope;    // the context that lines concern; 0: none is known
    std::uint64_t running;  // the context whose listener runs; 0: none
    Line* first;
    Line* last;
};

[[gnu::tls_model("initial-exec")]] thread_local constinit OfThread here{0, 0, nullptr, nullptr};

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
    here.running = id;
    listener(arg, level, file, line, text);
    here.running = 0;
    const std::lock_guard locked(every.lock);
    if (Context* const context = every.find(id); context != nullptr && --context->running == 0)
        every.has_returned.notify_all();
    return true;
}

/// Out of memory for it: false.
bool keep(std::uint64_t id, LogLevel level, const char* file, int line,
          std::string_view text) noexcept {
    try {
        auto one = std::make_unique<Line>(Line{id, level, file, line, std::string(text)});
        Line* const added = one.release();
        (here.last == nullptr ? here.first : here.last->next) = added;
        here.last = added;
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
    const unsigned own = here.running == id ? 1 : 0;
    every.has_returned.wait(locked, [&] { return every.find(id)->running == own; });
    std::erase_if(every.all, [id](const Context& each) { return each.id == id; });
}

bool log_hear(LogLevel level, const char* file, int line, std::string_view text) {
    if (here.running != 0)
        return false;
    while (text.ends_with('\n'))
        text.remove_suffix(1);
    if (here.scope != 0)
        return keep(here.scope, level, file, line, text);
    const std::uint64_t id = only_context();
    if (id == 0)
        return false;
    try {
        return tell(id, level, file, line, std::string(text).c_str());
    } catch (const std::bad_alloc&) {
        return false;
    }
}

std::uint64_t detail::begin_log_scope(std::uint64_t id) {
    return std::exchange(here.scope, id);
}

void detail::end_log_scope(std::uint64_t around) {
    here.scope = around;
    if (around != 0 || here.first == nullptr || here.running != 0)
        return;
    // Lines of calls that a listener makes go to the log, so none is added meanwhile.
    Line* next = std::exchange(here.first, nullptr);
    here.last = nullptr;
    while (next != nullptr) {
        const std::unique_ptr<Line> one(next);
        next = one->next;
        if (!tell(one->id, one->level, one->file, one->line, one->text.c_str()))
            log_write_line(one->level, one->file, one->line, one->text);
    }
}

}  // namespace tagwire::ucs
