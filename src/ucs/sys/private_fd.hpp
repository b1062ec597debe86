// SPDX-License-Identifier: BSD-3-Clause
// Owner of a descriptor that no forked child shares: a socket whose peer is to hear of the end of
// this process, an epoll instance, a timer.
//
//  1. In a child of fork() the number belongs to an empty descriptor of the child's own: reads,
//     writes and epoll_ctl() fail, poll() never wakes, close() is harmless.
//  2. A socket is shut down before it is closed, so its peer hears of it though a child that was
//     made without fork handlers (clone(2)) still holds it. In such a child it is closed only.
//
// Any thread may open and close descriptors of its own.
#pragma once

#include <utility>

#include "ucs/sys/fd.hpp"

namespace tagwire::ucs {

/// Move-only; closes on destruction.
class PrivateFd {
  public:
    PrivateFd() = default;
    explicit PrivateFd(int fd) : PrivateFd() { reset(fd); }
    PrivateFd(PrivateFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    PrivateFd& operator=(PrivateFd&& other) noexcept {
        if (this != &other) {
            reset();
            fd_ = std::exchange(other.fd_, -1);
        }
        return *this;
    }
    PrivateFd(const PrivateFd&) = delete;
    PrivateFd& operator=(const PrivateFd&) = delete;
    ~PrivateFd() { reset(); }

    [[nodiscard]] int get() const { return fd_; }
    explicit operator bool() const { return fd_ >= 0; }
    /// Takes `fd` instead, if it is a descriptor.
    void reset(int fd = -1);

  private:
    int fd_ = -1;
};

}  // namespace tagwire::ucs
