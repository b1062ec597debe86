// SPDX-License-Identifier: BSD-3-Clause
#include "tools/allocated.hpp"

#include <cstddef>
#include <cstdlib>

#if defined(__GLIBC__)
#include <malloc.h>
#if __GLIBC_PREREQ(2, 33)
#define TW_HAS_MALLINFO2
#endif
#endif

// Bytes of a sanitizer's own allocator, of which mallinfo2 knows nothing.
extern "C" __attribute__((weak)) std::size_t
__sanitizer_get_current_allocated_bytes();  // NOLINT(bugprone-reserved-identifier)

namespace tagwire::tools {

std::int64_t allocated_bytes() {
    if (&__sanitizer_get_current_allocated_bytes != nullptr)
        return static_cast<std::int64_t>(__sanitizer_get_current_allocated_bytes());
#ifdef TW_HAS_MALLINFO2
    const struct mallinfo2 info = mallinfo2();
    return static_cast<std::int64_t>(info.uordblks + info.hblkhd);
#else
    return 0;
#endif
}

void keep_freed_memory() {
#if defined(__GLIBC__)
    constexpr int kKeptBytes = 1 << 30;
    constexpr int kMappedFromBytes = 32 << 20;  // as much as it takes
    mallopt(M_TRIM_THRESHOLD, kKeptBytes);
    mallopt(M_MMAP_THRESHOLD, kMappedFromBytes);
#endif
}

}  // namespace tagwire::tools
