// SPDX-License-Identifier: BSD-3-Clause
// Flags of operations as a program writes them, for messages about wrong ones.
#pragma once

#include <cstdint>
#include <string>

namespace tagwire::proto {

/// "TW_OP_IMM, TW_OP_MORE"; bits that are no flag are one number: "TW_OP_IMM, 0x40000000".
std::string op_flag_names(std::uint32_t flags);

}  // namespace tagwire::proto
