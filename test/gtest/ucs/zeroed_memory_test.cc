// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/memory/zeroed_memory.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tagwire::ucs {
namespace {

constexpr std::size_t kSizes[] = {1, 4096, ZeroedMemory::kLargeBytes - 1, ZeroedMemory::kLargeBytes,
                                  2 * ZeroedMemory::kLargeBytes + 1};

bool is_zero(const ZeroedMemory& memory, std::size_t bytes) {
    const std::span all(static_cast<const std::byte*>(memory.data()), bytes);
    return std::all_of(all.begin(), all.end(), [](std::byte each) { return each == std::byte{}; });
}

TEST(ZeroedMemory, holds_nothing_at_first) {
    const ZeroedMemory memory;
    EXPECT_EQ(memory.data(), nullptr);
}

// Twice, so that memory that was used before comes again.
TEST(ZeroedMemory, is_zero_and_aligned_at_every_size) {
    ZeroedMemory memory;
    for (int round = 0; round < 2; ++round) {
        for (const std::size_t bytes : kSizes) {
            SCOPED_TRACE(bytes);
            ASSERT_TRUE(memory.allocate(bytes));
            EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data()) % ZeroedMemory::kAlignment,
                      0U);
            EXPECT_TRUE(is_zero(memory, bytes));
            std::memset(memory.data(), 0x5a, bytes);
            memory.release();
            EXPECT_EQ(memory.data(), nullptr);
        }
    }
}

TEST(ZeroedMemory, keeps_what_it_has_when_there_is_none) {
    ZeroedMemory memory;
    ASSERT_TRUE(memory.allocate(8));
    void* const data = memory.data();
    EXPECT_FALSE(memory.allocate(SIZE_MAX));
    EXPECT_FALSE(memory.allocate(SIZE_MAX / 2));
    EXPECT_EQ(memory.data(), data);
}

TEST(ZeroedMemory, swaps_small_for_large) {
    ZeroedMemory small, large;
    ASSERT_TRUE(small.allocate(8));
    ASSERT_TRUE(large.allocate(ZeroedMemory::kLargeBytes));
    void* const data = small.data();
    small.swap(large);
    EXPECT_EQ(large.data(), data);
    EXPECT_TRUE(is_zero(small, ZeroedMemory::kLargeBytes));
}

}  // namespace
}  // namespace tagwire::ucs
