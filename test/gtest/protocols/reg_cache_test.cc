// SPDX-License-Identifier: BSD-3-Clause
// The registration cache by itself, in random use and by several threads.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <random>
#include <thread>

#include "common/seeds.hpp"
#include "protocols/request/context.hpp"
#include "protocols/request/reg_cache.hpp"
#include "ucs/sys/fd.hpp"

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

bool covers(const RegLease& lease, const std::byte* address, std::size_t length) {
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    return lease.range.begin <= begin && begin + length <= lease.range.end &&
           lease.region->begin <= lease.range.begin && lease.range.end <= lease.region->end;
}

TEST_F(RegCacheTest, more_than_it_may_hold_is_refused) {
    RegCache cache(*context_, kLimit);
    RegLeases leases(cache);
    bool is_new = false;
    EXPECT_EQ(leases.acquire(0, memory_, kLimit + 1, RegUse::kSource, &is_new), nullptr);
    RegLease* lease = leases.acquire(0, memory_, kLimit, RegUse::kSource, &is_new);
    ASSERT_NE(lease, nullptr);
    EXPECT_EQ(leases.acquire(0, memory_ + kLimit, 1, RegUse::kSource, &is_new), nullptr);
    RegLeases::release(*lease, true);
    lease = leases.acquire(0, memory_ + kLimit, 1, RegUse::kSource, &is_new);
    ASSERT_NE(lease, nullptr);
    EXPECT_TRUE(is_new);
    RegLeases::release(*lease, true);
}

TEST_F(RegCacheTest, what_was_registered_to_be_read_is_not_written) {
    RegCache cache(*context_, kLimit);
    RegLeases leases(cache);
    bool is_new = false;
    RegLease* source = leases.acquire(0, memory_, 100, RegUse::kSource, &is_new);
    ASSERT_NE(source, nullptr);
    RegLease* target = leases.acquire(0, memory_, 100, RegUse::kTarget, &is_new);
    ASSERT_NE(target, nullptr);
    EXPECT_TRUE(is_new);
    RegLeases::release(*source, true);
    source = leases.acquire(0, memory_, 100, RegUse::kSource, &is_new);
    EXPECT_EQ(source->region, target->region) << "but the other way round";
    RegLeases::release(*source, true);
    RegLeases::release(*target, true);
}

// Marks belong to the mappings of the process: one cache that marks new memory must not make
// another one believe that it is the old memory.
TEST_F(RegCacheTest, memory_that_was_mapped_anew_is_new_to_every_cache) {
    RegCache first_cache(*context_, kLimit), second_cache(*context_, kLimit);
    RegLeases first(first_cache), second(second_cache);
    if (first_cache.description().find("not noticed") != std::string::npos)
        GTEST_SKIP() << first_cache.description();
    RegLeases* const all[] = {&first, &second};
    for (int round = 0; round < 3; ++round) {
        for (RegLeases* leases : all) {
            bool is_new = false;
            RegLease* lease = leases->acquire(0, memory_, kLimit, RegUse::kTarget, &is_new);
            ASSERT_NE(lease, nullptr);
            EXPECT_TRUE(is_new) << "round " << round;
            RegLeases::release(*lease, true);
            lease = leases->acquire(0, memory_ + 5000, 1, RegUse::kTarget, &is_new);
            ASSERT_NE(lease, nullptr);
            EXPECT_FALSE(is_new) << "round " << round;
            RegLeases::release(*lease, true);
        }
        ASSERT_NE(::mmap(memory_, kArenaBytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
                  MAP_FAILED);
    }
}

/// Leases are found by address: the parts of some bases meet in one set.
class RegCacheParts : public RegCacheTest, public ::testing::WithParamInterface<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Pages, RegCacheParts, ::testing::Range<std::size_t>(0, 16));

