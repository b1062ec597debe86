// SPDX-License-Identifier: BSD-3-Clause
// Completion of a command line by a shell, made from the commands and options themselves.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace tagwire::tools {

/// `shell`: bash, zsh or fish.
std::string completion_script(const CLI::App& app, const std::string& shell);

}  // namespace tagwire::tools
