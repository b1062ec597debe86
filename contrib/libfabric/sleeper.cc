// SPDX-License-Identifier: BSD-3-Clause
#include "sleeper.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

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
    eventfd_t value;
    eventfd_read(event_, &value);
    is_armed_ = std::ranges::all_of(
        workers_, [](tw_worker_h worker) { return tw_worker_arm(worker) == TW_OK; });
    return is_armed_;
}

void Sleeper::ring() {
    is_armed_ = false;
    if (event_ >= 0)
        eventfd_write(event_, 1);
}

void Sleeper::wait(int timeout_ms) const {
    pollfd readable{epoll_, POLLIN, 0};
    poll(&readable, 1, timeout_ms);
}

}  // namespace tagwire::fi
