// SPDX-License-Identifier: BSD-3-Clause
// Programs in Python of the folder `report`, which is installed with this command.
#pragma once

#include <string>
#include <vector>

namespace tagwire::tools {

/// The words that start one of them, "report.py". Throws Failure that says what to install.
std::vector<std::string> python_command(const char* program);

}  // namespace tagwire::tools
