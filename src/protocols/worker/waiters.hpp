// SPDX-License-Identifier: BSD-3-Clause
// The threads that wait for a worker: what each has seen, and what wakes it. Used with the worker's
// lock by the wait protocol (wait_protocol.hpp). `Event` wakes one thread: make(), wake(), take();
// an Event::Word all that nap on it: wake(). The model test brings its own.
//
// 1. A thread that sleeps relies on the worker being armed. Whoever breaks the arming (by progress,
//    or by a call that leaves work to progress) arms again, or wakes the others, before it releases
//    the lock. A thread that sleeps beside one that polls does not: it looks by itself from time to
//    time, and nothing else of these wakes it.
// 2. Whoever ends an operation wakes every thread that sleeps and waits for that (Wanted), and each
//    that naps. Whoever progresses something, or leaves something to progress, wakes those who nap:
//    it may have taken what was to wake them, and may not come back.
// 3. A wake-up is a level: it stays in the thread's own event until that thread has slept on it and
//    takes it. A thread is entered here, with the lock, before it sleeps or naps. So no wake-up is
//    lost; one that comes late is in vain.
// 4. Wake-ups may be written behind the lock (Wakes): a thread that wakes takes the lock first, and
//    may have got the processor of the one that has it.
#pragma once

#include <uct/api/uct.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "ucs/log/repeats.hpp"
#include "ucs/memory/reserve.hpp"
#include "ucs/sys/fd.hpp"

namespace tagwire::proto {

/// A worker whose transport has a word that threads nap on.
struct NapWord {
    uct_worker_h worker = nullptr;
    void wake() const;
};

/// An eventfd.
class WakeEvent {
  public:
    using Word = NapWord;

    /// False: there are no descriptors left (logged).
    bool make();
    void wake() const;
    void take() const;
    int fd() const { return fd_.get(); }

  private:
    ucs::UniqueFd fd_;
    ucs::Repeats refusals_;
};

/// A thread waits for this, and the one that ends it can see that. Asked with the lock, while the
/// thread sleeps. Nothing: each end of anything.
struct Wanted {
    bool (*is_there)(void* arg) = nullptr;
    void* arg = nullptr;
};

template <class Event>
struct BasicWaiter : ucs::FromReserve {
    std::uintptr_t thread = 0;
    std::uint64_t seen_ends = 0;     // when its last tw_worker_wait() returned
    std::uint64_t seen_signals = 0;  // likewise
    std::uint64_t ends_at_nap = 0;   // when it was to nap last; with `naps`, has seen these
    bool waits = false;              // is in a call that waits
    bool sleeps = false;             // waits asleep, and nobody has woken it
    bool naps = false;               // likewise, for a while, in any call that progresses
    bool is_woken = false;           // by another thread, and has not called in since
    bool has_armed = false;          // by tw_worker_arm(), and has not called in since
    bool relies_on_arming = false;   // with `sleeps`; else it looks again by itself
    bool others_poll = false;        // it need not rely on it the next time
    std::uint64_t polls_seen = 0;    // when it fell asleep last
    Wanted wanted;                   // with `sleeps`
    std::atomic<unsigned> wakes{0};  // that are to be written without the lock
    Event event;                     // wakes it alone
    /// With `naps`: on this, and not on `event`.
    const typename Event::Word* word = nullptr;

    [[nodiscard]] bool has_what_it_wants() const {
        return wanted.is_there == nullptr || wanted.is_there(wanted.arg);
    }
};

using Waiter = BasicWaiter<WakeEvent>;

/// Wake-ups of one call, until it has released the lock.
template <class Event>
class BasicWakes {
  public:
    using Waiter = BasicWaiter<Event>;

    BasicWakes() = default;
    BasicWakes(const BasicWakes&) = delete;
    BasicWakes& operator=(const BasicWakes&) = delete;
    ~BasicWakes() { write(); }

    /// With the lock. Those that there is no room for are woken at once.
    void add(Waiter& waiter) {
        if (waiter.naps && waiter.word != nullptr) {
            word_ = waiter.word;
            return;
        }
        if (count_ == all_.size())
            return waiter.event.wake();
        waiter.wakes.fetch_add(1, std::memory_order_relaxed);
        all_[count_++] = &waiter;
    }
    void write() {
        for (; count_ > 0; --count_) {
            Waiter& waiter = *all_[count_ - 1];
            waiter.event.wake();
            // SYNC waiter_woken: pairs with the acquire in Waiters::forget_one(): its event is used
            // no more.
            waiter.wakes.fetch_sub(1, std::memory_order_release);
        }
        if (const auto* word = std::exchange(word_, nullptr))
            word->wake();
    }