TEST_P(RegCacheParts, a_part_that_was_mapped_anew_spoils_that_part_alone) {
    std::byte* const base = memory_ + GetParam() * 4096;
    RegCache first_cache(*context_, kLimit), second_cache(*context_, kLimit);
    RegLeases first(first_cache), second(second_cache);
    if (first_cache.description().find("not noticed") != std::string::npos)
        GTEST_SKIP() << first_cache.description();
    constexpr std::size_t kPart = kLimit / 8;
    const auto is_new_for = [&](RegLeases& leases, std::size_t at) {
        bool is_new = false;
        RegLease* lease = leases.acquire(0, base + at, kPart, RegUse::kTarget, &is_new);
        EXPECT_NE(lease, nullptr);
        if (lease != nullptr)
            RegLeases::release(*lease, true);
        return is_new;
    };
    bool is_new = false;
    RegLease* whole = first.acquire(0, base, 4 * kPart, RegUse::kTarget, &is_new);
    ASSERT_NE(whole, nullptr);
    ASSERT_NE(::mmap(base + kPart, kPart, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
              MAP_FAILED);
    EXPECT_TRUE(is_new_for(second, kPart)) << "marks the new memory";
    EXPECT_FALSE(is_new_for(first, 2 * kPart));
    EXPECT_FALSE(is_new_for(first, 0));
    EXPECT_TRUE(is_new_for(first, kPart));
    EXPECT_FALSE(is_new_for(second, kPart));
    RegLeases::release(*whole, true);
}

TEST_F(RegCacheTest, memory_that_takes_no_mark_is_not_cached) {
    RegCache cache(*context_, kLimit);
    RegLeases leases(cache);
    if (cache.description().find("not noticed") != std::string::npos)
        GTEST_SKIP() << cache.description();
    // UFFD_USER_MODE_ONLY, which headers of Debian 12 do not have.
    const ucs::UniqueFd faults(
        static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | 1)));
    ASSERT_TRUE(faults);
    uffdio_api api{};
    api.api = UFFD_API;
    ASSERT_EQ(::ioctl(faults.get(), UFFDIO_API, &api), 0);
    uffdio_register range{};
    range.range = {reinterpret_cast<std::uintptr_t>(memory_), kLimit};
    range.mode = UFFDIO_REGISTER_MODE_MISSING;
    ASSERT_EQ(::ioctl(faults.get(), UFFDIO_REGISTER, &range), 0);
    bool is_new = false;
    EXPECT_EQ(leases.acquire(0, memory_, kLimit, RegUse::kTarget, &is_new), nullptr);
    RegLease* lease = leases.acquire(0, memory_ + kLimit, 1, RegUse::kTarget, &is_new);
    ASSERT_NE(lease, nullptr);
    RegLeases::release(*lease, true);
}

TEST_F(RegCacheTest, a_region_that_another_worker_uses_is_not_evicted) {
    RegCache cache(*context_, kLimit);
    RegLeases first(cache), second(cache);
    constexpr std::size_t kHalf = kLimit / 2;
    const auto is_new_for = [&](RegLeases& leases, std::size_t at) {
        bool is_new = false;
        RegLease* lease = leases.acquire(0, memory_ + at, kHalf, RegUse::kTarget, &is_new);
        EXPECT_NE(lease, nullptr);
        if (lease != nullptr)
            RegLeases::release(*lease, true);
        return is_new;
    };
    bool is_new = false;
    EXPECT_TRUE(is_new_for(first, 0));
    RegLease* used = first.acquire(0, memory_, kHalf, RegUse::kTarget, &is_new);
    ASSERT_NE(used, nullptr);
    EXPECT_FALSE(is_new);
    EXPECT_TRUE(is_new_for(second, kHalf));
    EXPECT_TRUE(is_new_for(second, 2 * kHalf)) << "evicts the second half";
    EXPECT_FALSE(is_new_for(second, 0));
    RegLeases::release(*used, true);
    EXPECT_FALSE(is_new_for(first, 2 * kHalf));
    EXPECT_FALSE(is_new_for(second, 0)) << "used last, by its lease alone";
    EXPECT_TRUE(is_new_for(first, kHalf)) << "evicts what was used longest ago";
    EXPECT_FALSE(is_new_for(first, 0));
    EXPECT_TRUE(is_new_for(first, 2 * kHalf));
}

