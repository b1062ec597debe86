// SPDX-License-Identifier: BSD-3-Clause
// The descriptors that an interface waits for, in one epoll instance.
#pragma once

#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <span>

#include "ucs/sys/limits.hpp"
#include "ucs/sys/private_fd.hpp"

namespace tagwire::tcp {

class Connection;

/// The low bits of an event's data tell its subject. Connections are told by their address.
enum class Watched : std::uint64_t { kConnection = 0, kHalfOpen = 1, kListener = 2, kTimer = 3 };
constexpr unsigned kWatchedBits = 2;
constexpr std::uint64_t kWatchedMask = (1U << kWatchedBits) - 1;

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

    static std::uint64_t token(const Connection& connection) {
        return reinterpret_cast<std::uintptr_t>(&connection);
    }
    static std::uint64_t token(Watched kind, std::uint64_t which) {
        return which << kWatchedBits | static_cast<std::uint64_t>(kind);
    }
    /// False: the kernel has no memory for it, or no descriptor is left (logged).
    bool watch(int fd, std::uint64_t token, std::uint32_t events) {
        return control(EPOLL_CTL_ADD, fd, token, events);
    }
    bool change(int fd, std::uint64_t token, std::uint32_t events) {
        return control(EPOLL_CTL_MOD, fd, token, events);
    }
    /// Closing is not enough: a child that holds the descriptor, too, keeps the watch alive.
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
    bool control(int operation, int fd, std::uint64_t token, std::uint32_t events) {
        epoll_event event{};
        event.events = events;
        event.data.u64 = token;
        if (::epoll_ctl(epoll_.get(), operation, fd, &event) == 0)
            return true;
        ucs::fd_error("epoll_ctl", errno);
        return false;
    }

    ucs::PrivateFd epoll_;
    pid_t pid_ = 0;
};

}  // namespace tagwire::tcp
