// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/sys/step_aside.hpp"

#include <sched.h>

#include <ctime>

#include "ucs/time/clock.hpp"

namespace tagwire::ucs {

namespace {

[[gnu::tls_model("initial-exec")]] thread_local constinit unsigned naps_left = 0;

}  // namespace

bool is_yield_short() {
    return naps_left == 0;
}

void note_yield(std::uint64_t ns) {
    if (ns > kTurnMaxNs)
        naps_left = kNapsInARow;
}

void note_nap() {
    if (naps_left > 0)
        --naps_left;
}

std::uint64_t step_aside() {
    constexpr std::uint64_t kNapNs = 20'000;  // and the slack of the thread's timers
    const std::uint64_t begin = clock_now_ns();
    if (is_yield_short()) {
        ::sched_yield();
        const std::uint64_t took = clock_now_ns() - begin;
        note_yield(took);
        return took;
    }
    const timespec nap = timespec_of(kNapNs);
    ::nanosleep(&nap, nullptr);
    note_nap();
    return clock_now_ns() - begin;
}

}  // namespace tagwire::ucs
