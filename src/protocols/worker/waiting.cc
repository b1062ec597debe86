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

ucs_status_t Waiting::event_fd(int* fd_p) {
    std::vector<const Rail*> rails;
    if (const TxContexts* contexts = worker_.tx_contexts())
        rails = contexts->rails();
    for (const auto& rail : worker_.rails())
        rails.push_back(rail.get());
    const bool was_open = wakeup_.is_open();
    const ucs_status_t status = wakeup_.open(rails);
    if (status != UCS_OK)
        return status;
    if (!was_open && worker_.lookout != nullptr)
        add(worker_.lookout->fd());
    *fd_p = wakeup_.fd();
    return UCS_OK;
}

void Waiting::add(int fd) {
    if (wakeup_.is_open() && !wakeup_.add(fd))
        TW_LOG_ERROR("wake-up: connections by host and port do not wake who sleeps: %s",
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

Waiter& Waiting::wake_up(std::uint64_t arming) {
    return protocol_.wake_up(ucs::this_thread(), arming);
}

unsigned Waiting::progress() {
    if (worker_.own_tx != nullptr) {
        const unsigned count = progress_all();
        settle(count > 0);
        return count;
    }
    protocol_.call_in(ucs::this_thread());
    const unsigned count = progress_all();
    settle(false);
    return count;
}

ucs_status_t Waiting::fall_asleep(Waiter& me, std::uint64_t* arming_p) {
    if (worker_.is_multi && !me.event.make())
        return UCS_ERR_IO_ERROR;
    ucs_status_t status = UCS_OK;
    *arming_p = 0;
    if (worker_.is_in_progress())
        protocol_.fall_asleep_beside(me);
    else
        status = protocol_.fall_asleep(me, arming_p);
    if (status == UCS_OK)
        worker_.set_watched(true);
    return status;
}

void Waiting::settle(bool leaves_work) {
    settle_for(ucs::this_thread(), leaves_work);
}

void Waiting::settle_delegated() {
    constexpr std::uintptr_t kNoThread = 1;  // as of a thread that never sleeps
    settle_for(kNoThread, true);
}

void Waiting::settle_for(std::uintptr_t thread, bool leaves_work) {
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
    protocol_.settle(thread, leaves_work);
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
    return status == UCS_OK ? Wakeup::arm(worker_.rails()) : status;
}

std::uint64_t Waiting::ends() const {
    return worker_.ends();
}

unsigned Waiting::progress_all() {
    return worker_.progress_all();
}

void settle_waiting(WorkerCore& worker) {
    worker_of(worker).waiting().settle(true);
}

}  // namespace tagwire::proto
