// SPDX-License-Identifier: BSD-3-Clause
// Waiting for a worker: its descriptor, and the threads that sleep (wait_protocol.hpp).
#include "protocols/worker.hpp"
#include "ucs/log/log.hpp"
#include "ucs/sys/recursive_lock.hpp"

namespace tagwire::proto {

namespace {

std::uintptr_t this_thread() {
    return reinterpret_cast<std::uintptr_t>(&ucs::self_of_thread);
}

}  // namespace

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

unsigned Worker::progress_watched() {
    waits_.call_in(this_thread());
    const unsigned count = progress_all();
    settle(false);
    return count;
}

bool Worker::has_work() const {
    return attention_.has_slow_work() || requests_.has_completions();
}

ucs_status_t Worker::take_and_arm() {
    calls_left_ = 1;  // the next call looks at the clock
    return wakeup_.arm(rails_, peers_.size() == 0 ? UINT64_MAX : next_look_ns_);
}

ucs_status_t Worker::arm() {
    if (!wakeup_.is_open()) {
        TW_LOG_ERROR("arm: nobody has asked for the worker's descriptor");
        return UCS_ERR_INVALID_PARAM;
    }
    if (is_in_progress())
        return UCS_ERR_BUSY;
    const ucs_status_t status = waits_.arm(this_thread());
    settle(false);
    return status;
}

Waiter& Worker::wake_up(std::uint64_t arming) {
    return waits_.wake_up(this_thread(), arming);
}

unsigned Worker::progress_for(const Waiter& me) {
    return waits_.progress_for(me);
}

ucs_status_t Worker::fall_asleep(Waiter& me, std::uint64_t* arming_p) {
    if (is_multi && !me.event.make())
        return UCS_ERR_IO_ERROR;
    const ucs_status_t status = waits_.fall_asleep(me, arming_p);
    if (status == UCS_OK)
        attention_.set_watched(true);
    return status;
}

void Worker::settle(bool leaves_work) {
    if (is_in_progress())
        return;  // a call of a callback: progress settles
    waits_.settle(this_thread(), leaves_work);
    watch();
}

void Worker::watch() {
    attention_.set_watched(waits_.is_watched());
}

}  // namespace tagwire::proto
