// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "uct/component.hpp"

namespace tagwire::ib {

/// The component of RDMA devices, one memory domain each, for the composition root.
const uct::Component& component();

}  // namespace tagwire::ib
