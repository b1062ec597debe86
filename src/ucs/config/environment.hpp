// SPDX-License-Identifier: BSD-3-Clause
// The environment, for variables that are no options of ours (HOME, XDG_RUNTIME_DIR). Control path
// only.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tagwire::ucs {

/// nullptr when not set. The pointer is good until somebody changes the environment.
const char* environment_get(const char* name);

/// All variables whose name begins with `prefix`, with their values.
std::vector<std::pair<std::string, std::string>> environment_list(std::string_view prefix);

}  // namespace tagwire::ucs
