// SPDX-License-Identifier: BSD-3-Clause
// Workers that one thread progresses in turn. While one of them naps the others stand still, so
// none does.
//
// A worker does not know who progresses it: its calls of progress shall not tell each time. Whoever
// wants to know gives it a callback that runs once, and reads the answer the next time.
#pragma once

#include <uct/api/uct.h>

#include <atomic>
#include <cstdint>

namespace tagwire::uct {

/// A worker among all of the process.
/// Threads: the owner's, as Worker; others meet it in has_others() of theirs.
class ThreadMate {
  public:
    /// A time at most so long ago is "lately"; nanoseconds. Looks at peers that wait for naps are
    /// closer.
    static constexpr std::uint64_t kLatelyNs = 10'000'000;
    /// One that leaves so many questions unanswered is not progressed. A time alone would not do:
    /// a thread without a processor asks and answers nothing, for as long as that lasts.
    static constexpr unsigned kQuestionsMax = 64;

    explicit ThreadMate(uct_worker_t& worker) : worker_(worker) {}
    ThreadMate(const ThreadMate&) = delete;
    ThreadMate& operator=(const ThreadMate&) = delete;
    ~ThreadMate() { leave(); }

    /// Others take note of it from now on. Again: nothing.
    void enter(std::uint64_t now);
    /// No more. Before the worker's callbacks end. Again: nothing.
    void leave();
    /// The calling thread progresses this one, and has progressed others lately, as far as it is
    /// known: the first answer of one that another thread made comes late.
    bool has_others(std::uint64_t now);

  private:
    static unsigned answer(void* arg);
    [[nodiscard]] bool is_in() const;
    [[nodiscard]] bool is_progressed(std::uint64_t now) const;
    void ask();

    uct_worker_t& worker_;
    // Under the lock of all:
    unsigned process_ = 0;  // of enter(), 0 behind leave(): a child has none of its parent's
    int id_ = UCS_CALLBACKQ_ID_NULL;
    ThreadMate* next_ = nullptr;
    // Written by answer() in the thread that progresses it, read by has_others() in any: relaxed,
    // for each is a hint by itself.
    std::atomic<const void*> thread_{nullptr};
    std::atomic<std::uint64_t> seen_at_{0};
    // has_others() of any thread adds to it, the next answer clears it. Relaxed: a hint, too.
    std::atomic<unsigned> questions_{0};
    // Set by ask(), cleared by answer(), which add_safe() orders behind it.
    std::atomic<bool> is_asked_{false};
};

}  // namespace tagwire::uct
