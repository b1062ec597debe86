// SPDX-License-Identifier: BSD-3-Clause
// The threads that wait for a worker share its descriptor: which of them sleep, on which arming.
// All with the worker's lock; the rules are those of waiters.hpp. The worker is a template
// parameter so that a model test runs the same text under every schedule:
//
//   has_work()        something is to be progressed or polled
//   take_and_arm()    takes away what was rung, and asks the transports for events; UCS_ERR_BUSY:
//                     something has come
//   signals()         how often somebody signalled, from outside of the lock: it counts, then rings
//   ends()            how much has happened that the program may wait for
//   ring()            makes the descriptor readable
//   count_wake_ups()  of threads by others
//   has_one_lock()    whoever ends something has the lock
//   progress_all()
//
// Progress breaks the arming, and arming costs system calls. So a thread that was woken for that
// alone does not arm again: it sleeps beside the one that polls, which wakes it for what it waits
// for. Nothing tells when that one stops polling, so it looks itself after kBesideMinNs, up to
// kBesideMaxNs, and arms if few polls were made since then. A thread that naps is woken by whatever
// others progress or leave to progress: it looks again, and may nap on.
#pragma once

#include <ucs/type/status.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>

#include "protocols/worker/waiters.hpp"

namespace tagwire::proto {

/// A thread sleeps on this, and on its own event.
struct SleepsOn {
    static constexpr std::uint64_t kUnlimited = UINT64_MAX;
    std::uint64_t arming = 0;           // the worker's descriptor; 0: on that it does not
    std::uint64_t ns_max = kUnlimited;  // less: beside a thread that polls, and on what is rung
    std::uint64_t polls = 0;            // when that began
    /// In place of an arming, for wake_up(): something was rung beside a thread that polls, or it
    /// polls no more.
    static constexpr std::uint64_t kNotBeside = UINT64_MAX;
};

template <class Worker, class Event>
class WaitProtocol {
  public:
    using Waiter = BasicWaiter<Event>;

    static constexpr std::uint64_t kBesideMinNs = 50'000, kBesideMaxNs = 400'000;
    /// Fewer in one sleep are not those of a thread that polls.
    static constexpr std::uint64_t kPollsMin = 8;

    explicit WaitProtocol(Worker& worker) : worker_(worker) {}
    WaitProtocol(const WaitProtocol&) = delete;
    WaitProtocol& operator=(const WaitProtocol&) = delete;

