// SPDX-License-Identifier: BSD-3-Clause
// What lets a worker sleep: one epoll descriptor over the interfaces' events, a timer for the next
// look at peers, and a signal from other threads.
//
// arm() asks all of them for an event on what comes next. What came before makes it answer busy, so
// nothing is slept over: progress, then arm again.
#pragma once

#include <ucs/type/status.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "protocols/rail.hpp"
#include "ucs/sys/fd.hpp"

namespace tagwire::proto {

class Wakeup {
  public:
    /// Makes the descriptors, at the first call. UCS_ERR_UNSUPPORTED: an interface has no events.
    ucs_status_t open(std::span<const std::unique_ptr<Rail>> rails);
    bool is_open() const { return static_cast<bool>(epoll_); }
    int fd() const { return epoll_.get(); }

    /// `deadline_ns` as clock_now_ns(); UINT64_MAX: none. UCS_ERR_BUSY: something has come.
    ucs_status_t arm(std::span<const std::unique_ptr<Rail>> rails, std::uint64_t deadline_ns);
    /// Any thread.
    void signal() const;

  private:
    bool add(int fd) const;

    ucs::UniqueFd epoll_;
    ucs::UniqueFd timer_;
    ucs::UniqueFd signal_;
};

}  // namespace tagwire::proto
