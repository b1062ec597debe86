// SPDX-License-Identifier: BSD-3-Clause
// The target that runs in this process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "target.hpp"

namespace tagwire::fuzz {

/// Those of this program, which it defines.
std::span<const Target* const> all_targets();

/// Takes the target that --target=NAME names, and prepares it; ends the process where none does.
void choose_target(int argc, char** argv);

void run_target(const std::uint8_t* data, std::size_t size);

}  // namespace tagwire::fuzz
