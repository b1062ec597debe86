// SPDX-License-Identifier: BSD-3-Clause
// The memory that this process has from the allocator.
#pragma once

#include <cstdint>

namespace tagwire::tools {

/// Bytes that are allocated now, in all arenas and in mappings of their own. Always 0 where the
/// allocator keeps no such account. Only differences say something.
std::int64_t allocated_bytes();

/// Memory that is freed stays with the process: what opens and closes the same thing many times
/// need not ask the system for it each time.
void keep_freed_memory();

}  // namespace tagwire::tools
