// SPDX-License-Identifier: BSD-3-Clause
// The registration cache by itself, in random use and by several threads.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <random>
#include <thread>

#include "common/seeds.hpp"
#include "protocols/context.hpp"
#include "protocols/reg_cache.hpp"

namespace tagwire::proto {
namespace {

constexpr std::size_t kArenaBytes = std::size_t{1} << 20;
constexpr std::size_t kLimit = std::size_t{256} << 10;

class RegCacheTest : public ::testing::Test {
  protected:
    RegCacheTest() {
        EXPECT_EQ(Context::create("sm", &context_), UCS_OK);
        void* memory = ::mmap(nullptr, kArenaBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        EXPECT_NE(memory, MAP_FAILED);
        memory_ = static_cast<std::byte*>(memory);
    }
    ~RegCacheTest() override { ::munmap(memory_, kArenaBytes); }

    std::unique_ptr<Context> context_;
    std::byte* memory_ = nullptr;
};

bool covers(const CachedRegion& region, const std::byte* address, std::size_t length) {
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    return region.begin <= begin && begin + length <= region.end;
}

TEST_F(RegCacheTest, more_than_it_may_hold_is_refused) {
    RegCache cache(*context_, kLimit);
    bool is_new = false;
    EXPECT_EQ(cache.acquire(0, memory_, kLimit + 1, RegUse::kSource, &is_new), nullptr);
    CachedRegion* region = cache.acquire(0, memory_, kLimit, RegUse::kSource, &is_new);
    ASSERT_NE(region, nullptr);
    EXPECT_EQ(cache.acquire(0, memory_ + kLimit, 1, RegUse::kSource, &is_new), nullptr);
    cache.release(*region, true);
    region = cache.acquire(0, memory_ + kLimit, 1, RegUse::kSource, &is_new);
    ASSERT_NE(region, nullptr);
    EXPECT_TRUE(is_new);
    cache.release(*region, true);
}

TEST_F(RegCacheTest, what_was_registered_to_be_read_is_not_written) {
    RegCache cache(*context_, kLimit);
    bool is_new = false;
    CachedRegion* source = cache.acquire(0, memory_, 100, RegUse::kSource, &is_new);
    ASSERT_NE(source, nullptr);
    CachedRegion* target = cache.acquire(0, memory_, 100, RegUse::kTarget, &is_new);
    ASSERT_NE(target, nullptr);
    EXPECT_TRUE(is_new);
    cache.release(*source, true);
    source = cache.acquire(0, memory_, 100, RegUse::kSource, &is_new);
    EXPECT_EQ(source, target) << "but the other way round";
    cache.release(*source, true);
    cache.release(*target, true);
}

TEST_F(RegCacheTest, random_use_leaves_only_what_covers_and_what_is_valid) {
    tagwire::test::for_each_seed(20, [&](std::uint64_t seed) {
        struct Use {
            CachedRegion* region;
            const std::byte* address;
            std::size_t length;
        };
        std::mt19937_64 random(seed);
        RegCache cache(*context_, kLimit);
        std::vector<Use> uses;
        const auto release = [&](std::size_t i, bool is_kept) {
            EXPECT_TRUE(covers(*uses[i].region, uses[i].address, uses[i].length));
            cache.release(*uses[i].region, is_kept);
            uses.erase(uses.begin() + static_cast<std::ptrdiff_t>(i));
        };
        for (int step = 0; step < 2000; ++step) {
            const std::byte* address = memory_ + random() % (kArenaBytes / 2);
            const std::size_t length = 1 + random() % (kLimit / 3);
            const std::uint64_t what = random() % 10;
            if (what == 0) {
                cache.invalidate(address, length);
                for (const Use& use : uses) {
                    EXPECT_FALSE(use.region->is_listed && use.address < address + length &&
                                 address < use.address + use.length);
                }
            } else if (what < 5 && !uses.empty()) {
                release(random() % uses.size(), random() % 8 != 0);
            } else {
                bool is_new = false;
                const auto wanted = random() % 2 == 0 ? RegUse::kSource : RegUse::kTarget;
                CachedRegion* region = cache.acquire(0, address, length, wanted, &is_new);
                if (region == nullptr) {
                    EXPECT_FALSE(uses.empty()) << "nothing is in the way";
                    continue;
                }
                EXPECT_TRUE(region->is_listed && region->rights >= wanted);
                EXPECT_TRUE(covers(*region, address, length));
                uses.push_back({region, address, length});
            }
        }
        while (!uses.empty())
            release(0, true);
    });
}

TEST_F(RegCacheTest, threads_use_the_same_regions) {
    RegCache cache(*context_, kLimit);
    const auto work = [&](std::uint64_t seed) {
        std::mt19937_64 random(seed);
        for (int step = 0; step < 2000; ++step) {
            const std::byte* address = memory_ + random() % kLimit;
            bool is_new = false;
            CachedRegion* region =
                cache.acquire(0, address, 1 + random() % 50000, RegUse::kTarget, &is_new);
            if (random() % 16 == 0)
                cache.invalidate(memory_ + random() % kLimit, 1);
            if (region != nullptr)
                cache.release(*region, true);
        }
    };
    std::thread other(work, 1);
    work(2);
    other.join();
    EXPECT_NE(cache.description().find("bytes in"), std::string::npos);
}

}  // namespace
}  // namespace tagwire::proto
