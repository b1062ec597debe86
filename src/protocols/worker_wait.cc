// SPDX-License-Identifier: BSD-3-Clause
// How a worker is waited for: its descriptor, and the threads that sleep (waiters.hpp).
#include "protocols/worker.hpp"
#include "ucs/log/log.hpp"

namespace tagwire::proto {

ucs_status_t Worker::event_fd(int* fd_p) {
    const ucs_status_t status = wakeup_.open(rails_);
    if (status == UCS_OK)
        *fd_p = wakeup_.fd();
    return status;
}

void Worker::signal() {
    // SYNC worker_signal: pairs with the acquire in signals().
    signals_.fetch_add(1, std::memory_order_release);
    // Behind it: who takes the event away looks at the number next.
    wakeup_.ring();
}

/// Asks the interfaces for events. This takes away what was rung: others that it was for are
/// covered by the arming, or are woken.
ucs_status_t Worker::arm_rails(const Waiter& me) {
    if ((attention_ & kSlowWork) != 0 || has_completions())
        return UCS_ERR_BUSY;
    calls_left_ = 1;  // the next call looks at the clock
    ucs_status_t status = wakeup_.arm(rails_, names_.size() == 0 ? UINT64_MAX : next_look_ns_);
    // Behind the event: a signal whose event was taken is seen here.
    const std::uint64_t now = signals();
    if (std::exchange(signals_armed_at_, now) != now) {
        waiters_.wake_others(me);
        status = UCS_ERR_BUSY;
    }
    // An interface may have seen a failure.
    if (status == UCS_OK && (attention_ & kSlowWork) != 0)
        status = UCS_ERR_BUSY;
    if (status != UCS_OK) {
        if (waiters_.others_have_armed(me))
            wakeup_.ring();
        return status;
    }
    is_armed_ = true;
    ++arming_;
    attention_ |= kWatched;
    return UCS_OK;
}

void Worker::break_arming(const Waiter& me) {
    if (std::exchange(is_armed_, false) && waiters_.others_have_armed(me))
        wakeup_.ring();
}

ucs_status_t Worker::arm() {
    if (!wakeup_.is_open()) {
        TW_LOG_ERROR("arm: nobody has asked for the worker's descriptor");
        return UCS_ERR_INVALID_PARAM;
    }
    if (is_in_progress())
        return UCS_ERR_BUSY;
    Waiter& me = waiters_.mine();
    me.has_armed = false;
    break_arming(me);
    const ucs_status_t status = arm_rails(me);
    me.has_armed = status == UCS_OK;
    settle(false);
    return status;
}

Waiter& Worker::wake_up(std::uint64_t arming) {
    Waiter& me = waiters_.mine();
    me.waits = true;
    waiters_.awake(me);
    if (arming != 0 && arming == arming_)
        break_arming(me);
    return me;
}

unsigned Worker::progress_for(const Waiter& me) {
    if (is_armed_ && waiters_.others_sleep(me))
        return 0;
    break_arming(me);
    return progress_all();
}

ucs_status_t Worker::fall_asleep(Waiter& me, std::uint64_t* arming_p) {
    if (is_multi && !waiters_.make_event(me))
        return UCS_ERR_IO_ERROR;
    if (!is_armed_) {
        const ucs_status_t status = arm_rails(me);
        if (status != UCS_OK)
            return status;
    }
    if (ends() != ends_slept_at_)
        waiters_.wake_others(me);
    ends_slept_at_ = ends();
    waiters_.sleep(me);
    *arming_p = arming_;
    return UCS_OK;
}

void Worker::settle(bool leaves_work) {
    if (is_in_progress())
        return;  // a call of a callback: progress settles
    const Waiter& me = waiters_.mine();
    if (leaves_work)
        break_arming(me);
    if (!is_armed_ || ends() != ends_slept_at_)
        waiters_.wake_others(me);
    ends_slept_at_ = ends();
    if (!is_armed_ && !waiters_.some_sleep())
        attention_ &= static_cast<std::uint8_t>(~kWatched);
}

}  // namespace tagwire::proto
