// SPDX-License-Identifier: BSD-3-Clause
// The port by which parts of a worker call the program: its lock is not held meanwhile. As
// lane_port.hpp.
#pragma once

#include "protocols/request/attention.hpp"

namespace tagwire::proto {

struct CallbackPort {
    Attention& attention;
    const bool is_multi;  // else there is no lock, and the functions are not called
    void* const owner;
    void (*const leave)(void* owner);
    void (*const enter_again)(void* owner);
};

/// As InCallback, without the worker's lock: other threads may enter meanwhile, as the callback
/// itself may.
class ProgramCall {
  public:
    explicit ProgramCall(const CallbackPort& port) : port_(port), callback_(port.attention) {
        if (port_.is_multi)
            port_.leave(port_.owner);
    }
    ProgramCall(const ProgramCall&) = delete;
    ProgramCall& operator=(const ProgramCall&) = delete;
    ~ProgramCall() {
        if (port_.is_multi)
            port_.enter_again(port_.owner);
    }

  private:
    const CallbackPort& port_;
    const InCallback callback_;
};

}  // namespace tagwire::proto
