// SPDX-License-Identifier: BSD-3-Clause
// Gives the processor of the calling thread away for a moment, in a wait for somebody who may have
// none: the owner of a lock, a peer that writes, a device that is a thread.
//
// A yield is right where those who are waited for compete with this thread. A program of somebody
// else keeps the processor for a whole slice of the scheduler. After a yield of that length the
// thread sleeps for a moment instead, kNapsInARow times: a thread that wakes from sleep runs soon.
//
// Waits that progress a worker know more, and sleep until a message comes (uct/politeness.hpp).
//
// Threads: any. The yields of a thread are remembered for all of its waits.
#pragma once

#include <cstdint>

namespace tagwire::ucs {

constexpr unsigned kNapsInARow = 2000;
/// A yield that takes longer gave the processor to a program of somebody else; nanoseconds.
constexpr std::uint64_t kTurnMaxNs = 1'500'000;

/// False: a yield would take as long as the scheduler's slice, by those of this thread before.
bool is_yield_short();
/// The thread has yielded for so long; nanoseconds.
void note_yield(std::uint64_t ns);
/// The thread has slept instead.
void note_nap();
/// Yields or sleeps. Returns the nanoseconds that have passed.
std::uint64_t step_aside();

}  // namespace tagwire::ucs
