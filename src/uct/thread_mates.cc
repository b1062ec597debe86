// SPDX-License-Identifier: BSD-3-Clause
#include "uct/thread_mates.hpp"

#include <pthread.h>

#include <mutex>
#include <utility>

#include "ucs/datastruct/callbackq.hpp"
#include "ucs/time/clock.hpp"

namespace tagwire::uct {
namespace {

/// Never destroyed: workers may end at exit.
struct All {
    static All& get() {
        static auto* const all = new All;
        return *all;
    }
    // A child has the lock free, whatever thread had it, and asks no worker of its parent.
    All() {
        ::pthread_atfork([] { get().lock.lock(); }, [] { get().lock.unlock(); },
                         [] {
                             get().first = nullptr;
                             ++get().process;
                             get().lock.unlock();
                         });
    }

    std::mutex lock;
    ThreadMate* first = nullptr;
    unsigned process = 1;
};

/// An address for each thread.
const void* this_thread() {
    [[gnu::tls_model("initial-exec")]] thread_local constinit char mark = 0;
    return &mark;
}

}  // namespace

bool ThreadMate::is_in() const {
    return process_ == All::get().process;
}

void ThreadMate::enter(std::uint64_t now) {
    All& all = All::get();
    const std::lock_guard guard(all.lock);
    if (is_in())
        return;
    thread_.store(this_thread(), std::memory_order_relaxed);
    seen_at_.store(now, std::memory_order_relaxed);
    questions_.store(0, std::memory_order_relaxed);
    next_ = std::exchange(all.first, this);
    process_ = all.process;
}

void ThreadMate::leave() {
    All& all = All::get();
    const std::lock_guard guard(all.lock);
    if (!is_in())
        return;
    process_ = 0;
    ThreadMate** place = &all.first;
    while (*place != this)
        place = &(*place)->next_;
    *place = next_;
    if (is_asked_.exchange(false, std::memory_order_relaxed))
        ucs_callbackq_remove_safe(&worker_.progress_q, id_);
}

bool ThreadMate::has_others(std::uint64_t now) {
    All& all = All::get();
    const std::lock_guard guard(all.lock);
    const void* const here = this_thread();
    thread_.store(here, std::memory_order_relaxed);
    bool has = false;
    for (ThreadMate* mate = all.first; mate != nullptr; mate = mate->next_) {
        if (mate == this || mate->thread_.load(std::memory_order_relaxed) != here)
            continue;
        has = has || mate->is_progressed(now);
        mate->ask();
    }
    return has;
}

bool ThreadMate::is_progressed(std::uint64_t now) const {
    return now < seen_at_.load(std::memory_order_relaxed) + kLatelyNs ||
           questions_.load(std::memory_order_relaxed) < kQuestionsMax;
}

void ThreadMate::ask() {
    questions_.fetch_add(1, std::memory_order_relaxed);
    if (is_asked_.exchange(true, std::memory_order_relaxed))
        return;
    id_ = ucs_callbackq_add_safe(&worker_.progress_q, &ThreadMate::answer, this,
                                 UCS_CALLBACKQ_FLAG_ONESHOT);
}

unsigned ThreadMate::answer(void* arg) {
    auto& self = *static_cast<ThreadMate*>(arg);
    self.thread_.store(this_thread(), std::memory_order_relaxed);
    self.seen_at_.store(ucs::clock_now_ns(), std::memory_order_relaxed);
    self.questions_.store(0, std::memory_order_relaxed);
    self.is_asked_.store(false, std::memory_order_relaxed);
    return 0;
}

}  // namespace tagwire::uct
