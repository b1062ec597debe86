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
//   progress_all()
#pragma once

#include <ucs/type/status.h>

#include <cstdint>
#include <utility>

#include "protocols/worker/waiters.hpp"

namespace tagwire::proto {

template <class Worker, class Event>
class WaitProtocol {
  public:
    using Waiter = BasicWaiter<Event>;

    explicit WaitProtocol(Worker& worker) : worker_(worker) {}
    WaitProtocol(const WaitProtocol&) = delete;
    WaitProtocol& operator=(const WaitProtocol&) = delete;

    /// The thread sleeps on the descriptor next, by itself. UCS_ERR_BUSY: there is something to do.
    ucs_status_t arm(std::uintptr_t thread) {
        Waiter& me = waiters_.of(thread);
        call_in(me);
        const ucs_status_t status = arm_worker(me);
        me.has_armed = status == UCS_OK;
        return status;
    }
    /// The thread progresses next.
    void call_in(std::uintptr_t thread) { call_in(waiters_.of(thread)); }
    /// The thread begins to wait, or has woken. `arming`: what it slept on, if its descriptor has
    /// told of something; else 0.
    Waiter& wake_up(std::uintptr_t thread, std::uint64_t arming) {
        Waiter& me = waiters_.of(thread);
        me.waits = true;
        waiters_.awake(me);
        if (arming != 0 && arming == arming_)
            break_arming(me);
        return me;
    }
    /// Progress, unless other threads sleep and nothing has come.
    unsigned progress_for(const Waiter& me) {
        if (is_armed_ && waiters_.others_sleep(me))
            return 0;
        break_arming(me);
        return worker_.progress_all();
    }
    /// `me` sleeps next. UCS_ERR_BUSY: there is something to progress.
    ucs_status_t fall_asleep(Waiter& me, std::uint64_t* arming_p) {
        if (!is_armed_) {
            const ucs_status_t status = arm_worker(me);
            if (status != UCS_OK)
                return status;
        }
        if (worker_.ends() != ends_slept_at_)
            waiters_.wake_others(me);
        ends_slept_at_ = worker_.ends();
        waiters_.sleep(me);
        *arming_p = arming_;
        return UCS_OK;
    }
    /// `me` sleeps next, on its own event alone, until another thread, which has released the lock
    /// for a callback, is out of progress_all(): nothing settles before, and all are woken then,
    /// for nothing is armed.
    void fall_asleep_beside(Waiter& me) { waiters_.sleep(me); }
    /// Before the lock is released: those who sleep go on sleeping only if nothing has happened and
    /// the worker is armed. `leaves_work`: the call may have left work to progress.
    void settle(std::uintptr_t thread, bool leaves_work) {
        const Waiter& me = waiters_.of(thread);
        if (leaves_work)
            break_arming(me);
        if (!is_armed_ || worker_.ends() != ends_slept_at_)
            waiters_.wake_others(me);
        ends_slept_at_ = worker_.ends();
    }
    /// Calls have to settle.
    [[nodiscard]] bool is_watched() const { return is_armed_ || waiters_.some_sleep(); }

  private:
    void call_in(Waiter& me) {
        me.has_armed = false;
        break_arming(me);
    }
    void break_arming(const Waiter& me) {
        if (std::exchange(is_armed_, false) && waiters_.others_have_armed(me))
            worker_.ring();
    }
    /// This takes away what was rung: others that it was for are covered by the arming, or are
    /// woken.
    ucs_status_t arm_worker(const Waiter& me) {
        if (worker_.has_work())
            return UCS_ERR_BUSY;
        ucs_status_t status = worker_.take_and_arm();
        // Behind the event: a signal whose event was taken is seen here.
        const std::uint64_t now = worker_.signals();
        if (std::exchange(signals_armed_at_, now) != now) {
            waiters_.wake_others(me);
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
    bool is_armed_ = false;               // whatever comes makes the descriptor readable
    std::uint64_t arming_ = 0;            // its number
    std::uint64_t ends_slept_at_ = 0;     // ends() when a thread fell asleep last
    std::uint64_t signals_armed_at_ = 0;  // when its event was taken last
};

}  // namespace tagwire::proto
