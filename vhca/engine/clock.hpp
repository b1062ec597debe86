// SPDX-License-Identifier: BSD-3-Clause
// The device's time: CLOCK_MONOTONIC, read from the processor's counter.
//
// The length of a tick is known roughly at first and well after a second (ucs/time/clock.hpp). The
// clock changes to the better figure once, without a jump.
#pragma once

#include <atomic>
#include <cstdint>

#include "ucs/time/clock.hpp"
#include "vhca/core/wire.hpp"

namespace tagwire::vhca {

class EngineClock {
  public:
    EngineClock();
    EngineClock(const EngineClock&) = delete;
    EngineClock& operator=(const EngineClock&) = delete;

    /// Any thread.
    [[nodiscard]] Time now() const {
        // SYNC vhca_clock: the scale was complete before it was shown.
        const Scale* scale = scale_.load(std::memory_order_acquire);
        const auto ticks = static_cast<std::int64_t>(ucs::ticks_now() - scale->base_ticks);
        return scale->base_ns +
               static_cast<Time>(static_cast<double>(ticks < 0 ? 0 : ticks) * scale->tick_ns);
    }

    /// One thread, now and then: changes to the better figure when it is there.
    void refine();

  private:
    struct Scale {
        std::uint64_t base_ticks = 0;
        Time base_ns = 0;
        double tick_ns = 1.0;
    };
    Scale first_, final_;
    std::atomic<const Scale*> scale_{&first_};
};

}  // namespace tagwire::vhca
