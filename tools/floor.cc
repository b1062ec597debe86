// SPDX-License-Identifier: BSD-3-Clause
#include "tools/floor.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>

#include "cli/failure.hpp"
#include "tools/link.hpp"

namespace tagwire::tools {
namespace {

constexpr std::size_t kLineStride =
    128;  // two lines, so that the adjacent-line prefetcher does not mix directions
constexpr std::size_t kRotatingLines = 64;
constexpr std::size_t kAreaBytes = 2 * kRotatingLines * kLineStride;
static_assert(3 * kAreaBytes <= CachelineFloor::kMappingBytes);

/// The lines that round trip `i` uses in an area, and what is written there.
struct Turn {
    std::uint64_t* to_peer;
    std::uint64_t* to_driver;
    std::uint64_t ping;
    std::uint64_t pong;
};

Turn turn_of(std::uint8_t* base, CachelineFloor::Variant::Lines lines, std::uint64_t i) {
    std::uint8_t* const area = base + static_cast<std::size_t>(lines) * kAreaBytes;
    const std::size_t index = lines == CachelineFloor::Variant::kRotating ? i % kRotatingLines : 0;
    const std::size_t back =
        lines == CachelineFloor::Variant::kOneLine ? 0 : kRotatingLines * kLineStride;
    return {reinterpret_cast<std::uint64_t*>(area + index * kLineStride),
            reinterpret_cast<std::uint64_t*>(area + back + index * kLineStride), 2 * i + 1,
            2 * i + 2};
}

void write_line(std::uint64_t* line, std::uint64_t value) {
    // SYNC floor(line): pairs with the acquire in wait_for() of the other process. The line itself
    // is the message.
    std::atomic_ref<std::uint64_t>(*line).store(value, std::memory_order_release);
}

}  // namespace

const std::array<CachelineFloor::Variant, CachelineFloor::kVariants> CachelineFloor::kAll{{
    {"line", Variant::kOneLine, false},
    {"line+pause", Variant::kOneLine, true},
    {"2 lines", Variant::kTwoLines, false},
    {"2 lines+pause", Variant::kTwoLines, true},
    {"64 lines", Variant::kRotating, false},
    {"64 lines+pause", Variant::kRotating, true},
}};

void CachelineFloor::wait_for(const std::uint64_t* line, std::uint64_t value, bool pause) const {
    const std::atomic_ref<std::uint64_t> word(*const_cast<std::uint64_t*>(line));
    for (;;) {
        for (std::uint32_t spins = 0; spins < kSpinsBetweenChecks; ++spins) {
            // SYNC floor(line): pairs with the release in write_line().
            if (word.load(std::memory_order_acquire) == value)
                return;
            if (pause)
                pause_cpu();
            if (yield_)
                sched_yield();
        }
        if (channel_->stalled())
            throw Failure("the peer stopped in the middle of a measurement");
    }
}

void CachelineFloor::ping_pong(const Variant& variant, std::uint64_t round_trips,
                               BatchTimer* timer) {
    std::uint64_t& done = done_[variant.lines];
    in_batches(done, round_trips, timer, [&](std::uint64_t i) {
        const Turn turn = turn_of(base_, variant.lines, i);
        if (side_ == Side::kDriver) {
            write_line(turn.to_peer, turn.ping);
            wait_for(turn.to_driver, turn.pong, variant.pause);
        } else {
            wait_for(turn.to_peer, turn.ping, variant.pause);
            write_line(turn.to_driver, turn.pong);
        }
    });
    done += round_trips;
}

double CachelineFloor::block() {
    double lowest = 0;
    for (const Variant& variant : kAll) {
        BatchTimer timer(2);
        ping_pong(variant, kBlockRoundTrips / kVariants, side_ == Side::kDriver ? &timer : nullptr);
        if (side_ == Side::kDriver) {
            const double value = timer.samples().median();
            lowest = lowest == 0 ? value : std::min(lowest, value);
        }
    }
    return lowest;
}

}  // namespace tagwire::tools
