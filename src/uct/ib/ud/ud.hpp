// SPDX-License-Identifier: BSD-3-Clause
// The ud transport's row for the table of verbs transports.
#pragma once

#include "uct/ib/transport.hpp"

namespace tagwire::ud {

const ib::Transport& transport();

}  // namespace tagwire::ud
