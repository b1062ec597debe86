// SPDX-License-Identifier: BSD-3-Clause
//
// The arena that a memory domain allocates from, and what a process does with the arenas of peers.

#include "uct/sm/arena.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <uct/api/uct.h>

#include <array>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "uct/desc_pool.hpp"
#include "uct/sm/key_guard.hpp"
#include "uct/sm/layout.hpp"
#include "uct/sm/wire.hpp"

namespace tagwire::sm {
namespace {

using uct::DescPool;

constexpr std::size_t kArenaBytes = std::size_t{1} << 20;

class ArenaTest : public testing::Test {
  protected:
    void SetUp() override { ASSERT_EQ(Arena::create(kArenaBytes, &arena), UCS_OK); }

    std::byte* allocate(std::size_t bytes) {
        std::byte* address = nullptr;
        std::size_t got = 0;
        EXPECT_EQ(arena->allocate(bytes, &address, &got), UCS_OK);
        EXPECT_GE(got, bytes);
        EXPECT_EQ(got % page, 0U);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(address) % page, 0U);
        return address;
    }
    ucs_status_t try_allocate(std::size_t bytes) {
        std::byte* address = nullptr;
        std::size_t got = 0;
        return arena->allocate(bytes, &address, &got);
    }

    const std::size_t page = ucs::page_bytes();
    std::unique_ptr<Arena> arena;
};

TEST_F(ArenaTest, gives_distinct_pages_and_counts_them) {
    std::byte* a = allocate(0);
    std::byte* b = allocate(1);
    std::byte* c = allocate(page + 1);
    std::memset(a, 1, page);
    std::memset(b, 2, page);
    std::memset(c, 3, 2 * page);
    EXPECT_EQ(a[page - 1], std::byte{1});
    EXPECT_EQ(b[0], std::byte{2});
    EXPECT_EQ(b[page - 1], std::byte{2});
    EXPECT_EQ(arena->allocated_bytes(), 4 * page);
}

TEST_F(ArenaTest, freed_memory_is_zero_when_it_comes_back) {
    std::byte* a = allocate(page);
    std::memset(a, 0xff, page);
    arena->free(a, page);
    std::byte* b = allocate(page);
    EXPECT_EQ(b, a) << "the first place that fits";
    EXPECT_EQ(b[0], std::byte{0});
    EXPECT_EQ(b[page - 1], std::byte{0});
}

TEST_F(ArenaTest, freed_memory_takes_none) {
    std::byte* a = allocate(64 * page);
    std::memset(a, 1, 64 * page);
    arena->free(a, 64 * page);
    struct stat info {};
    ASSERT_EQ(::fstat(arena->fd(), &info), 0);
    EXPECT_EQ(info.st_blocks, 0);
}

TEST_F(ArenaTest, neighbours_merge_in_whatever_order_they_are_freed) {
    for (const auto& order : {std::array{0, 1, 2}, std::array{2, 1, 0}, std::array{0, 2, 1},
                              std::array{1, 0, 2}, std::array{2, 0, 1}, std::array{1, 2, 0}}) {
        std::array<std::byte*, 3> parts{};
        for (auto& part : parts)
            part = allocate(kArenaBytes / 4);
        for (const int i : order)
            arena->free(parts[static_cast<std::size_t>(i)], kArenaBytes / 4);
        std::byte* all = allocate(kArenaBytes);
        arena->free(all, kArenaBytes);
    }
}

TEST_F(ArenaTest, that_is_full_refuses_and_goes_on) {
    EXPECT_EQ(try_allocate(kArenaBytes + 1), UCS_ERR_NO_MEMORY);
    EXPECT_EQ(try_allocate(SIZE_MAX), UCS_ERR_NO_MEMORY);
    EXPECT_EQ(try_allocate(SIZE_MAX - page + 2), UCS_ERR_NO_MEMORY);
    std::byte* all = allocate(kArenaBytes);
    EXPECT_EQ(try_allocate(1), UCS_ERR_NO_MEMORY);
    arena->free(all, kArenaBytes);
    EXPECT_EQ(try_allocate(1), UCS_OK);
}

TEST_F(ArenaTest, knows_what_is_its_own) {
    const std::byte* base = arena->mapping().base();
    EXPECT_EQ(arena->offset_of(base, kArenaBytes), 0U);
    EXPECT_EQ(arena->offset_of(base + 5, 10), 5U);
    EXPECT_EQ(arena->offset_of(base + kArenaBytes, 0), kArenaBytes);
    EXPECT_EQ(arena->offset_of(base + kArenaBytes, 1), kNoOffset);
    EXPECT_EQ(arena->offset_of(base - 1, 1), kNoOffset);
    EXPECT_EQ(arena->offset_of(base + 1, kArenaBytes), kNoOffset);
    EXPECT_EQ(arena->offset_of(base + 1, SIZE_MAX), kNoOffset);
    EXPECT_EQ(arena->offset_of(&page, 1), kNoOffset);
}

TEST_F(ArenaTest, mapping_gives_only_addresses_inside) {
    const ArenaMapping& mapping = arena->mapping();
    EXPECT_EQ(mapping.at(0, kArenaBytes), mapping.base());
    EXPECT_EQ(mapping.at(kArenaBytes, 0), mapping.base() + kArenaBytes);
    EXPECT_EQ(mapping.at(kArenaBytes, 1), nullptr);
    EXPECT_EQ(mapping.at(1, kArenaBytes), nullptr);
    EXPECT_EQ(mapping.at(8, UINT64_MAX), nullptr);
    EXPECT_EQ(mapping.at(UINT64_MAX, 8), nullptr);
    EXPECT_EQ(mapping.at(UINT64_MAX, UINT64_MAX), nullptr);
}

TEST(KeyGuard, a_key_is_good_by_its_generation_alone_and_never_by_one_that_is_even) {
    std::unique_ptr<Arena> arena;
    ASSERT_EQ(Arena::create(kGenerationsBytes, &arena), UCS_OK);
    auto* const generations = reinterpret_cast<Generation*>(arena->mapping().base());
    PackedRkey key{};
    key.key = 3 << kKeyIndexBits | (kKeyIndexMax - 1);
    for (const std::uint64_t generation : {0U, 1U, 2U, 7U, 8U}) {
        key.generation = generation;
        const KeyGuard guard(arena->mapping(), key);
        generations[kKeyIndexMax - 1] = generation;
        EXPECT_EQ(guard.is_good(), generation % 2 != 0) << generation;
        EXPECT_EQ(guard.status() == UCS_OK, generation % 2 != 0) << generation;
        generations[kKeyIndexMax - 1] = generation + 1;
        EXPECT_FALSE(guard.is_good()) << generation;
        EXPECT_EQ(guard.status(), UCS_ERR_INVALID_ADDR) << generation;
    }
}

TEST_F(ArenaTest, is_mapped_once_however_often_it_is_attached) {
    const std::uint64_t id = arena->mapping().id();
    std::shared_ptr<ArenaMapping> again;
    ASSERT_EQ(ArenaMapping::attach(id, arena->fd(), kArenaBytes, &again), UCS_OK);
    EXPECT_EQ(again.get(), &arena->mapping());
    EXPECT_EQ(ArenaMapping::find(id).get(), &arena->mapping());
    again.reset();
    arena.reset();
    EXPECT_EQ(ArenaMapping::find(id), nullptr);
}

TEST_F(ArenaTest, of_a_peer_is_shared_memory) {
    const std::uint64_t id = arena->mapping().id();
    std::byte* word = allocate(8);
    const std::uint64_t offset = arena->offset_of(word, 8);
    const ucs::UniqueFd fd(::dup(arena->fd()));
    std::memcpy(word, "tagwire", 8);
    arena.reset();  // from here on as if it were another process'
    std::shared_ptr<ArenaMapping> theirs;
    ASSERT_EQ(ArenaMapping::attach(id, fd.get(), kArenaBytes, &theirs), UCS_OK);
    EXPECT_STREQ(reinterpret_cast<const char*>(theirs->at(offset, 8)), "tagwire");
}

/// Flags of the mapping that begins at `base`, as /proc tells them.
std::string mapping_flags(const void* base) {
    std::ostringstream start;
    start << std::hex << reinterpret_cast<std::uintptr_t>(base) << '-';
    std::ifstream smaps("/proc/self/smaps");
    bool is_found = false;
    for (std::string line; std::getline(smaps, line);) {
        is_found |= line.starts_with(start.str());
        if (is_found && line.starts_with("VmFlags:"))
            return line + ' ';
    }
    return "";
}

// The kernel fills what it dumps with memory: a core of an arena would take as much as the arena's
// address space.
TEST_F(ArenaTest, is_in_no_core_dump) {
    EXPECT_NE(mapping_flags(arena->mapping().base()).find(" dd "), std::string::npos);
    const ucs::UniqueFd fd(::dup(arena->fd()));
    arena.reset();
    std::shared_ptr<ArenaMapping> theirs;
    ASSERT_EQ(ArenaMapping::attach(78, fd.get(), kArenaBytes, &theirs), UCS_OK);
    EXPECT_NE(mapping_flags(theirs->base()).find(" dd "), std::string::npos);
}

TEST_F(ArenaTest, of_another_size_or_without_seals_is_refused) {
    std::shared_ptr<ArenaMapping> mapping;
    EXPECT_EQ(ArenaMapping::attach(77, arena->fd(), kArenaBytes / 2, &mapping),
              UCS_ERR_INVALID_PARAM);
    const ucs::UniqueFd unsealed(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(::ftruncate(unsealed.get(), kArenaBytes), 0);
    EXPECT_EQ(ArenaMapping::attach(77, unsealed.get(), kArenaBytes, &mapping),
              UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(mapping, nullptr);
    EXPECT_EQ(ArenaMapping::find(77), nullptr);
}

TEST_F(ArenaTest, that_claims_to_be_another_is_refused) {
    std::unique_ptr<Arena> other;
    ASSERT_EQ(Arena::create(kArenaBytes, &other), UCS_OK);
    std::shared_ptr<ArenaMapping> mapping;
    EXPECT_EQ(ArenaMapping::attach(arena->mapping().id(), other->fd(), kArenaBytes, &mapping),
              UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(mapping, nullptr);
}

RC_GTEST_PROP(ArenaProperty, never_gives_a_page_twice_and_ends_as_it_began, ()) {
    constexpr std::size_t kPages = 24;
    std::unique_ptr<Arena> arena;
    const std::size_t page = ucs::page_bytes();
    RC_ASSERT(Arena::create(kPages * page, &arena) == UCS_OK);
    std::vector<std::pair<std::byte*, std::size_t>> held;
    std::size_t used = 0;
    for (const auto& [is_free, amount] :
         *rc::gen::container<std::vector<std::pair<bool, std::size_t>>>(
             rc::gen::pair(rc::gen::arbitrary<bool>(), rc::gen::inRange<std::size_t>(0, 99)))) {
        if (is_free && !held.empty()) {
            const auto [address, bytes] = held[amount % held.size()];
            held.erase(held.begin() + static_cast<std::ptrdiff_t>(amount % held.size()));
            arena->free(address, bytes);
            used -= bytes;
            continue;
        }
        std::byte* address = nullptr;
        std::size_t bytes = 0;
        if (arena->allocate((amount % 8 + 1) * page, &address, &bytes) != UCS_OK)
            continue;
        for (const auto& [other, other_bytes] : held)
            RC_ASSERT(address + bytes <= other || other + other_bytes <= address);
        RC_ASSERT(arena->offset_of(address, bytes) != kNoOffset);
        held.emplace_back(address, bytes);
        used += bytes;
        RC_ASSERT(arena->allocated_bytes() == used);
    }
    for (const auto& [address, bytes] : held)
        arena->free(address, bytes);
    std::byte* all = nullptr;
    std::size_t bytes = 0;
    RC_ASSERT(arena->allocate(kPages * page, &all, &bytes) == UCS_OK);
}

// ---- Private descriptors -----------------------------------------------------------------------

struct Abandon {
    void operator()(DescPool* pool) const { pool->abandon(); }
};
using PoolOwner = std::unique_ptr<DescPool, Abandon>;

TEST(DescPool, keeps_the_headroom_before_the_data) {
    constexpr std::size_t kHeadroom = 100, kData = 1000;
    const PoolOwner owner(new DescPool(kHeadroom, kData, 1, 0));
    DescPool& pool = *owner;
    std::vector<std::byte*> taken;
    for (int i = 0; i < 10; ++i)
        taken.push_back(pool.take());
    for (std::size_t i = 0; i < taken.size(); ++i)
        std::memset(taken[i] - kHeadroom, static_cast<int>(i), kHeadroom + kData);
    for (std::size_t i = 0; i < taken.size(); ++i) {
        EXPECT_EQ(taken[i][-static_cast<std::ptrdiff_t>(kHeadroom)], static_cast<std::byte>(i));
        EXPECT_EQ(taken[i][kData - 1], static_cast<std::byte>(i));
    }
    EXPECT_EQ(pool.held(), 10U);
    for (std::byte* data : taken)
        pool.put(data);
    EXPECT_EQ(pool.held(), 0U);
}

TEST(DescPool, takes_a_descriptor_back_by_its_address) {
    constexpr std::size_t kHeadroom = 64;
    const PoolOwner owner(new DescPool(kHeadroom, 512, 1, 0));
    DescPool& pool = *owner;
    std::byte* data = pool.take();
    void* desc = data - kHeadroom;
    uct::DescRegionHeader* region = uct::desc_region_of(desc);
    ASSERT_EQ(region->magic, uct::kDescRegionMagic);
    region->release(region, desc);
    EXPECT_EQ(pool.held(), 0U);
    EXPECT_EQ(pool.take(), data);
    uct_iface_release_desc(desc);
    EXPECT_EQ(pool.held(), 0U);
}

TEST(DescPool, aligns_the_data_as_asked) {
    for (const std::size_t offset : {0U, 8U, 24U, 100U}) {
        const PoolOwner owner(new DescPool(40, 512, 256, offset));
        std::vector<std::byte*> taken;
        for (int i = 0; i < 5; ++i) {
            taken.push_back(owner->take());
            EXPECT_EQ((reinterpret_cast<std::uintptr_t>(taken.back()) + offset) % 256, 0U);
        }
        for (std::byte* data : taken) {
            uct_iface_release_desc(data - 40);
            EXPECT_EQ(owner->take(), data);
            owner->put(data);
        }
        EXPECT_EQ(owner->held(), 0U);
    }
}

TEST(DescPool, that_is_abandoned_keeps_what_is_held_until_it_is_released) {
    PoolOwner owner(new DescPool(0, 512, 1, 0));
    std::byte* first = owner->take();
    std::byte* second = owner->take();
    owner.reset();
    std::memset(first, 1, 512);
    std::memset(second, 2, 512);
    uct_iface_release_desc(first);
    EXPECT_EQ(second[511], std::byte{2});
    uct_iface_release_desc(second);
}

TEST(DefaultArena, takes_a_little_of_a_limited_address_space) {
    constexpr std::size_t kMiB = std::size_t{1} << 20;
    constexpr std::size_t kGiB = std::size_t{1} << 30;
    const auto all = [](std::size_t) { return true; };
    EXPECT_EQ(default_arena_bytes(SIZE_MAX, all), 64 * kGiB);
    EXPECT_EQ(default_arena_bytes(8 * kGiB, all), 128 * kMiB);
    EXPECT_EQ(default_arena_bytes(kMiB, all), 16 * kMiB);
    EXPECT_EQ(default_arena_bytes(8 * kGiB + 12345, all) % ucs::page_bytes(), 0U);
}

TEST(DefaultArena, is_smaller_where_there_is_no_room) {
    constexpr std::size_t kMiB = std::size_t{1} << 20;
    EXPECT_EQ(default_arena_bytes(SIZE_MAX, [](std::size_t bytes) { return bytes <= 2048 * kMiB; }),
              1024 * kMiB);
    EXPECT_EQ(default_arena_bytes(SIZE_MAX, [](std::size_t bytes) { return bytes < 300 * kMiB; }),
              256 * kMiB);
    EXPECT_EQ(default_arena_bytes(SIZE_MAX, [](std::size_t) { return false; }), 16 * kMiB);
}

TEST(DescPool, has_a_bound_and_says_when_it_is_reached) {
    for (const std::size_t bytes : {std::size_t{64}, std::size_t{kSegBytesMax}}) {
        const PoolOwner owner(new DescPool(0, bytes, 1, 0));
        DescPool& pool = *owner;
        std::vector<std::byte*> taken;
        while (std::byte* data = pool.take()) {
            ASSERT_LE(taken.size(), DescPool::kCountMax);
            data[0] = data[bytes - 1] = std::byte{1};
            taken.push_back(data);
        }
        EXPECT_GE(taken.size(), 1000U);
        pool.put(taken.back());
        EXPECT_EQ(pool.take(), taken.back());
        for (std::byte* data : taken)
            pool.put(data);
    }
}

}  // namespace
}  // namespace tagwire::sm
