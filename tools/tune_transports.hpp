// SPDX-License-Identifier: BSD-3-Clause
// Transports that `tagwire tune` measures.
#pragma once

#include <string>
#include <vector>

namespace tagwire::tools {

/// Those that a list as of TAGWIRE_TRANSPORTS names. auto: all of this machine that have tagged
/// messages, over a device of each, and tcp over each network interface.
std::vector<std::string> tuned_transports(const std::string& list);

}  // namespace tagwire::tools
