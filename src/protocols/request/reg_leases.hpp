// SPDX-License-Identifier: BSD-3-Clause
// A worker's leases on regions of the registration cache: buffers that it has used lately are found
// here, by one thread at a time, without a lock and without a write to a shared line.
//
//  1. A lease lies on its worker's own cache lines, and copies what a use needs of its region.
//  2. The cache can revoke a lease at any time (lease_state.hpp): the next use asks the cache.
//  3. A lease is of as much of its region as the cache has seen to have stayed. It serves a buffer
//     only while no memory that the process had marked was marked anew since the cache looked, and
//     while the buffer's marks are there.
//  4. A buffer's page chooses one of 16 sets of four leases. The lease that was used longest ago is
//     granted anew; while all four are in use, a buffer gets a lease for this use alone.
#pragma once

#include <uct/api/uct.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "protocols/request/lease_state.hpp"
#include "protocols/request/region_marks.hpp"
#include "ucs/datastruct/queue.hpp"
#include "ucs/memory/reserve.hpp"

namespace tagwire::proto {

class RegCache;
class RegLeases;
struct CachedRegion;

enum class RegUse : std::uint8_t {
    kSource,  // peers read it; it may be memory that cannot be written
    kTarget,  // written by a read of this side, or by a peer
};

struct alignas(64) RegLease : ucs::FromReserve {
    // The worker's thread, which holds the cache's lock when it writes them.
    RegLeases* owner = nullptr;
    uct_mem_h handle = nullptr;
    PageRange range{};  // what is leased of the region
    std::size_t domain = 0;
    std::uint64_t remarks = 0;  // RegionMarks::remarks() before the cache looked
    RegUse rights = RegUse::kSource;
    bool is_for_one_use = false;
    // The worker's thread writes, whoever evicts reads.
    std::atomic<std::uint64_t> last_use{0};  // ticks
    LeaseState<std::atomic> state;
    // With the cache's lock.
    CachedRegion* region = nullptr;
    ucs::ListLink<RegLease> link;  // among the region's

    bool covers(std::size_t wanted_domain, PageRange wanted, RegUse use) const {
        return domain == wanted_domain && range.begin <= wanted.begin && wanted.end <= range.end &&
               rights >= use;
    }
};

class RegLeases {
  public:
    explicit RegLeases(RegCache& cache);
    RegLeases(const RegLeases&) = delete;
    RegLeases& operator=(const RegLeases&) = delete;
    /// None is in use.
    ~RegLeases();

    /// A lease on a region of `domain` with all of [address, address + length), until release().
    /// Null: there is no room beside what is in use, or the domain refused. *is_new_p: the region
    /// was registered for this.
    RegLease* acquire(std::size_t domain, const void* address, std::size_t length, RegUse use,
                      bool* is_new_p);
    /// `is_kept` false: the region is not found any more, as after RegCache::invalidate().
    static void release(RegLease& lease, bool is_kept);

  private:
    static constexpr std::size_t kSets = 16;
    static constexpr std::size_t kWays = 4;

    static RegLease& oldest_of(RegLease* set);

    RegCache& cache_;
    std::array<RegLease, kSets * kWays> leases_;  // those of a set one behind the other
};

}  // namespace tagwire::proto
