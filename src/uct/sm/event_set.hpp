// SPDX-License-Identifier: BSD-3-Clause
// The descriptors that an interface waits for, in one epoll instance.
#pragma once

#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <span>

#include "ucs/sys/fd.hpp"
#include "ucs/sys/limits.hpp"

namespace tagwire::sm {

/// The subject of an event: the high half is the kind, the low half which one.
enum class Watched : std::uint32_t { kListener = 1, kLink = 2, kProcess = 3, kTimer = 4 };

class EventSet {
  public:
    ucs_status_t open() {
        pid_ = ::getpid();
        epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
        return epoll_ ? UCS_OK : ucs::fd_error("epoll_create1", errno);
    }
    [[nodiscard]] int fd() const { return epoll_.get(); }
    /// False in a child that inherited the interface: the objects that the kernel keeps for both
    /// are the parent's.
    [[nodiscard]] bool is_ours() const { return ::getpid() == pid_; }
    [[nodiscard]] pid_t pid() const { return pid_; }

    void watch(int fd, Watched kind, std::uint32_t which) {
        epoll_event event = event_of(kind, which);
        if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
            ucs::fd_error("epoll_ctl", errno);
    }
    /// `for_room`: also tells when a packet fits again.
    void change(int fd, Watched kind, std::uint32_t which, bool for_room) {
        epoll_event event = event_of(kind, which);
        event.events |= for_room ? std::uint32_t{EPOLLOUT} : 0U;
        ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
    }
    /// Closing is not enough: a forked child that holds the descriptor, too, keeps the watch alive.
    void unwatch(int fd) {
        if (is_ours())
            ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
    }
    /// Events that have happened: `events_p` is filled from its beginning.
    [[nodiscard]] std::span<epoll_event> take(std::span<epoll_event> events_p) const {
        const int count =
            ::epoll_wait(epoll_.get(), events_p.data(), static_cast<int>(events_p.size()), 0);
        return events_p.first(count < 0 ? 0 : static_cast<std::size_t>(count));
    }

  private:
    static epoll_event event_of(Watched kind, std::uint32_t which) {
        epoll_event event{};
        event.events = EPOLLIN | EPOLLRDHUP;
        event.data.u64 = std::uint64_t{static_cast<std::uint32_t>(kind)} << 32 | which;
        return event;
    }

    ucs::UniqueFd epoll_;
    pid_t pid_ = 0;
};

}  // namespace tagwire::sm
