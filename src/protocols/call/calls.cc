// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/call/calls.hpp"

#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "ucs/log/log.hpp"
#include "ucs/time/clock.hpp"

namespace tagwire::proto {

Calls::Calls(const CallPorts& ports)
    : to_(ports),
      outgoing_(
          to_.port,
          {this, [](void* self, std::uint64_t at) { static_cast<Calls*>(self)->wake_at(at); }},
          to_.limits.bytes_max),
      incoming_(to_.port, to_.limits) {}

ucs_status_t Calls::create(const CallPorts& ports, std::unique_ptr<Calls>* calls_p) {
    std::unique_ptr<Calls> calls(new Calls(ports));
    calls->timer_.reset(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
    if (!calls->timer_) {
        TW_LOG_ERROR("remote calls: timerfd_create: %s", std::strerror(errno));
        return UCS_ERR_IO_ERROR;
    }
    *calls_p = std::move(calls);
    return UCS_OK;
}

void Calls::on_request(void* calls, tw_am_t* am) {
    static_cast<Calls*>(calls)->incoming_.on_request(*am);
}

void Calls::on_reply(void* calls, tw_am_t* am) {
    static_cast<Calls*>(calls)->outgoing_.on_reply(*am);
}

// ---- Time

/// An earlier time alone costs a system call: calls with one timeout set the timer once in it.
void Calls::wake_at(std::uint64_t at_ns) {
    const std::lock_guard locked(timer_lock_);
    if (at_ns < timer_ns_)
        set_timer(at_ns);
}

void Calls::set_timer(std::uint64_t at_ns) {
    timer_ns_ = at_ns;
    itimerspec time{};
    if (at_ns != UINT64_MAX)  // a time of 0 would stop the timer
        time.it_value = ucs::timespec_of(std::max<std::uint64_t>(at_ns, 1));
    ::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &time, nullptr);
}

/// The timer has told what it was set for.
void Calls::renew_timer(std::uint64_t now) {
    const std::lock_guard locked(timer_lock_);
    if (timer_ns_ > now)
        return;
    std::uint64_t next = outgoing_.due_ns();
    if (incoming_.has_refusals())
        next = std::min(next, now + kRefusalsNs);
    set_timer(next);
}

// ---- Progress

void Calls::peer_ended(std::uint64_t worker_id, tw_status_t status) {
    ended_.push_back(
        {worker_id, outgoing_.numbers(), status == TW_OK ? TW_ERR_NOT_CONNECTED : status});
    wake_at(0);
}

unsigned Calls::look() {
    const std::uint64_t due = outgoing_.due_ns();
    if (due == UINT64_MAX && ended_.empty() && !incoming_.has_refusals())
        return 0;
    const std::uint64_t now = to_.port.now_ns();
    if (due > now && ended_.empty() && !incoming_.has_refusals())
        return 0;
    const auto ended = std::exchange(ended_, {});
    unsigned count = 0;
    {
        const ProgramCall call(to_.callbacks);
        count = outgoing_.look();
        for (const EndedPeer& each : ended)
            count += outgoing_.end_of_peer(each);
        incoming_.look();
        renew_timer(now);
    }
    to_.callbacks.attention.count_events(count);
    return count;
}

}  // namespace tagwire::proto
