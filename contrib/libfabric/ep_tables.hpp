// SPDX-License-Identifier: BSD-3-Clause
// The function tables of an endpoint, chosen by its state and its capabilities.
#pragma once

#include "ep.hpp"

namespace tagwire::fi {

void set_tables(Ep& ep);

}  // namespace tagwire::fi
