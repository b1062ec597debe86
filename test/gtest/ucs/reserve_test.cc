// SPDX-License-Identifier: BSD-3-Clause
// Bookkeeping goes on where the heap has no memory. An allocation that no heap can serve stands for
// that.
#include "ucs/memory/reserve.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

namespace tagwire::ucs {
namespace {

/// Nothing may be mapped while it lives, and the heap's own memory is used up.
class NoHeap {
  public:
    NoHeap() {
        ::getrlimit(RLIMIT_AS, &before_);
        const rlimit none{0, before_.rlim_max};
        ::setrlimit(RLIMIT_AS, &none);
        for (std::size_t bytes = std::size_t{1} << 20; bytes >= 16; bytes /= 2) {
            while (void* memory = std::malloc(bytes)) {
                *static_cast<void**>(memory) = taken_;
                taken_ = memory;
            }
        }
    }
    NoHeap(const NoHeap&) = delete;
    NoHeap& operator=(const NoHeap&) = delete;
    ~NoHeap() {
        while (taken_ != nullptr) {
            void* const next = *static_cast<void**>(taken_);
            std::free(std::exchange(taken_, next));
        }
        ::setrlimit(RLIMIT_AS, &before_);
    }

  private:
    rlimit before_{};
    void* taken_ = nullptr;
};

struct Node : FromReserve {
    Node* next = nullptr;
    char text[100] = "";
};

class Reserve : public ::testing::Test {
  protected:
    void SetUp() override { ASSERT_TRUE(reserve_open()); }
};

TEST_F(Reserve, lists_and_objects_grow_without_the_heap) {
    bool has_grown = false;
    std::size_t used = 0;
    std::uint64_t sum = 0;
    {
        ReserveVector<std::uint64_t> numbers;
        ReserveHashMap<std::uint64_t, std::uint64_t> by_number;
        std::unique_ptr<Node> node;
        {
            const NoHeap none;
            for (std::uint64_t i = 0; i < 1000; ++i) {
                numbers.push_back(i);
                by_number[i] = i;
            }
            node = std::make_unique<Node>();
            used = reserve_used();
            has_grown = numbers.size() == 1000 && by_number.size() == 1000;
        }
        for (const std::uint64_t number : numbers)
            sum += by_number[number];
    }
    EXPECT_TRUE(has_grown);
    EXPECT_GT(used, 1000 * sizeof(std::uint64_t));
    EXPECT_EQ(sum, 999U * 1000 / 2);
    EXPECT_EQ(reserve_used(), 0U);  // all of it has come back
}

TEST_F(Reserve, blocks_that_were_freed_serve_again) {
    bool was_low = false;
    std::size_t taken = 0;
    {
        const NoHeap none;
        for (int round = 0; round < 4; ++round) {
            void* first = nullptr;
            for (taken = 0; void* memory = reserve_try_allocate(4096); ++taken) {
                *static_cast<void**>(memory) = first;
                first = memory;
            }
            was_low = reserve_is_low();
            while (first != nullptr) {
                void* const next = *static_cast<void**>(first);
                reserve_free(std::exchange(first, next));
            }
        }
    }
    EXPECT_TRUE(was_low);  // nothing new begins, and half of it remains
    EXPECT_GE(taken, kReserveBytes / 2 / 4096);
    EXPECT_LE(taken, kReserveBytes / 2 / 4096 + 1);
    EXPECT_FALSE(reserve_is_low());
    EXPECT_EQ(reserve_used(), 0U);
}

TEST_F(Reserve, blocks_are_aligned_as_was_asked) {
    std::uintptr_t misaligned = 0;
    {
        const NoHeap none;
        for (std::size_t alignment = 16; alignment <= 4096; alignment *= 2) {
            void* memory = reserve_allocate(24, alignment);
            misaligned |= reinterpret_cast<std::uintptr_t>(memory) % alignment;
            std::memset(memory, 0xff, 24);
            reserve_free(memory);
        }
    }
    EXPECT_EQ(misaligned, 0U);
}

TEST_F(Reserve, a_request_beyond_it_is_bad_alloc_and_changes_nothing) {
    EXPECT_THROW(static_cast<void>(reserve_allocate(SIZE_MAX / 4, 16)), std::bad_alloc);
    EXPECT_EQ(reserve_used(), 0U);
}

}  // namespace
}  // namespace tagwire::ucs
