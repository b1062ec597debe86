// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/sys/mapped.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>

namespace tagwire::ucs {

// valgrind takes the buffer of msync(2), which would say so in one call, for one that is read.
bool is_mapped(const void* address, std::size_t bytes) {
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    if (bytes > UINTPTR_MAX - begin)
        return false;
    std::array<unsigned char, 4096> of_pages;
    const std::uintptr_t end = begin + bytes;
    const std::uintptr_t most = of_pages.size() * page;
    for (std::uintptr_t at = begin & ~(page - 1); at < end; at += std::min(most, end - at)) {
        void* const from = reinterpret_cast<void*>(at);
        if (::mincore(from, std::min(most, end - at), of_pages.data()) != 0 && errno == ENOMEM)
            return false;
    }
    return true;
}

}  // namespace tagwire::ucs
