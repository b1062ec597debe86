// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/sys/mapped.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace tagwire::ucs {

// MS_ASYNC has had no other effect since Linux 2.6.19 (msync(2)).
bool is_mapped(const void* address, std::size_t bytes) {
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    if (bytes > UINTPTR_MAX - begin)
        return false;
    const std::uintptr_t first = begin & ~(page - 1);
    return ::msync(reinterpret_cast<void*>(first), begin + bytes - first, MS_ASYNC) == 0 ||
           errno != ENOMEM;
}

}  // namespace tagwire::ucs
