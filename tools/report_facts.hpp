// SPDX-License-Identifier: BSD-3-Clause
// Facts about the machine that a report was taken on.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tagwire::tools {

using Facts = std::vector<std::pair<std::string, std::string>>;

/// Date, host, kernel and the version of the library. `cpus`: where both sides run.
Facts facts_of_machine(const std::vector<int>& cpus);

/// Words when fewer than two cores are free; empty otherwise.
std::string load_warning();

}  // namespace tagwire::tools
