// SPDX-License-Identifier: BSD-3-Clause
// Lets a worker sleep: one epoll descriptor over the interfaces' events, a timer for the next check
// of the peers, and an event that any thread may signal.
//
// arm() asks all of them for an event on whatever comes next. Anything that came before makes it
// return busy, so that no event is missed: progress, then arm again.
#pragma once

#include <ucs/type/status.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "protocols/request/rail.hpp"
#include "ucs/log/log.hpp"
#include "ucs/log/repeats.hpp"
#include "ucs/sys/fd.hpp"

namespace tagwire::proto {

class Wakeup {
  public:
    /// Makes the event, with which ring() works. UCS_ERR_IO_ERROR: there are no descriptors left.
    ucs_status_t create();
    /// Makes the rest. UCS_ERR_UNSUPPORTED: an interface has no events. Refusals are logged at
    /// `level`.
    ucs_status_t open(std::span<const Rail* const> rails, ucs::LogLevel level);
    bool is_open() const { return static_cast<bool>(epoll_); }
    int fd() const { return epoll_.get(); }
    /// Readable from ring() until take().
    int event_fd() const { return event_.get(); }

    /// One more descriptor wakes, once open. False: errno says why.
    bool add(int fd) const;
    /// An earlier ring() no longer counts. UCS_ERR_BUSY: the timer has ended.
    ucs_status_t take();
    /// Behind take(). As clock_now_ns(); UINT64_MAX: never.
    ucs_status_t set_timer(std::uint64_t deadline_ns);
    /// Asks these for events. UCS_ERR_BUSY: something has come.
    static ucs_status_t arm(std::span<const std::unique_ptr<Rail>> rails);
    /// Something has come that the descriptor tells of: those of sockets tell until all is read.
    bool is_readable() const;
    /// Makes the descriptor readable. Any thread, also in a signal handler.
    void ring() const;

  private:
    ucs::UniqueFd epoll_;
    ucs::UniqueFd timer_;
    ucs::UniqueFd event_;
    ucs::Repeats refusals_;  // of open(): a program may call it again and again
};

}  // namespace tagwire::proto
