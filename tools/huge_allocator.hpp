// SPDX-License-Identifier: BSD-3-Clause
// Memory of large tables that are read at random: on large pages where the kernel gives them, so
// that a measurement of matching is not one of page walks through the tool's own tables.
#pragma once

#include <sys/mman.h>

#include <cstdlib>
#include <new>
#include <vector>

namespace tagwire::tools {

template <class Value>
struct HugeAllocator {
    using value_type = Value;
    static constexpr std::size_t kLargePage = 2 << 20;

    HugeAllocator() = default;
    template <class Other>
    explicit HugeAllocator(const HugeAllocator<Other>&) {}

    Value* allocate(std::size_t count) {
        const std::size_t bytes = count * sizeof(Value);
        const std::size_t alignment = bytes < kLargePage ? 64 : kLargePage;
        const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
        void* const memory = std::aligned_alloc(alignment, rounded);
        if (memory == nullptr)
            throw std::bad_alloc();
        if (alignment == kLargePage)
            madvise(memory, rounded, MADV_HUGEPAGE);  // a wish: without it everything works, slower
        return static_cast<Value*>(memory);
    }

    void deallocate(Value* memory, std::size_t) { std::free(memory); }

    template <class Other>
    bool operator==(const HugeAllocator<Other>&) const {
        return true;
    }
};

template <class Value>
using HugeVector = std::vector<Value, HugeAllocator<Value>>;

}  // namespace tagwire::tools
