// SPDX-License-Identifier: BSD-3-Clause
// Finds the file of a program, and tells whether it takes preloaded libraries.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tagwire::tools {

/// As execvp(3) finds it in `path`, the value of PATH; nullopt: there is none that can be executed.
std::optional<std::string> find_program(const std::string& name, std::string_view path);

/// Why the dynamic linker does not preload anything into it: "is a static program". Empty: it does,
/// or nothing is known of such a file. For a script, its interpreter counts.
std::string why_not_preloaded(const std::string& path);

}  // namespace tagwire::tools
