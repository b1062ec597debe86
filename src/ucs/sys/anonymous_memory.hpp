// SPDX-License-Identifier: BSD-3-Clause
// Private memory of this process straight from the system, for uct_mem_alloc() and for large
// tables. Any thread.
#pragma once

#include <ucs/type/status.h>

#include <cstddef>

namespace tagwire::ucs {

enum class AnonymousPages {
    kNormal,
    kHuge,  // from the system's pool of huge pages (mmap(2) MAP_HUGETLB)
};

struct AnonymousMemory {
    void* address;
    std::size_t bytes;  // whole pages
};

/// Maps at least `bytes` zeroed bytes, at `address` or nowhere when `is_fixed`, else near it if it
/// is not null. UCS_ERR_NO_MEMORY: the system refused (not logged: another method may serve).
/// UCS_ERR_INVALID_PARAM: a fixed address that is not aligned to a page.
ucs_status_t map_anonymous(std::size_t bytes, AnonymousPages pages, void* address, bool is_fixed,
                           AnonymousMemory* memory_p);

/// UCS_ERR_INVALID_ADDR: this was never mapped.
ucs_status_t unmap_anonymous(const AnonymousMemory& memory);

/// Maps at least `bytes` zeroed bytes aligned so that transparent huge pages can back them, and the
/// wish that they do. UCS_ERR_NO_MEMORY: the system refused (not logged).
ucs_status_t map_for_huge_pages(std::size_t bytes, AnonymousMemory* memory_p);

/// Heap memory aligned so that transparent huge pages can back it, and the wish that they do
/// (madvise(2)). Null when there is none. Release with free().
void* allocate_for_huge_pages(std::size_t bytes);

}  // namespace tagwire::ucs