    /// The thread sleeps on the descriptor next, by itself. UCS_ERR_BUSY: there is something to do.
    ucs_status_t arm(std::uintptr_t thread) { return arm_for(thread, false); }
    /// Anything has ended since the thread was to nap last. The program has looked for its
    /// operations since then, and another thread may have ended one since the program looked.
    bool has_news_for_nap(std::uintptr_t thread) {
        const std::uint64_t ends = worker_.ends();
        return std::exchange(waiters_.of(thread).ends_at_nap, ends) != ends;
    }
    /// As arm(), for a while, until end_nap(). `keeps_signals`: the program has the descriptor. A
    /// signal that has come since it was armed last is left there for whoever arms it next.
    ucs_status_t arm_nap(std::uintptr_t thread, bool keeps_signals) {
        if (keeps_signals && worker_.signals() != signals_armed_at_)
            return UCS_ERR_BUSY;
        return arm_for(thread, keeps_signals);
    }
    /// The thread's own event, for a nap on it.
    Event& event_of(std::uintptr_t thread) { return waiters_.of(thread).event; }
    /// The thread, which polls, naps next on its event, or else on `word`: until others wake it
    /// (waiters.hpp, 2), or it ends by itself.
    void begin_nap(std::uintptr_t thread, const typename Event::Word* word) {
        add(nappers_, 1);
        waiters_.nap(waiters_.of(thread), word);
    }
    /// The thread naps no longer: it needs to be told of nothing.
    void end_nap(std::uintptr_t thread) {
        Waiter& me = waiters_.of(thread);
        add(nappers_, -1);
        me.has_armed = false;
        waiters_.awake(me);
    }
    /// Progress of a thread that does not sleep behind it. settle() follows.
    unsigned progress(std::uintptr_t thread) {
        add(polls_, std::uint64_t{1});
        call_in(waiters_.of(thread));
        return move();
    }
    /// Without the lock, for a thread that has slept for on->ns_max beside one that polls: true if
    /// that still does, and then it sleeps again.
    bool sleeps_on(SleepsOn* on) const {
        const std::uint64_t now = polls();
        if (now - std::exchange(on->polls, now) < kPollsMin &&
            nappers_.load(std::memory_order_relaxed) == 0)
            return false;
        on->ns_max = std::min(2 * on->ns_max, kBesideMaxNs);
        return true;
    }
    /// The thread begins to wait, or has woken. `arming`: what it slept on, if its descriptor has
    /// told of something; else 0.
    Waiter& wake_up(std::uintptr_t thread, std::uint64_t arming) {
        Waiter& me = waiters_.of(thread);
        me.waits = true;
        if (me.is_woken && me.relies_on_arming)
            me.others_poll = polls() != me.polls_seen;
        else if (arming != 0)
            me.others_poll = false;
        waiters_.awake(me);
        if (arming != 0 && arming == arming_)
            break_arming(me);
        return me;
    }
    /// Progress. A thread that `falls_asleep` next leaves it to the one that is woken, if others
    /// sleep and nothing has come.
    unsigned progress_for(const Waiter& me, bool falls_asleep) {
        if (falls_asleep && is_armed_ && waiters_.others_sleep(me))
            return 0;
        if (!falls_asleep)
            add(polls_, std::uint64_t{1});
        break_arming(me);
        return move();
    }
    /// `me` sleeps next, until what it wants is there. UCS_ERR_BUSY: there is something to
    /// progress.
    ucs_status_t fall_asleep(Waiter& me, const Wanted& wanted, SleepsOn* on) {
        const bool is_beside = me.others_poll && !is_armed_ && worker_.has_one_lock();
        if (is_beside && worker_.has_work())
            return UCS_ERR_BUSY;
        if (!is_beside && !is_armed_) {
            const ucs_status_t status = arm_worker(me, false);
            if (status != UCS_OK)
                return status;
        }
        BasicWakes<Event> wakes;
        wake_due(me, wakes, false);
        *on = sleep(me, wanted, is_beside);
        return UCS_OK;
    }
    /// `me` sleeps next, on its own event alone, until another thread, which has released the lock
    /// for a callback, is out of progress_all(): nothing settles before, and who sleeps beside no
    /// thread that polls is woken then, for nothing is armed.
    SleepsOn fall_asleep_amid_callback(Waiter& me, const Wanted& wanted) {
        SleepsOn on = sleep(me, wanted, me.others_poll && worker_.has_one_lock());
        on.arming = 0;
        --me.polls_seen;  // that thread may go on polling
        return on;
    }
    /// Before the lock is released: those who sleep go on sleeping only if nothing has happened and
    /// the worker is armed. `leaves_work`: the call may have left work to progress.
    void settle(std::uintptr_t thread, bool leaves_work, BasicWakes<Event>& wakes) {
        const Waiter& me = waiters_.of(thread);
        if (leaves_work) {
            break_arming(me);
            has_moved_ = has_moved_ || (waiters_.some_nap() && worker_.has_work());
        }
        wake_due(me, wakes, !is_armed_ && waiters_.some_rely_on_arming());
    }
    /// Calls have to settle.
    [[nodiscard]] bool is_watched() const {
        return is_armed_ || waiters_.some_sleep() || waiters_.some_nap();
    }

