// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/engine/clock.hpp"

namespace tagwire::vhca {

EngineClock::EngineClock() {
    first_.tick_ns = ucs::tick_ns();
    first_.base_ticks = ucs::ticks_now();
    first_.base_ns = ucs::clock_now_ns();
}

void EngineClock::refine() {
    constexpr Time kLongEnoughNs = 2'000'000'000;
    const Time now_ns = now();
    if (scale_.load(std::memory_order_relaxed) != &first_ ||
        now_ns - first_.base_ns < kLongEnoughNs) {
        return;
    }
    const double tick_ns = ucs::tick_ns();
    const std::uint64_t ticks = ucs::ticks_now();
    // From where the rough figure has led, so that time never jumps.
    final_ = {ticks, now(), tick_ns};
    // SYNC vhca_clock: pairs with now().
    scale_.store(&final_, std::memory_order_release);
}

}  // namespace tagwire::vhca
