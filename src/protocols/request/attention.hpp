// SPDX-License-Identifier: BSD-3-Clause
// Attention of a worker's progress: the reasons to do more than progress the transports, and the
// number of events that the program may have seen. The parts of a worker share it.
#pragma once

#include <cstdint>

namespace tagwire::proto {

class Attention {
  public:
    /// False: the common case, read once per call of progress.
    bool is_needed() const { return bits_ != 0; }

    /// A callback of the worker is running, in the calling thread.
    bool is_in_progress() const { return (bits_ & kInProgress) != 0; }
    void begin_progress() { bits_ |= kInProgress; }
    void end_progress() { bits_ = static_cast<std::uint8_t>(bits_ & ~kInProgress); }

    /// The next call of progress runs the slow work.
    void ask_slow_work() { bits_ |= kSlowWork; }
    bool has_slow_work() const { return (bits_ & kSlowWork) != 0; }
    void take_slow_work() { bits_ = static_cast<std::uint8_t>(bits_ & ~kSlowWork); }

    /// The descriptor is armed, or a thread sleeps.
    bool is_watched() const { return (bits_ & kWatched) != 0; }
    void set_watched(bool is_watched) {
        bits_ = static_cast<std::uint8_t>(is_watched ? bits_ | kWatched : bits_ & ~kWatched);
    }

    /// An operation has ended, or the program is told of something else.
    void count_events(std::uint64_t number = 1) { events_ += number; }
    std::uint64_t events() const { return events_; }

  private:
    static constexpr std::uint8_t kInProgress = 1;
    static constexpr std::uint8_t kSlowWork = 2;
    static constexpr std::uint8_t kWatched = 4;

    std::uint8_t bits_ = 0;
    std::uint64_t events_ = 0;
};

}  // namespace tagwire::proto
