// SPDX-License-Identifier: BSD-3-Clause
// The help of a command, wrapped to the width of the terminal.
#pragma once

#include <cstddef>
#include <string>

namespace CLI {
class App;
}

namespace tagwire::tools {

/// COLUMNS, else the width of the terminal on standard output, else 80; 40 to 120.
std::size_t help_width();

/// Breaks lines at spaces. A line that is a name and, behind two spaces or more, a text continues
/// below its text. A word longer than the width stays whole.
std::string wrapped(const std::string& lines, std::size_t width);

/// Sets it for `app` and the subcommands that are added later.
void use_wrapped_help(CLI::App* app);

}  // namespace tagwire::tools
