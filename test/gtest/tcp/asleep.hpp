// SPDX-License-Identifier: BSD-3-Clause
// Counts how often an interface wakes its program, which sleeps whenever it may.
#pragma once

#include "entity.hpp"

namespace tagwire::test {

/// Times that a program which sleeps for `ms` milliseconds was woken, or was not let sleep. It
/// gives up when there are more than kWakeUpsMax.
unsigned wake_ups_within(Entity& sleeper, int ms);
constexpr unsigned kWakeUpsMax = 100;

/// An interface that has nothing to do may need these: one event, whose end epoll tells, too.
constexpr unsigned kWakeUpsOfOne = 3;

}  // namespace tagwire::test
