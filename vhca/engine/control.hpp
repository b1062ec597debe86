// SPDX-License-Identifier: BSD-3-Clause
// Orders from outside of the process: incidents for a device (`tagwire-vhca inject`).
//
// A device listens on an abstract socket of sequenced packets, named after user, process and index.
// An order is the name of an incident; its answer is an errno value, 32 bits. Orders come from the
// user of the process, or from root.
//
// Threads: the helper's, without the lock; reset() after fork().
#pragma once

#include <cstdint>
#include <string>

#include "ucs/sys/fd.hpp"

namespace tagwire::vhca {

class Engine;

class ControlSocket {
  public:
    /// False: there is none, and the device goes without.
    bool open(unsigned index);
    void reset();
    /// Readable when serve() has something to do; -1: never.
    [[nodiscard]] int fd() const { return client_ ? client_.get() : listener_.get(); }
    /// One step; does not block.
    void serve(Engine& engine);

  private:
    [[nodiscard]] bool accept();

    ucs::UniqueFd listener_;
    ucs::UniqueFd client_;  // one at a time: it has not said its order yet
};

/// Gives an order to a device of another process of this machine and network namespace. 0, or an
/// errno value: ESRCH (no such process, or it has no such device), EPERM (of another user), EINVAL
/// (no such incident), EIO (the device is dead), ETIMEDOUT (the process does not run).
int order_incident(int process, unsigned device, const std::string& incident);

}  // namespace tagwire::vhca
