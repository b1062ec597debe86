// SPDX-License-Identifier: BSD-3-Clause
// The dc transport's row for the table of verbs transports.
#pragma once

#include "uct/ib/transport.hpp"

namespace tagwire::dc {

const ib::Transport& transport();

}  // namespace tagwire::dc
