// SPDX-License-Identifier: BSD-3-Clause
// Attention of a worker's progress: the reasons to do more than progress the transports, and the
// number of events that the program may have seen. The parts of a worker share it.
#pragma once

#include <atomic>
#include <cstdint>

#include "ucs/debug/check.hpp"
#include "ucs/sys/thread_name.hpp"

namespace tagwire::proto {

class Attention {
  public:
    /// `is_shared`: any thread may progress the worker, one at a time, and others may call while
    /// its callbacks run.
    explicit Attention(bool is_shared) : is_shared_(is_shared) {}

    /// False: the common case, read once per call of progress.
    bool is_needed() const { return bits_ != 0; }
    /// The worker is of one thread, and no attention is needed. Asked without the worker's lock.
    bool is_plain() const { return !is_shared_ && bits_ == 0; }

    /// A thread is inside progress: this one, or one whose callback runs.
    bool is_in_progress() const { return (bits_ & kInProgress) != 0; }
    /// The calling thread is, in a callback.
    bool is_in_progress_here() const {
        return is_in_progress() && (!is_shared_ || is_progressing_thread());
    }
    /// The calling thread is. Asked without the worker's lock, which a callback does not have.
    bool is_progressing_thread() const {
        // Relaxed: this thread wrote it, or it names another thread or none.
        return thread_.load(std::memory_order_relaxed) == ucs::this_thread();
    }
    void begin_progress() {
        bits_ |= kInProgress;
        if (is_shared_)
            thread_.store(ucs::this_thread(), std::memory_order_relaxed);
    }
    void end_progress() {
        bits_ = static_cast<std::uint8_t>(bits_ & ~kInProgress);
        if (is_shared_)
            thread_.store(0, std::memory_order_relaxed);
    }

    /// begin_progress() where no attention is needed.
    template <bool kIsShared>
    void begin_plain() {
        bits_ = kInProgress;
        if constexpr (kIsShared)
            thread_.store(ucs::this_thread(), std::memory_order_relaxed);
    }
    /// Still none is needed.
    bool is_plain_inside() const { return bits_ == kInProgress; }
    /// end_progress() where that holds.
    template <bool kIsShared>
    void end_plain() {
        bits_ = 0;
        if constexpr (kIsShared)
            thread_.store(0, std::memory_order_relaxed);
    }

    /// The next call of progress runs the slow work.
    void ask_slow_work() { bits_ |= kSlowWork; }
    bool has_slow_work() const { return (bits_ & kSlowWork) != 0; }
    void take_slow_work() { bits_ = static_cast<std::uint8_t>(bits_ & ~kSlowWork); }

    /// Ends of operations wait to be told by callbacks.
    void set_deferred(bool is_deferred) {
        bits_ = static_cast<std::uint8_t>(is_deferred ? bits_ | kDeferred : bits_ & ~kDeferred);
    }
    bool has_deferred() const { return (bits_ & kDeferred) != 0; }

    // ---- Where callbacks may run; looked at in debug builds

    /// The library walks a list, or carries out a call of another thread: no callback runs.
    void begin_walk() { ++walks_; }
    void end_walk() { --walks_; }
    void begin_callback() {
        TW_ASSERT(walks_ == 0);
        TW_ASSERT(!is_in_callback_);
        is_in_callback_ = true;
    }
    void end_callback() { is_in_callback_ = false; }

    /// The next call of progress gives the processor away first.
    void ask_away(bool naps) {
        bits_ = static_cast<std::uint8_t>((bits_ & ~kNap) | kAway | (naps ? kNap : 0));
    }
    bool is_away_wanted() const { return (bits_ & kAway) != 0; }
    /// True: a nap, else a yield.
    bool take_away() {
        const bool naps = (bits_ & kNap) != 0;
        bits_ = static_cast<std::uint8_t>(bits_ & ~(kAway | kNap));
        return naps;
    }

    /// The descriptor is armed, or a thread sleeps.
    bool is_watched() const { return (bits_ & kWatched) != 0; }
    void set_watched(bool is_watched) {
        bits_ = static_cast<std::uint8_t>(is_watched ? bits_ | kWatched : bits_ & ~kWatched);
    }

    /// No call of progress is a plain one from now on.
    void set_heard() { bits_ |= kHeard; }

    /// An operation has ended, or the program is told of something else.
    void count_events(std::uint64_t number = 1) { events_ += number; }
    std::uint64_t events() const { return events_; }

  private:
    static constexpr std::uint8_t kInProgress = 1;
    static constexpr std::uint8_t kSlowWork = 2;
    static constexpr std::uint8_t kWatched = 4;
    static constexpr std::uint8_t kDeferred = 8;
    static constexpr std::uint8_t kAway = 16;
    static constexpr std::uint8_t kNap = 32;  // with kAway
    static constexpr std::uint8_t kHeard = 64;

    // The worker's lock guards all but the last.
    std::uint8_t bits_ = 0;
    bool is_in_callback_ = false;
    std::uint16_t walks_ = 0;
    std::atomic<std::uintptr_t> thread_{0};  // that is inside progress, if it is shared
    std::uint64_t events_ = 0;
    const bool is_shared_;
};

/// A callback of the program runs: outside of each Walk, and not inside another callback.
class InCallback {
  public:
    explicit InCallback(Attention& attention) : attention_(attention) {
        if constexpr (ucs::kDebugChecks)
            attention_.begin_callback();
    }
    InCallback(const InCallback&) = delete;
    InCallback& operator=(const InCallback&) = delete;
    ~InCallback() {
        if constexpr (ucs::kDebugChecks)
            attention_.end_callback();
    }

  private:
    [[maybe_unused]] Attention& attention_;
};

/// The library walks a list of its worker, or carries out a call of another thread on it: nothing
/// of the program runs meanwhile, which debug builds assert.
class Walk {
  public:
    explicit Walk(Attention& attention) : attention_(attention) {
        if constexpr (ucs::kDebugChecks)
            attention_.begin_walk();
    }
    Walk(const Walk&) = delete;
    Walk& operator=(const Walk&) = delete;
    ~Walk() {
        if constexpr (ucs::kDebugChecks)
            attention_.end_walk();
    }

  private:
    [[maybe_unused]] Attention& attention_;
};

}  // namespace tagwire::proto
