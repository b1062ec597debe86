// SPDX-License-Identifier: BSD-3-Clause
// Completion of a command line by a shell, made from the commands and options themselves.
#pragma once

#include <string>

#include "cli/command.hpp"

namespace tagwire::tools {

/// `shell`: bash, zsh or fish.
std::string completion_script(const DescribedCommand& described, const std::string& shell);

}  // namespace tagwire::tools
