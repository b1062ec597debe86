// SPDX-License-Identifier: BSD-3-Clause
// `tagwire vhca`: the program tagwire-vhca, a product of its own, found beside this one or along
// the path.
#pragma once

#include <string>
#include <vector>

#include "cli/command.hpp"

namespace tagwire::tools {

/// Replaces this process by tagwire-vhca with these words. Throws Failure where there is none.
[[noreturn]] void run_vhca(const std::vector<std::string>& words);

/// Its commands, as it tells them; none where there is no such program.
std::vector<DescribedCommand> vhca_commands();

}  // namespace tagwire::tools
