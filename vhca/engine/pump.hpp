// SPDX-License-Identifier: BSD-3-Clause
// Carries work between the device and the memory of a program that makes no calls.
//
// A program on the real driver writes requests and doorbells into memory, and reads completions
// there. Then the helper thread alone drives the device:
//
//     pump() and the device, as long as something moves  ->  rest(), and look once more
//       ^                                                       |
//       '--- wake(): a doorbell, a packet, a timer, unlock() <--' asleep
//
// Every call is under the engine's lock, but for fd().
#pragma once

#include "vhca/core/wire.hpp"

namespace tagwire::vhca {

class Pump {
  public:
    virtual ~Pump() = default;

    /// Takes what the program posted to the device, and tells the program what has to be told.
    /// Bounded work. True: something moved.
    virtual bool pump(Time now) = 0;
    /// Nothing moved for a while. From now on a doorbell makes fd() readable; the caller pumps once
    /// more before it sleeps.
    virtual void rest() = 0;
    /// The caller is awake, whatever woke it. Work posted by a doorbell that made fd() readable is
    /// pumped before the program that rang it goes on.
    virtual void wake(Time now) = 0;
    /// -1: none; doorbells are not noticed.
    [[nodiscard]] virtual int fd() const = 0;
    /// The longest that the caller may sleep: kNever where doorbells are noticed.
    [[nodiscard]] virtual Time nap() const = 0;
};

}  // namespace tagwire::vhca
