// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <memory>

#include "tools/channel.hpp"

namespace tagwire::tools {

/// Starts the other side of something as a child of this process, which dies with it; before
/// anything of the library is open. `run` runs there; what it throws comes as a kError. Throws
/// Failure.
std::unique_ptr<Channel> start_other_side(const std::function<void(Channel&)>& run);

}  // namespace tagwire::tools
