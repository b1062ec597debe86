// SPDX-License-Identifier: BSD-3-Clause
// Programs of others that keep the processor, for tests of polite progress: this program's
// sched_yield(2) and ppoll(2) stand in front of the system's (strangers.cc). Yields of the virtual
// HCA meet none of them.
#pragma once

#include <functional>

namespace tagwire::test {

/// So many yields of the calling thread, the next ones, last for longer than any slice of the
/// scheduler.
void meet_strangers(unsigned yields);
/// All other yields of the calling thread end at once: whatever else the machine does, they meet
/// nobody.
void meet_nobody(bool is_so);

/// Runs in front of each nap that the calling thread sleeps on descriptors, in that thread. Empty:
/// nothing does.
void set_before_nap(std::function<void()> call);
/// The result of poll(2) in the calling thread's last nap on descriptors.
int ready_at_last_nap();
/// As set_before_nap(), of its yields.
void set_before_yield(std::function<void()> call);

}  // namespace tagwire::test
