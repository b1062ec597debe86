// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/worker/waiting.hpp"

#include <cerrno>
#include <cstring>

#include "protocols/worker/entry.hpp"
#include "protocols/worker/tx_contexts.hpp"
#include "protocols/worker/worker.hpp"
#include "ucs/log/log.hpp"
#include "ucs/sys/thread_name.hpp"

namespace tagwire::proto {

/// `level`: of what the log says where it is refused.
ucs_status_t Waiting::open(int* fd_p, ucs::LogLevel level) {
    *fd_p = wakeup_.fd();
    if (wakeup_.is_open())
        return UCS_OK;
    std::vector<const Rail*> rails;
    if (const TxContexts* contexts = worker_.tx_contexts())
        rails = contexts->rails();
    for (const auto& rail : worker_.rails())
        rails.push_back(rail.get());
    const ucs_status_t status = wakeup_.open(rails, level);
    if (status != UCS_OK)
        return status;
    for (const auto& lookout : worker_.lookouts)
        if (lookout != nullptr)
            add(lookout->fd());
    *fd_p = wakeup_.fd();
    return UCS_OK;
}

ucs_status_t Waiting::event_fd_of_program(int* fd_p) {
    const ucs_status_t status = event_fd(fd_p);
    has_told_fd_ |= status == UCS_OK;
    return status;
}

void Waiting::add(int fd) {
    if (wakeup_.is_open() && !wakeup_.add(fd))
        TW_LOG_ERROR(
            "wake-up: connections by host and port, or the time of calls, do not wake who sleeps: "
            "%s",
            std::strerror(errno));
}

void Waiting::signal() {
    // SYNC worker_signal: pairs with the acquire in signals().
    signals_.fetch_add(1, std::memory_order_release);
    // Behind it: who takes the event away looks at the number next.
    wakeup_.ring();
}

ucs_status_t Waiting::arm() {
    if (!wakeup_.is_open()) {
        TW_LOG_ERROR("tw_worker_arm: call tw_worker_fd() first");
        return UCS_ERR_INVALID_PARAM;
    }
    if (worker_.is_in_progress())
        return UCS_ERR_BUSY;
    const ucs_status_t status = protocol_.arm(ucs::this_thread());
    settle(false);
    return status;
}

ucs_status_t Waiting::arm_nap(int* fd_p) {
    ucs_status_t status = open(fd_p, ucs::LogLevel::kDebug);
    if (status != UCS_OK)
        return status;
    status = protocol_.arm_nap(ucs::this_thread(), has_told_fd_);
    settle(false);
    return status;
}

const WakeEvent* Waiting::event_for_nap() {
    if (!worker_.is_multi)
        return nullptr;
    WakeEvent& event = protocol_.event_of(ucs::this_thread());
    return event.make() ? &event : nullptr;
}

void Waiting::begin_nap(const NapWord* word) {
    if (!worker_.is_multi)
        return;
    protocol_.begin_nap(ucs::this_thread(), word);
    worker_.set_watched(true);
}

bool Waiting::has_news_for_nap() {
    return worker_.is_multi && protocol_.has_news_for_nap(ucs::this_thread());
}

// Naps make calls rare.
void Waiting::end_nap() {
    worker_.look_soon();
    if (worker_.is_multi)
        protocol_.end_nap(ucs::this_thread());
}

Waiter& Waiting::wake_up(std::uint64_t arming) {
    return protocol_.wake_up(ucs::this_thread(), arming);
}

unsigned Waiting::progress() {
    return worker_.own_tx == nullptr ? protocol_.progress(ucs::this_thread()) : progress_all();
}

ucs_status_t Waiting::fall_asleep(Waiter& me, const Wanted& wanted, SleepsOn* on) {
    if (worker_.is_multi && !me.event.make())
        return UCS_ERR_IO_ERROR;
    ucs_status_t status = UCS_OK;
    if (worker_.is_in_progress())
        *on = protocol_.fall_asleep_amid_callback(me, wanted);
    else
        status = protocol_.fall_asleep(me, wanted, on);
    if (status == UCS_OK)
        worker_.set_watched(true);
    return status;
}

// Without an arming the worker's descriptor may tell of what progress is about to take.
int Waiting::fd_of(const SleepsOn& on) const {
    if (on.arming != 0)
        return wakeup_.fd();
    return on.ns_max != SleepsOn::kUnlimited ? wakeup_.event_fd() : -1;
}

void Waiting::settle(bool leaves_work, Wakes& wakes) {
    settle_for(ucs::this_thread(), leaves_work, wakes);
}

void Waiting::settle_delegated() {
    constexpr std::uintptr_t kNoThread = 1;  // as of a thread that never sleeps
    Wakes wakes;
    settle_for(kNoThread, true, wakes);
}

void Waiting::settle_for(std::uintptr_t thread, bool leaves_work, Wakes& wakes) {
    if (worker_.is_in_progress())
        return;  // a callback runs: progress settles
    if (worker_.own_tx != nullptr) {
        // The threads that sleep do so on the front.
        if (leaves_work) {
            worker_.set_watched(false);
            worker_of(worker_.own_tx->front).waiting().ring();
        }
        return;
    }
    protocol_.settle(thread, leaves_work, wakes);
    worker_.set_watched(protocol_.is_watched());
}

// ---- For WaitProtocol

bool Waiting::has_work() const {
    return worker_.has_work();
}

ucs_status_t Waiting::take_and_arm() {
    std::uint64_t deadline_ns = worker_.look_at_clock_next();
    ucs_status_t status = wakeup_.take();
    if (const TxContexts* contexts = worker_.tx_contexts(); contexts != nullptr && status == UCS_OK)
        status = contexts->arm(&deadline_ns);
    if (status == UCS_OK)
        status = wakeup_.set_timer(deadline_ns);
    if (status == UCS_OK)
        status = Wakeup::arm(worker_.rails());
    // Progress handles whatever has made it readable.
    return status == UCS_OK && wakeup_.is_readable() ? UCS_ERR_BUSY : status;
}

std::uint64_t Waiting::ends() const {
    const TxContexts* contexts = worker_.tx_contexts();
    return worker_.ends() + (contexts == nullptr ? 0 : contexts->ends());
}

void Waiting::count_wake_ups(unsigned number) {
    worker_.count(WorkerCounter::kWakeUps, number);
}

bool Waiting::has_one_lock() const {
    return worker_.tx_contexts() == nullptr;
}

unsigned Waiting::progress_all() {
    return worker_.progress_all();
}

void settle_waiting(WorkerCore& worker) {
    worker_of(worker).waiting().settle(true);
}

}  // namespace tagwire::proto
