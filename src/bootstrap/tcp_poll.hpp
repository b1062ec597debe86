// SPDX-License-Identifier: BSD-3-Clause
// Waiting in rank 0 of method TCP: poll(2) over streams, and the interval at which it tells waiting
// ranks which ranks are missing.
#pragma once

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <vector>

#include "bootstrap/frame.hpp"
#include "bootstrap/result.hpp"
#include "ucs/time/clock.hpp"

namespace tagwire::bootstrap {

class PollSet {
  public:
    void add(int fd, short events) { entries_.push_back({fd, events, 0}); }

    Result wait(int timeout_ms) {
        if (::poll(entries_.data(), entries_.size(), timeout_ms) < 0 && errno != EINTR)
            return failed_errno(UCS_ERR_IO_ERROR, errno, "poll");
        return {};
    }
    /// By the order of add(). Errors and hang-ups count as ready.
    bool is_ready(std::size_t index) const { return entries_[index].revents != 0; }

  private:
    std::vector<pollfd> entries_;
};

class Beat {
  public:
    explicit Beat(const Deadline& deadline)
        : interval_ns_(std::min<std::uint64_t>(
              kIntervalNsMax, static_cast<std::uint64_t>(deadline.left_ms()) * 250'000)),
          next_ns_(ucs::clock_now_ns() + interval_ns_) {}

    /// True once per interval.
    bool is_due() {
        const std::uint64_t now_ns = ucs::clock_now_ns();
        if (now_ns < next_ns_)
            return false;
        next_ns_ = now_ns + interval_ns_;
        return true;
    }
    /// The longest sleep, in milliseconds.
    int left_ms(const Deadline& deadline) const {
        return std::min(deadline.left_ms(), static_cast<int>(interval_ns_ / 1'000'000) + 1);
    }

  private:
    static constexpr std::uint64_t kIntervalNsMax = 1'000'000'000;
    std::uint64_t interval_ns_;
    std::uint64_t next_ns_;
};

}  // namespace tagwire::bootstrap
