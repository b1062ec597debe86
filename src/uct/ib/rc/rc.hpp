// SPDX-License-Identifier: BSD-3-Clause
// The rc transport's row for the table of verbs transports.
#pragma once

#include "uct/ib/transport.hpp"

namespace tagwire::rc {

const ib::Transport& transport();

}  // namespace tagwire::rc
