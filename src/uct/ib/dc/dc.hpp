// SPDX-License-Identifier: BSD-3-Clause
// The dc transport as a row of the table.
#pragma once

#include "uct/ib/transport.hpp"

namespace tagwire::dc {

const ib::Transport& transport();

}  // namespace tagwire::dc
