// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "uct/component.hpp"

namespace tagwire::tcp {

/// The component of sockets, for the composition root.
const uct::Component& component();

}  // namespace tagwire::tcp
