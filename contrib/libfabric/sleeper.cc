// SPDX-License-Identifier: BSD-3-Clause
#include "sleeper.hpp"

#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace tagwire::fi {

namespace {

int watch(int epoll, int fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : -errno;
}

}  // namespace

Sleeper::~Sleeper() {
    if (event_ >= 0)
        close(event_);
    if (epoll_ >= 0)
        close(epoll_);
}

int Sleeper::open() {
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    event_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    return epoll_ < 0 || event_ < 0 ? -errno : watch(epoll_, event_);
}

int Sleeper::add(tw_worker_h worker) {
    if (!is_open())
        return 0;
    int fd = -1;
    const tw_status_t status = tw_worker_fd(worker, &fd);
    if (status != TW_OK)
        return -error_of(status);
    workers_.push_back(worker);
    return watch(epoll_, fd);
}

void Sleeper::remove(tw_worker_h worker) {
    int fd = -1;
    if (std::erase(workers_, worker) > 0 && tw_worker_fd(worker, &fd) == TW_OK)
        epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
}

bool Sleeper::arm() {
    if (is_rung_)
        return false;
    eventfd_t value;
    eventfd_read(event_, &value);
    const bool is_idle = std::ranges::all_of(
        workers_, [](tw_worker_h worker) { return tw_worker_arm(worker) == TW_OK; });
    // Where it is not, others who have armed before may sleep still.
    is_armed_ = is_armed_ || is_idle;
    return is_idle;
}

void Sleeper::ring() {
    is_armed_ = false;
    is_rung_ = asleep_ > 0;
    if (event_ >= 0)
        eventfd_write(event_, 1);
}

void Sleep::awake() {
    if (std::exchange(is_asleep_, false) && --sleeper_.asleep_ == 0)
        sleeper_.is_rung_ = false;
}

bool Sleep::fall_asleep() {
    is_asleep_ = sleeper_.is_open() && sleeper_.arm();
    if (is_asleep_)
        ++sleeper_.asleep_;
    return is_asleep_;
}

void Sleep::wait(int timeout_ms) const {
    if (!is_asleep_) {
        sched_yield();
        return;
    }
    pollfd readable{sleeper_.epoll_, POLLIN, 0};
    poll(&readable, 1, timeout_ms);
}

}  // namespace tagwire::fi
