// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/control_message.hpp"

#include "protocols/wire.hpp"

namespace tagwire::proto {

bool decode(WireBytes bytes, Control* message) {
    return take_all(bytes, message) && message->operation() >= ControlOp::kAck &&
           message->operation() <= ControlOp::kDown;
}

}  // namespace tagwire::proto
