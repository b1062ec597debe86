// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

namespace tagwire::ucs {

/// All pages of [address, address + bytes) are mapped in this process, whatever the access to them.
/// `bytes` is not 0. Any thread; costs a system call for each 4096
/// pages.
[[nodiscard]] bool is_mapped(const void* address, std::size_t bytes);

}  // namespace tagwire::ucs
