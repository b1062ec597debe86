// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/memory/mpool.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <set>

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kAsan = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr bool kAsan = true;
#else
constexpr bool kAsan = false;
#endif
#else
constexpr bool kAsan = false;
#endif

namespace tagwire::ucs {
namespace {

using ::testing::HasSubstr;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

// A source that counts, and that can be made to have no memory.
struct Source {
    std::size_t chunks = 0;
    std::size_t chunks_max = SIZE_MAX;
    std::size_t bytes = 0;

    static void* allocate(void* self, std::size_t bytes, std::size_t alignment) {
        auto* source = static_cast<Source*>(self);
        if (source->chunks == source->chunks_max)
            return nullptr;
        ++source->chunks;
        source->bytes += bytes;
        return std::aligned_alloc(alignment, bytes);
    }
    static void release(void* self, void* memory, std::size_t bytes) {
        auto* source = static_cast<Source*>(self);
        --source->chunks;
        source->bytes -= bytes;
        std::free(memory);
    }
    ChunkSource hook() { return {.allocate = allocate, .release = release, .arg = this}; }
};

template <class Pool>
class MpoolOf : public ::testing::Test {
  protected:
    Source source_;
};
using Kinds = ::testing::Types<BasicMpool<false>, BasicMpool<true>>;
TYPED_TEST_SUITE(MpoolOf, Kinds);

TYPED_TEST(MpoolOf, last_put_is_first_taken) {
    TypeParam pool;
    ASSERT_EQ(pool.init({.name = "p", .element_bytes = 32}), UCS_OK);
    void* a = pool.get();
    void* b = pool.get();
    pool.put(a);
    pool.put(b);
    EXPECT_EQ(pool.get(), b);
    EXPECT_EQ(pool.get(), a);
    pool.put(a);
    pool.put(b);
}

TYPED_TEST(MpoolOf, elements_are_distinct_and_aligned) {
    TypeParam pool;
    ASSERT_EQ(
        pool.init({.name = "p", .element_bytes = 100, .alignment = 256, .elements_per_chunk = 3}),
        UCS_OK);
    std::set<char*> taken;
    for (int i = 0; i < 10; ++i) {
        auto* element = static_cast<char*>(pool.get());
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(element) % 256, 0U);
        std::memset(element, i, 100);
        EXPECT_TRUE(taken.insert(element).second);
    }
    EXPECT_EQ(pool.elements_taken(), 10U);
    EXPECT_EQ(pool.elements_total(), 12U);
    EXPECT_EQ(pool.elements_free(), 2U);
    for (char* element : taken)
        pool.put(element);
}

TYPED_TEST(MpoolOf, maximum_is_kept) {
    TypeParam pool;
    ASSERT_EQ(
        pool.init({.name = "p", .element_bytes = 8, .elements_per_chunk = 4, .elements_max = 6}),
        UCS_OK);
    void* taken[6];
    for (void*& element : taken) {
        element = pool.get();
        ASSERT_NE(element, nullptr);
    }
    EXPECT_EQ(pool.get(), nullptr);
    pool.put(taken[5]);
    EXPECT_EQ(pool.get(), taken[5]);
    for (void* element : taken)
        pool.put(element);
    EXPECT_EQ(pool.elements_total(), 6U);
}

TYPED_TEST(MpoolOf, memory_comes_from_its_source_and_returns_there) {
    {
        TypeParam pool;
        ASSERT_EQ(pool.init({.name = "p",
                             .element_bytes = 64,
                             .elements_per_chunk = 4,
                             .source = this->source_.hook()}),
                  UCS_OK);
        EXPECT_EQ(this->source_.chunks, 0U);
        ASSERT_EQ(pool.reserve(5), UCS_OK);
        EXPECT_EQ(this->source_.chunks, 2U);
        EXPECT_EQ(this->source_.bytes, 2U * 4 * 64);
    }
    EXPECT_EQ(this->source_.chunks, 0U);
    EXPECT_EQ(this->source_.bytes, 0U);
}

TYPED_TEST(MpoolOf, reserved_elements_need_no_further_chunk) {
    TypeParam pool;
    ASSERT_EQ(pool.init({.name = "p",
                         .element_bytes = 64,
                         .elements_per_chunk = 4,
                         .source = this->source_.hook()}),
              UCS_OK);
    ASSERT_EQ(pool.reserve(8), UCS_OK);
    this->source_.chunks_max = this->source_.chunks;
    void* taken[8];
    for (void*& element : taken) {
        element = pool.get();
        EXPECT_NE(element, nullptr);
    }
    for (void* element : taken)
        pool.put(element);
}

TYPED_TEST(MpoolOf, a_large_one_grows_by_huge_pages) {
    constexpr std::size_t kElementBytes = 3 * 128 * 128;
    TypeParam pool;
    ASSERT_EQ(pool.init({.name = "p", .element_bytes = kElementBytes, .elements_per_chunk = 8}),
              UCS_OK);
    ASSERT_EQ(pool.reserve((4U << 20) / kElementBytes + 8), UCS_OK);
    const std::size_t before = pool.elements_total();
    ASSERT_EQ(pool.reserve(before + 1), UCS_OK);
    EXPECT_EQ(pool.elements_total(), before + (2U << 20) / kElementBytes);
}

TYPED_TEST(MpoolOf, reserve_beyond_the_maximum_is_refused) {
    TypeParam pool;
    ASSERT_EQ(pool.init({.name = "p", .element_bytes = 64, .elements_max = 4}), UCS_OK);
    EXPECT_EQ(pool.reserve(5), UCS_ERR_EXCEEDS_LIMIT);
    EXPECT_EQ(pool.reserve(4), UCS_OK);
}

TYPED_TEST(MpoolOf, source_without_memory_is_not_fatal) {
    TypeParam pool;
    this->source_.chunks_max = 1;
    ASSERT_EQ(pool.init({.name = "p",
                         .element_bytes = 64,
                         .elements_per_chunk = 1,
                         .source = this->source_.hook()}),
              UCS_OK);
    void* element = pool.get();
    ASSERT_NE(element, nullptr);
    EXPECT_EQ(pool.get(), nullptr);
    EXPECT_EQ(pool.reserve(2), UCS_ERR_NO_MEMORY);
    pool.put(element);
    EXPECT_EQ(pool.get(), element);
    pool.put(element);
}

TYPED_TEST(MpoolOf, impossible_sizes_are_refused) {
    TypeParam pool;
    EXPECT_EQ(pool.init({.name = "p", .element_bytes = 0}), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(pool.init({.name = "p", .element_bytes = 8, .alignment = 24}), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(pool.init({.name = "p", .element_bytes = SIZE_MAX}), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(pool.init({.name = "p", .element_bytes = 8, .elements_per_chunk = 0}),
              UCS_ERR_INVALID_PARAM);
}

TYPED_TEST(MpoolOf, leak_is_reported_and_memory_freed_all_the_same) {
    TypeParam pool;
    ASSERT_EQ(pool.init({.name = "descriptors",
                         .element_bytes = 64,
                         .elements_per_chunk = 4,
                         .source = this->source_.hook()}),
              UCS_OK);
    pool.get();
    pool.get();
    CaptureStderr();
    EXPECT_EQ(pool.clean_up(), 2U);
    EXPECT_THAT(GetCapturedStderr(),
                HasSubstr("mpool descriptors: 2 of 4 elements were never put back"));
    EXPECT_EQ(this->source_.chunks, 0U);
}

TYPED_TEST(MpoolOf, clean_pool_is_silent_and_can_begin_anew) {
    TypeParam pool;
    ASSERT_EQ(pool.init({.name = "p", .element_bytes = 64}), UCS_OK);
    pool.put(pool.get());
    CaptureStderr();
    EXPECT_EQ(pool.clean_up(), 0U);
    EXPECT_EQ(GetCapturedStderr(), "");
    ASSERT_EQ(pool.init({.name = "p", .element_bytes = 16}), UCS_OK);
    pool.put(pool.get());
}

class CheckedMpool : public ::testing::Test {
  protected:
    CheckedMpool() {
        GTEST_FLAG_SET(death_test_style, "threadsafe");
        EXPECT_EQ(pool_.init({.name = "p", .element_bytes = 64, .elements_per_chunk = 4}), UCS_OK);
    }
    BasicMpool<true> pool_;
};

TEST_F(CheckedMpool, fresh_element_is_filled_with_the_pattern) {
    auto* element = static_cast<unsigned char*>(pool_.get());
    EXPECT_EQ(element[0], 0xd5);
    EXPECT_EQ(element[63], 0xd5);
    pool_.put(element);
}

TEST_F(CheckedMpool, write_to_a_free_element_ends_the_program) {
    const auto write_after_put = [this] {
        auto* element = static_cast<volatile char*>(pool_.get());
        pool_.put(const_cast<char*>(element));
        element[13] = 1;
        pool_.get();
    };
    EXPECT_DEATH(write_after_put(),
                 kAsan ? "use-after-poison" : "check failed: !written_while_free");
}

TEST_F(CheckedMpool, second_put_ends_the_program) {
    const auto put_twice = [this] {
        void* element = pool_.get();
        pool_.put(element);
        pool_.put(element);
    };
    EXPECT_DEATH(put_twice(), "check failed: !put_twice");
}

TEST_F(CheckedMpool, foreign_pointer_ends_the_program) {
    char other[64];
    EXPECT_DEATH(pool_.put(other), "check failed: !foreign_pointer");
    EXPECT_DEATH(pool_.put(static_cast<char*>(pool_.get()) + 8), "check failed: !foreign_pointer");
}

struct Counted {
    explicit Counted(int* live) : live_(live) { ++*live_; }
    ~Counted() { --*live_; }
    int* live_;
    alignas(128) char payload[8] = {};
};

TEST(ObjectPool, constructs_and_destroys) {
    int live = 0;
    ObjectPool<Counted> pool;
    ASSERT_EQ(pool.init({.name = "counted", .elements_max = 1}), UCS_OK);
    Counted* object = pool.create(&live);
    ASSERT_NE(object, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(object) % alignof(Counted), 0U);
    EXPECT_EQ(live, 1);
    EXPECT_EQ(pool.create(&live), nullptr);
    EXPECT_EQ(live, 1);
    pool.destroy(object);
    EXPECT_EQ(live, 0);
    EXPECT_EQ(pool.pool().elements_taken(), 0U);
}

}  // namespace
}  // namespace tagwire::ucs
