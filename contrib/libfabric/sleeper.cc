// SPDX-License-Identifier: BSD-3-Clause
#include "sleeper.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <iterator>
#include <utility>

namespace tagwire::fi {

namespace {

int watch(int epoll, int fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : -errno;
}

std::uint64_t now_ns() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

}  // namespace

Sleeper::~Sleeper() {
    for (const int fd : {fd_, workers_fd_, outer_, inner_})
        if (fd >= 0)
            close(fd);
}

int Sleeper::open() {
    const auto is_made = [](int* fd_p, int fd) {
        *fd_p = fd;
        return fd >= 0;
    };
    if (!is_made(&workers_fd_, epoll_create1(EPOLL_CLOEXEC)) ||
        !is_made(&outer_, eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) ||
        !is_made(&inner_, eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) ||
        !is_made(&fd_, epoll_create1(EPOLL_CLOEXEC)))
        return -errno;
    int status = watch(fd_, workers_fd_);
    if (status == 0)
        status = watch(fd_, outer_);
    if (status != 0)
        return status;
    return without_exceptions([this] {
        pollers_.reserve(kPollersMax);
        return 0;
    });
}

int Sleeper::add(tw_worker_h worker, const bool* is_restless) {
    if (!is_open())
        return 0;
    int fd = -1;
    const tw_status_t status = tw_worker_fd(worker, &fd);
    if (status != TW_OK)
        return -error_of(status);
    return without_exceptions([&] {
        workers_.push_back({worker, is_restless});
        const int error = watch(workers_fd_, fd);
        if (error != 0)
            workers_.pop_back();
        return error;
    });
}

void Sleeper::remove(tw_worker_h worker) {
    int fd = -1;
    const auto count =
        std::erase_if(workers_, [worker](const Watched& one) { return one.worker == worker; });
    if (count > 0 && tw_worker_fd(worker, &fd) == TW_OK)
        epoll_ctl(workers_fd_, EPOLL_CTL_DEL, fd, nullptr);
}

bool Sleeper::arm_workers() {
    const bool is_idle = std::ranges::all_of(workers_, [](const Watched& one) {
        return (one.is_restless == nullptr || !*one.is_restless) &&
               tw_worker_arm(one.worker) == TW_OK;
    });
    // Where it is not, others who have armed before may sleep still.
    is_armed_ = is_armed_ || is_idle;
    return is_idle;
}

bool Sleeper::try_arm() {
    poller_calls();
    if (others_are_to_wake())
        return false;
    eventfd_t value;
    eventfd_read(outer_, &value);
    if (!arm_workers())
        return false;
    if (pollers_.size() == kPollersMax)
        pollers_.erase(pollers_.begin());
    pollers_.push_back({std::this_thread::get_id(), 0});
    return true;
}

/// Whatever it polled, it does not now.
void Sleeper::poller_calls() {
    if (!pollers_.empty()) {
        std::erase_if(pollers_,
                      [](const Poller& one) { return one.thread == std::this_thread::get_id(); });
    }
}

bool Sleeper::others_are_to_wake() const {
    return std::ranges::any_of(pollers_, [now = now_ns()](const Poller& one) {
        return one.rung_ns != 0 && now - one.rung_ns < kAwayNs;
    });
}

void Sleeper::ring() {
    is_armed_ = false;
    is_rung_ = asleep_ > 0;
    if (!is_open())
        return;
    for (Poller& one : pollers_)
        if (one.rung_ns == 0)
            one.rung_ns = now_ns();
    eventfd_write(outer_, 1);
    eventfd_write(inner_, 1);
}

void Sleep::awake() {
    if (std::exchange(is_asleep_, false) && --sleeper_.asleep_ == 0)
        sleeper_.is_rung_ = false;
}

bool Sleep::fall_asleep() {
    sleeper_.poller_calls();
    if (!sleeper_.is_open() || sleeper_.is_rung_)
        return false;
    eventfd_t value;
    eventfd_read(sleeper_.inner_, &value);
    is_asleep_ = sleeper_.arm_workers();
    if (is_asleep_)
        ++sleeper_.asleep_;
    return is_asleep_;
}

void Sleep::wait(int timeout_ms) const {
    if (!is_asleep_) {
        tw_yield();
        return;
    }
    pollfd readable[] = {{sleeper_.workers_fd_, POLLIN, 0}, {sleeper_.inner_, POLLIN, 0}};
    poll(readable, std::size(readable), timeout_ms);
}

}  // namespace tagwire::fi