  private:
    const typename Event::Word* word_ = nullptr;  // a worker has one
    std::array<Waiter*, 8> all_;
    std::size_t count_ = 0;
};

using Wakes = BasicWakes<WakeEvent>;

template <class Event>
class Waiters {
  public:
    using Waiter = BasicWaiter<Event>;

    /// The entry of a thread, in place while it waits. A thread that was not seen for long begins
    /// anew: its next wait returns at once.
    Waiter& of(std::uintptr_t thread) {
        const auto found =
            std::ranges::find(all_, thread, [](const auto& one) { return one->thread; });
        if (found != all_.end()) {
            std::rotate(found, found + 1, all_.end());
            return *all_.back();
        }
        forget_one();
        all_.push_back(std::make_unique<Waiter>());
        all_.back()->thread = thread;
        return *all_.back();
    }
    bool some_sleep() const { return sleeping_ > 0; }
    bool some_nap() const { return napping_ > 0; }
    bool others_sleep(const Waiter& me) const { return sleeping_ > (me.sleeps ? 1U : 0U); }
    bool others_have_armed(const Waiter& me) const {
        return std::ranges::any_of(all_,
                                   [&](const auto& one) { return one->has_armed && &*one != &me; });
    }
    bool some_rely_on_arming() const { return relying_ > 0; }
    void sleep(Waiter& waiter, bool relies_on_arming) {
        waiter.sleeps = true;
        waiter.relies_on_arming = relies_on_arming;
        ++sleeping_;
        relying_ += relies_on_arming ? 1 : 0;
    }
    /// On its event, or on `word`.
    void nap(Waiter& waiter, const typename Event::Word* word) {
        waiter.naps = true;
        waiter.word = word;
        ++napping_;
    }
    /// The thread is awake, whoever woke it.
    void awake(Waiter& waiter) {
        waiter.is_woken = false;
        end_rest(waiter);
    }
    /// Wakes those that sleep or nap and that `is_due(const Waiter&)` selects; returns how many.
    template <class IsDue>
    unsigned wake_others(const Waiter& me, BasicWakes<Event>& wakes, const IsDue& is_due) {
        unsigned count = 0;
        if (!others_sleep(me) && !some_nap())
            return count;
        for (const auto& waiter : all_) {
            if ((!waiter->sleeps && !waiter->naps) || &*waiter == &me || !is_due(*waiter))
                continue;
            wakes.add(*waiter);
            end_rest(*waiter);
            waiter->is_woken = true;
            ++count;
        }
        return count;
    }

  private:
    /// Threads come and go, and nothing tells: so many that do not wait are remembered.
    static constexpr std::size_t kRemembered = 64;

    void end_rest(Waiter& waiter) {
        if (std::exchange(waiter.sleeps, false)) {
            --sleeping_;
            relying_ -= waiter.relies_on_arming ? 1 : 0;
        }
        if (std::exchange(waiter.naps, false))
            --napping_;
    }
    void forget_one() {
        const auto is_idle = [](const auto& one) {
            // SYNC waiter_woken: pairs with the release in Wakes::write().
            return !one->waits && !one->naps && !one->is_woken &&
                   one->wakes.load(std::memory_order_acquire) == 0;
        };
        if (static_cast<std::size_t>(std::ranges::count_if(all_, is_idle)) < kRemembered)
            return;
        const auto oldest = std::ranges::find_if(
            all_, [&](const auto& one) { return is_idle(one) && !one->has_armed; });
        all_.erase(oldest != all_.end() ? oldest : std::ranges::find_if(all_, is_idle));
    }

    // From the reserve: progress takes note of the thread that calls it, and cannot fail.
    ucs::ReserveVector<std::unique_ptr<Waiter>> all_;  // those seen last are at the end
    std::size_t sleeping_ = 0;
    std::size_t relying_ = 0;  // of these, on the arming
    std::size_t napping_ = 0;
};

}  // namespace tagwire::proto
