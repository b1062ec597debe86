// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/worker/wakeup.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "ucs/log/log.hpp"
#include "ucs/time/clock.hpp"

namespace tagwire::proto {

namespace {

/// Takes what a timer or an event has counted.
bool drain(int fd) {
    std::uint64_t count = 0;
    return ::read(fd, &count, sizeof count) == sizeof count;
}

}  // namespace

bool Wakeup::add(int fd) const {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

ucs_status_t Wakeup::create() {
    event_.reset(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (event_)
        return UCS_OK;
    TW_LOG_ERROR("wake-up: cannot create an event descriptor: %s", std::strerror(errno));
    return UCS_ERR_IO_ERROR;
}

ucs_status_t Wakeup::open(std::span<const Rail* const> rails, ucs::LogLevel level) {
    std::vector<int> fds;
    for (const Rail* rail : rails) {
        int fd = -1;
        const ucs_status_t status = uct_iface_event_fd_get(rail->iface(), &fd);
        if (status != UCS_OK) {
            TW_LOG_REPEATED(level, refusals_.due(rail->transport()),
                            "wake-up: %s on %s has no event descriptor: %s", rail->transport(),
                            rail->device(), ucs_status_string(status));
            return status;
        }
        fds.push_back(fd);
    }
    timer_.reset(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
    epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
    bool is_complete = timer_ && epoll_ && add(timer_.get()) && add(event_.get());
    for (const int fd : fds)
        is_complete = is_complete && add(fd);
    if (is_complete)
        return UCS_OK;
    TW_LOG_REPEATED(level, refusals_.due("descriptor"),
                    "wake-up: cannot create the worker's descriptor: %s", std::strerror(errno));
    epoll_.reset();
    timer_.reset();
    return UCS_ERR_IO_ERROR;
}

ucs_status_t Wakeup::take() {
    drain(event_.get());
    return drain(timer_.get()) ? UCS_ERR_BUSY : UCS_OK;
}

ucs_status_t Wakeup::set_timer(std::uint64_t deadline_ns) {
    itimerspec time{};
    if (deadline_ns != UINT64_MAX)  // a time of 0 would stop the timer
        time.it_value = ucs::timespec_of(std::max<std::uint64_t>(deadline_ns, 1));
    return ::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &time, nullptr) == 0
               ? UCS_OK
               : UCS_ERR_IO_ERROR;
}

ucs_status_t Wakeup::arm(std::span<const std::unique_ptr<Rail>> rails) {
    for (const auto& rail : rails) {
        const ucs_status_t status =
            uct_iface_event_arm(rail->iface(), UCT_EVENT_SEND_COMP | UCT_EVENT_RECV);
        if (status != UCS_OK)
            return status;
    }
    return UCS_OK;
}

bool Wakeup::is_readable() const {
    pollfd watched{.fd = epoll_.get(), .events = POLLIN, .revents = 0};
    return ::poll(&watched, 1, 0) > 0;
}

void Wakeup::ring() const {
    const int before = errno;
    const std::uint64_t one = 1;
    // It fails only when it is full, and then it is readable.
    [[maybe_unused]] const ssize_t bytes = ::write(event_.get(), &one, sizeof one);
    errno = before;
}

}  // namespace tagwire::proto
