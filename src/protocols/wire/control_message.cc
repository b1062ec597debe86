// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/wire/control_message.hpp"

#include "protocols/wire/wire.hpp"

namespace tagwire::proto {

bool decode(WireBytes bytes, Control* message) {
    return take_all(bytes, message) && message->operation() >= ControlOp::kAck &&
           message->operation() <= ControlOp::kProbed;
}

}  // namespace tagwire::proto
