// SPDX-License-Identifier: BSD-3-Clause
// The C API: sleeping and waiting. Arguments are checked here.
#include <poll.h>
#include <sched.h>

#include <algorithm>

#include "protocols/api/tw_context.h"
#include "protocols/refuse.hpp"
#include "protocols/worker.hpp"
#include "ucs/time/clock.hpp"

using namespace tagwire::proto;

namespace {

constexpr std::uint64_t kNsPerSecond = 1'000'000'000;

tw_status_t tw(ucs_status_t status) {
    return static_cast<tw_status_t>(status);
}

/// Sleeps until the worker has an event, but not beyond `end_ns`.
tw_status_t sleep_until(Worker& worker, int fd, std::uint64_t end_ns) {
    ucs_status_t armed = UCS_OK;
    {
        const Entry entry(worker);
        armed = worker.arm();
    }
    if (armed != UCS_OK)
        return armed == UCS_ERR_BUSY ? TW_OK : tw(armed);
    pollfd polled{fd, POLLIN, 0};
    const std::uint64_t now = tagwire::ucs::clock_now_ns();
    const std::uint64_t left = end_ns > now ? end_ns - now : 0;
    const timespec time{static_cast<time_t>(std::min(left / kNsPerSecond, UINT64_MAX >> 34)),
                        static_cast<long>(left % kNsPerSecond)};
    ::ppoll(&polled, 1, end_ns == UINT64_MAX ? nullptr : &time, nullptr);
    return TW_OK;
}

}  // namespace

extern "C" {

tw_status_t tw_worker_fd(tw_worker_h worker, int* fd_p) {
    TW_REFUSE_NULL(worker);
    TW_REFUSE_NULL(fd_p);
    const Entry entry(worker_of(worker));
    return tw(worker_of(worker).event_fd(fd_p));
}

tw_status_t tw_worker_arm(tw_worker_h worker) {
    TW_REFUSE_NULL(worker);
    const Entry entry(worker_of(worker));
    return tw(worker_of(worker).arm());
}

tw_status_t tw_worker_signal(tw_worker_h worker) {
    TW_REFUSE_NULL(worker);
    if (!worker_of(worker).has_event_fd())
        TW_REFUSE(TW_ERR_INVALID_PARAM, "tw_worker_fd() was never called");
    worker_of(worker).signal();
    return TW_OK;
}

tw_status_t tw_worker_wait(tw_worker_h handle, tw_wait_mode_t mode, uint64_t timeout_ns) {
    TW_REFUSE_NULL(handle);
    if (mode > TW_WAIT_SLEEP)
        TW_REFUSE(TW_ERR_INVALID_PARAM, "mode %d is none", static_cast<int>(mode));
    Worker& worker = worker_of(handle);
    int fd = -1;
    if (mode == TW_WAIT_SLEEP) {
        const tw_status_t status = tw_worker_fd(handle, &fd);
        if (status != TW_OK)
            return status;
    }
    const std::uint64_t begin = tagwire::ucs::clock_now_ns();
    const std::uint64_t end = begin + std::min(timeout_ns, UINT64_MAX - begin);
    for (;;) {
        if (tw_worker_progress(handle) > 0)
            return TW_OK;
        if (end != UINT64_MAX && tagwire::ucs::clock_now_ns() >= end)
            return TW_ERR_TIMED_OUT;
        if (mode == TW_WAIT_YIELD)
            ::sched_yield();
        if (mode == TW_WAIT_SLEEP) {
            const tw_status_t status = sleep_until(worker, fd, end);
            if (status != TW_OK)
                return status;
        }
    }
}

}  // extern "C"