TEST_F(RegCacheTest, a_lease_of_every_worker_is_revoked) {
    RegCache cache(*context_, kLimit);
    RegLeases first(cache), second(cache);
    bool is_new = false;
    RegLease* used = first.acquire(0, memory_, 100, RegUse::kTarget, &is_new);
    ASSERT_NE(used, nullptr);
    RegLease* other = second.acquire(0, memory_, 100, RegUse::kTarget, &is_new);
    ASSERT_NE(other, nullptr);
    RegLeases::release(*other, true);
    cache.invalidate(memory_ + 50, 1);
    for (RegLeases* leases : {&second, &first}) {
        RegLease* anew = leases->acquire(0, memory_, 100, RegUse::kTarget, &is_new);
        ASSERT_NE(anew, nullptr);
        EXPECT_EQ(is_new, leases == &second);
        EXPECT_NE(anew, used);
        EXPECT_NE(anew->region, used->region);
        RegLeases::release(*anew, true);
    }
    EXPECT_NE(cache.description().find("in 2 regions"), std::string::npos) << cache.description();
    RegLeases::release(*used, true);
    EXPECT_NE(cache.description().find("in 1 regions"), std::string::npos) << cache.description();
}

TEST_F(RegCacheTest, more_buffers_than_a_set_has_leases_are_used_at_the_same_time) {
    RegCache cache(*context_, kLimit);
    RegLeases leases(cache);
    constexpr std::size_t kPage = 4096;
    for (int round = 0; round < 2; ++round) {
        std::vector<RegLease*> uses;
        for (std::size_t i = 0; i <= kLimit / kPage; ++i) {
            // Pages between them, else one region would replace two.
            const std::byte* at = memory_ + 2 * i * kPage;
            bool is_new = false;
            RegLease* lease = leases.acquire(0, at, 1, RegUse::kTarget, &is_new);
            if (lease == nullptr)
                break;
            EXPECT_EQ(is_new, round == 0) << i;
            EXPECT_TRUE(covers(*lease, at, 1));
            uses.push_back(lease);
        }
        EXPECT_EQ(uses.size(), kLimit / kPage) << "there is no room for more";
        for (RegLease* lease : uses)
            RegLeases::release(*lease, true);
    }
}

TEST_F(RegCacheTest, random_use_leaves_only_what_covers_and_what_is_valid) {
    tagwire::test::for_each_seed(20, [&](std::uint64_t seed) {
        struct Use {
            RegLease* lease;
            const std::byte* address;
            std::size_t length;
        };
        std::mt19937_64 random(seed);
        RegCache cache(*context_, kLimit);
        RegLeases leases(cache);
        std::vector<Use> uses;
        const auto release = [&](std::size_t i, bool is_kept) {
            EXPECT_TRUE(covers(*uses[i].lease, uses[i].address, uses[i].length));
            RegLeases::release(*uses[i].lease, is_kept);
            uses.erase(uses.begin() + static_cast<std::ptrdiff_t>(i));
        };
        for (int step = 0; step < 2000; ++step) {
            const std::byte* address = memory_ + random() % (kArenaBytes / 2);
            const std::size_t length = 1 + random() % (kLimit / 3);
            const std::uint64_t what = random() % 10;
            if (what == 0) {
                cache.invalidate(address, length);
                for (const Use& use : uses) {
                    EXPECT_FALSE(use.lease->region->is_listed && use.address < address + length &&
                                 address < use.address + use.length);
                }
            } else if (what < 5 && !uses.empty()) {
                release(random() % uses.size(), random() % 8 != 0);
            } else {
                bool is_new = false;
                const auto wanted = random() % 2 == 0 ? RegUse::kSource : RegUse::kTarget;
                RegLease* lease = leases.acquire(0, address, length, wanted, &is_new);
                if (lease == nullptr) {
                    EXPECT_FALSE(uses.empty()) << "nothing is in the way";
                    continue;
                }
                EXPECT_TRUE(lease->region->is_listed && lease->region->rights >= wanted);
                EXPECT_TRUE(covers(*lease, address, length));
                uses.push_back({lease, address, length});
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
        RegLeases leases(cache);
        for (int step = 0; step < 2000; ++step) {
            const std::byte* address = memory_ + random() % kLimit;
            bool is_new = false;
            RegLease* lease =
                leases.acquire(0, address, 1 + random() % 50000, RegUse::kTarget, &is_new);
            if (random() % 16 == 0)
                cache.invalidate(memory_ + random() % kLimit, 1);
            if (lease != nullptr)
                RegLeases::release(*lease, true);
        }
    };
    std::thread other(work, 1);
    work(2);
    other.join();
    EXPECT_NE(cache.description().find("bytes in"), std::string::npos);
}

}  // namespace
}  // namespace tagwire::proto
