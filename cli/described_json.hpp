// SPDX-License-Identifier: BSD-3-Clause
// The description of a command as text: `tagwire-vhca --describe` prints it, and `tagwire` reads it
// for the completion of `tagwire vhca`.
#pragma once

#include <string>

#include "cli/command.hpp"

namespace tagwire::tools {

std::string to_json(const DescribedCommand& command);

/// Throws Failure for a text that to_json() does not write.
DescribedCommand described_from_json(const std::string& text);

}  // namespace tagwire::tools
