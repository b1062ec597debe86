// SPDX-License-Identifier: BSD-3-Clause
// The thread that drives the device when no application thread does.
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "vhca/engine/engine.hpp"

namespace tagwire::vhca {

namespace {

/// While an application thread polls all the time, the helper looks ever more rarely, down to this.
/// A peer that has to wait meanwhile knocks.
constexpr Time kPatienceMaxNs = 2'000'000;
/// For so long the helper looks for more packets before it goes to sleep: longer while that pays,
/// shorter when it was in vain, because another thread may want the processor.
constexpr Time kLingerMinNs = 500, kLingerMaxNs = 25'000;
/// When the device waits for room in a ring, which nobody announces.
constexpr Time kRoomWaitNs = 50'000;

timespec timespec_of(Time ns) {
    constexpr Time kSecond = 1'000'000'000;
    return {static_cast<time_t>(ns / kSecond), static_cast<long>(ns % kSecond)};
}

}  // namespace

int Engine::start_helper() {
    // Signals are the program's: none of them is to be handled by this thread, but for its own
    // faults (fault_handler.hpp).
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    const int error = pthread_create(
        &thread, nullptr,
        [](void* engine) -> void* {
            static_cast<Engine*>(engine)->help();
            return nullptr;
        },
        this);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (error == 0) {
        pthread_setname_np(thread, "tagwire-vhca");
        pthread_detach(thread);
    }
    return error;
}

void Engine::help() {
    prctl(PR_SET_TIMERSLACK, 1'000UL);
    Time wait_ns = kTakeOverNs;
    // SYNC pump_: pairs with set_pump()
    while (pump_.load(std::memory_order_acquire) == nullptr) {
        std::array<pollfd, 3> fds{{{.fd = fabric_->epoll_fd(), .events = POLLIN, .revents = 0},
                                   {.fd = bell_.get(), .events = POLLIN, .revents = 0},
                                   {.fd = control_.fd(), .events = POLLIN, .revents = 0}}};
        const timespec timeout = timespec_of(wait_ns);
        ppoll(fds.data(), fds.size(), wait_ns == kNever ? nullptr : &timeout, nullptr);
        wake_ups_.fetch_add(1, std::memory_order_relaxed);
        if (fds[2].revents != 0) [[unlikely]]
            control_.serve(*this);
        std::uint64_t rung = 0;
        if (fds[1].revents != 0 && ::read(bell_.get(), &rung, sizeof rung) < 0)
            rung = 0;
        const bool was_asked = fds[0].revents != 0;
        if (was_asked) {
            mutex_.lock();
            fabric_->service();
            mutex_.unlock_quietly();
        } else if (rung != 0) {
            // An application thread was here. Give it the time to go on by itself.
            polls_seen_ = polls_.load(std::memory_order_relaxed);
            patience_ns_ = wait_ns = kTakeOverNs;
            continue;
        }
        wait_ns = help_once(was_asked);
    }
    help_pump();
}

// Returns how long to sleep if nothing happens.
Time Engine::help_once(bool was_asked) {
    const std::uint64_t polls = polls_.load(std::memory_order_relaxed);
    clock_.refine();
    if (polls != polls_seen_ && !was_asked) {
        polls_seen_ = polls;
        // A packet that waits may have been left by the last poll: look again soon.
        patience_ns_ =
            fabric_->is_neglected() ? kTakeOverNs : std::min(2 * patience_ns_, kPatienceMaxNs);
        return patience_ns_;
    }
    // Somebody polls, but not often enough for a peer that knocked: help once.
    const bool is_guest = polls != polls_seen_;
    polls_seen_ = polls;
    patience_ns_ = kTakeOverNs;
    Time wait_ns = kTakeOverNs;
    Time last_work = now();
    while (take_over(&last_work, &wait_ns)) {
        // Application threads come first.
        if (is_guest || polls_.load(std::memory_order_relaxed) != polls)
            return kTakeOverNs;
    }
    return wait_ns;
}

// One turn. False: enough, sleep for *wait_ns_p.
bool Engine::take_over(Time* last_work_p, Time* wait_ns_p) {
    if (!mutex_.try_lock())
        return false;  // somebody is at it
    take_overs_.fetch_add(1, std::memory_order_relaxed);
    mutex_.clear_wake();
    const Time time = now();
    bool goes_on = true;
    if (drive(time) != 0) {
        *last_work_p = time;
        linger_ns_ = std::min(2 * linger_ns_, kLingerMaxNs);
    } else if (time - *last_work_p >= linger_ns_) {
        linger_ns_ = std::max(linger_ns_ / 2, kLingerMinNs);
        goes_on = !falls_asleep(time, wait_ns_p);
    }
    mutex_.unlock_quietly();
    return goes_on;
}

// Under the lock. False: packets are there already.
bool Engine::falls_asleep(Time time, Time* wait_ns_p) {
    if (!fabric_->arm())
        return false;
    mutex_.wake_at_next_unlock(bell_.get());
    *wait_ns_p = deadline_ == kNever ? kNever : deadline_ <= time ? kRoomWaitNs : deadline_ - time;
    return true;
}

// ---- With a pump -------------------------------------------------------------------------------

void Engine::help_pump() {
    Pump& pump = *pump_.load(std::memory_order_relaxed);
    for (;;) {
        Time last_work = now(), wait_ns = 0;
        while (pump_once(&last_work, &wait_ns)) {
        }
        std::array<pollfd, 4> fds{{{.fd = fabric_->epoll_fd(), .events = POLLIN, .revents = 0},
                                   {.fd = bell_.get(), .events = POLLIN, .revents = 0},
                                   {.fd = control_.fd(), .events = POLLIN, .revents = 0},
                                   {.fd = pump.fd(), .events = POLLIN, .revents = 0}}};
        wait_ns = std::min(wait_ns, pump.nap());
        const timespec timeout = timespec_of(wait_ns);
        ppoll(fds.data(), fds.size(), wait_ns == kNever ? nullptr : &timeout, nullptr);
        wake_ups_.fetch_add(1, std::memory_order_relaxed);
        if (fds[2].revents != 0) [[unlikely]]
            control_.serve(*this);
        std::uint64_t rung = 0;
        if (fds[1].revents != 0 && ::read(bell_.get(), &rung, sizeof rung) < 0)
            rung = 0;
        mutex_.lock();
        mutex_.clear_wake();
        if (fds[0].revents != 0)
            fabric_->service();
        clock_.refine();
        pump.wake(now());
        mutex_.unlock_quietly();
    }
}

// One turn. False: nothing moves; sleep for *wait_ns_p.
bool Engine::pump_once(Time* last_work_p, Time* wait_ns_p) {
    Pump& pump = *pump_.load(std::memory_order_relaxed);
    mutex_.lock();
    take_overs_.fetch_add(1, std::memory_order_relaxed);
    const Time time = now();
    const bool posted = pump.pump(time);
    bool goes_on = true;
    if (drive(time) != 0 || posted) {
        *last_work_p = time;
        // Lingering paid off only if the device was idle before; work in a row needs no wait.
        if (std::exchange(was_idle_, false))
            linger_ns_ = std::min(2 * linger_ns_, kLingerMaxNs);
    } else if (time - *last_work_p < linger_ns_) {
        was_idle_ = true;
    } else {
        linger_ns_ = std::max(linger_ns_ / 2, kLingerMinNs);
        was_idle_ = false;
        pump.rest();
        goes_on = pump.pump(time) || !falls_asleep(time, wait_ns_p);
        if (goes_on) {
            pump.wake(time);
            *last_work_p = time;
        }
    }
    mutex_.unlock_quietly();
    return goes_on;
}

}  // namespace tagwire::vhca