  private:
    ucs_status_t arm_for(std::uintptr_t thread, bool keeps_signals) {
        Waiter& me = waiters_.of(thread);
        call_in(me);
        const ucs_status_t status = arm_worker(me, keeps_signals);
        me.has_armed = status == UCS_OK;
        return status;
    }
    void call_in(Waiter& me) {
        me.has_armed = false;
        break_arming(me);
    }
    SleepsOn sleep(Waiter& me, const Wanted& wanted, bool is_beside) {
        me.wanted = wanted;
        me.polls_seen = polls();
        waiters_.sleep(me, !is_beside);
        return {.arming = is_beside ? 0 : arming_,
                .ns_max = is_beside ? kBesideMinNs : SleepsOn::kUnlimited,
                .polls = me.polls_seen};
    }
    unsigned move() {
        const unsigned moved = worker_.progress_all();
        has_moved_ = has_moved_ || (moved > 0 && waiters_.some_nap());
        return moved;
    }
    /// Wakes those who wait for what has ended since others fell asleep, and those who nap if
    /// anything has moved; `is_disarmed`: also those who rely on the arming.
    void wake_due(const Waiter& me, BasicWakes<Event>& wakes, bool is_disarmed) {
        const std::uint64_t ends = worker_.ends();
        const bool have_ended = std::exchange(ends_slept_at_, ends) != ends;
        const bool has_moved = std::exchange(has_moved_, false);
        if (!is_disarmed && !have_ended && !waiters_.some_nap())
            return;
        wake_others(me, wakes, [&](const Waiter& one) {
            if (one.naps)
                return has_moved || ends != one.ends_at_nap;
            return (is_disarmed && one.relies_on_arming) || (have_ended && one.has_what_it_wants());
        });
    }
    template <class IsDue>
    void wake_others(const Waiter& me, BasicWakes<Event>& wakes, const IsDue& is_due) {
        worker_.count_wake_ups(waiters_.wake_others(me, wakes, is_due));
    }
    [[nodiscard]] std::uint64_t polls() const { return polls_.load(std::memory_order_relaxed); }
    template <class Number>
    static void add(std::atomic<Number>& to, Number amount) {
        to.store(to.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
    }
    void break_arming(const Waiter& me) {
        if (std::exchange(is_armed_, false) && waiters_.others_have_armed(me))
            worker_.ring();
    }
    /// This takes away what was rung: others that it was for are covered by the arming, or are
    /// woken.
    ucs_status_t arm_worker(const Waiter& me, bool keeps_signals) {
        if (worker_.has_work())
            return UCS_ERR_BUSY;
        ucs_status_t status = worker_.take_and_arm();
        // Behind the event: a signal whose event was taken is seen here.
        if (const std::uint64_t now = worker_.signals(); now != signals_armed_at_) {
            if (keeps_signals) {
                worker_.ring();
            } else {
                signals_armed_at_ = now;
                BasicWakes<Event> wakes;
                wake_others(me, wakes, [](const Waiter&) { return true; });
            }
            status = UCS_ERR_BUSY;
        }
        // A transport may have seen a failure.
        if (status == UCS_OK && worker_.has_work())
            status = UCS_ERR_BUSY;
        if (status != UCS_OK) {
            if (waiters_.others_have_armed(me))
                worker_.ring();
            return status;
        }
        is_armed_ = true;
        ++arming_;
        return UCS_OK;
    }

    Worker& worker_;
    Waiters<Event> waiters_;
    bool has_moved_ = false;              // since a thread settled last, while others nap
    bool is_armed_ = false;               // whatever comes makes the descriptor readable
    std::uint64_t arming_ = 0;            // its number
    std::uint64_t ends_slept_at_ = 0;     // ends() when a thread fell asleep last
    std::uint64_t signals_armed_at_ = 0;  // when its event was taken last
    // Written with the lock. Relaxed: who asks without it looks again later.
    std::atomic<std::uint64_t> polls_{0};  // calls of progress of others than who falls asleep next
    std::atomic<int> nappers_{0};          // threads that poll and nap
};

}  // namespace tagwire::proto
