// SPDX-License-Identifier: BSD-3-Clause
// The tables of an endpoint, as its state and its capabilities allow.
#pragma once

#include "ep.hpp"

namespace tagwire::fi {

void set_tables(Ep& ep);

}  // namespace tagwire::fi
