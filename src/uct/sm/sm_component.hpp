// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "uct/component.hpp"

namespace tagwire::sm {

/// The shared-memory component, for the composition root.
const uct::Component& component();

}  // namespace tagwire::sm
