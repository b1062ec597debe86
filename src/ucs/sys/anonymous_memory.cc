// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/sys/anonymous_memory.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>

#include "ucs/sys/shm.hpp"

namespace tagwire::ucs {

namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

}  // namespace

ucs_status_t map_anonymous(std::size_t bytes, AnonymousPages pages, void* address, bool is_fixed,
                           AnonymousMemory* memory_p) {
    const std::size_t unit = pages == AnonymousPages::kHuge ? kHugePageBytes : page_bytes();
    if (is_fixed && reinterpret_cast<std::uintptr_t>(address) % unit != 0)
        return UCS_ERR_INVALID_PARAM;
    if (bytes > SIZE_MAX - unit)
        return UCS_ERR_NO_MEMORY;
    const std::size_t rounded = round_up(bytes, unit);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    if (pages == AnonymousPages::kHuge)
        flags |= MAP_HUGETLB;
    if (is_fixed)
        flags |= MAP_FIXED_NOREPLACE;
    void* mapped = ::mmap(address, rounded, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (mapped == MAP_FAILED)
        return UCS_ERR_NO_MEMORY;
    if (is_fixed && mapped != address) {  // kernels before 4.17 take the flag for a hint
        ::munmap(mapped, rounded);
        return UCS_ERR_NO_MEMORY;
    }
    *memory_p = {mapped, rounded};
    return UCS_OK;
}

ucs_status_t unmap_anonymous(const AnonymousMemory& memory) {
    return ::munmap(memory.address, memory.bytes) == 0 ? UCS_OK : UCS_ERR_INVALID_ADDR;
}

ucs_status_t map_for_huge_pages(std::size_t bytes, AnonymousMemory* memory_p) {
    if (bytes > SIZE_MAX - 2 * kHugePageBytes)
        return UCS_ERR_NO_MEMORY;
    const std::size_t rounded = round_up(bytes, kHugePageBytes);
    AnonymousMemory mapped{};
    const ucs_status_t status =
        map_anonymous(rounded + kHugePageBytes, AnonymousPages::kNormal, nullptr, false, &mapped);
    if (status != UCS_OK)
        return status;
    // Pages before and behind the aligned part go back.
    const auto begin = reinterpret_cast<std::uintptr_t>(mapped.address);
    const std::size_t before = round_up(begin, kHugePageBytes) - begin;
    auto* const address = static_cast<std::byte*>(mapped.address) + before;
    if (before != 0)
        ::munmap(mapped.address, before);
    if (before != kHugePageBytes)
        ::munmap(address + rounded, kHugePageBytes - before);
    static_cast<void>(::madvise(address, rounded, MADV_HUGEPAGE));
    *memory_p = {address, rounded};
    return UCS_OK;
}

void* allocate_for_huge_pages(std::size_t bytes) {
    if (bytes > SIZE_MAX - kHugePageBytes)
        return nullptr;
    const std::size_t rounded = round_up(bytes, kHugePageBytes);
    void* memory = std::aligned_alloc(kHugePageBytes, rounded);
    // Only a wish: where transparent huge pages are off this fails and the memory is as good as
    // any.
    if (memory != nullptr)
        static_cast<void>(::madvise(memory, rounded, MADV_HUGEPAGE));
    return memory;
}

}  // namespace tagwire::ucs
