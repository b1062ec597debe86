// SPDX-License-Identifier: BSD-3-Clause
// Registrations of buffers that messages have used, kept for the next message.
//
// One per context, for the domains that do not register cheaply; workers of any thread. A worker
// uses regions by leases of its own (reg_leases.hpp), and asks here when it has none.
//  1. Regions that can be found do not overlap within a domain; a message that overlaps some
//     without being inside one replaces them by one region.
//  2. A region in use stays registered. One that was invalidated, replaced or found unmapped cannot
//     be found any more, its leases are revoked, and it goes with its last use.
//  3. Regions, in use or not, have at most `bytes_max` bytes together; to make room, regions not in
//     use are evicted, the least recently used one first. Uses are stamped in the leases: the order
//     of eviction is mended when a region's turn comes.
//  4. A region is used again only if its memory has stayed mapped since it was registered
//     (region_marks.hpp). Memory that takes no mark is not cached. Where the system has no marks,
//     the program must tell (tw_mem_invalidate); it must always tell of pages that it discards.
#pragma once

#include <uct/api/uct.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "protocols/request/reg_leases.hpp"
#include "protocols/request/region_marks.hpp"
#include "ucs/datastruct/queue.hpp"
#include "ucs/memory/reserve.hpp"

namespace tagwire::proto {

class Context;

struct CachedRegion : ucs::FromReserve {
    std::uintptr_t begin = 0;  // whole pages
    std::uintptr_t end = 0;
    uct_mem_h handle = nullptr;
    std::size_t domain = 0;
    RegUse rights = RegUse::kSource;
    std::uint64_t generation = 0;  // of its marks; 0: the system has none
    std::uint64_t stamp = 0;       // its place in the order of eviction, while it is listed
    bool is_listed = false;        // can be found
    ucs::List<RegLease, &RegLease::link> leases;
    PageRange range() const { return {begin, end}; }
    std::size_t bytes() const { return end - begin; }
};

class RegCache {
  public:
    RegCache(const Context& context, std::size_t bytes_max);
    RegCache(const RegCache&) = delete;
    RegCache& operator=(const RegCache&) = delete;
    ~RegCache();

    /// Regions that overlap [address, address + length) are never used again.
    void invalidate(const void* address, std::size_t length);
    /// For people.
    std::string description();

    // ---- For leases; without a lock

    std::size_t bytes_max() const { return bytes_max_; }
    PageRange pages_of(const void* address, std::size_t length) const;
    std::uint64_t page_of(PageRange range) const { return range.begin / page_bytes_; }
    /// The range, which is inside a region, has not been unmapped since `remarks` was read.
    bool has_stayed(PageRange range, std::uint64_t remarks) const {
        return marks_ == nullptr || marks_->has_stayed_since(range, remarks);
    }
    void end_use(RegLease& lease) {
        if (lease.state.end_use() || lease.is_for_one_use) [[unlikely]]
            bury(lease);
    }

    // ---- For leases; with the lock

    struct Wanted {
        std::size_t domain;
        PageRange range;
        RegUse use;
    };
    /// `lease`, or one for this use alone, on a region for what is wanted.
    RegLease* grant(RegLease& lease, const Wanted& wanted, bool* is_new_p);
    /// The lease is not in use, and will not be.
    void give_up(RegLease& lease);
    void forget_region_of(const RegLease& lease);

  private:
    using Range = PageRange;
    using Regions = ucs::ReserveMap<std::uintptr_t, CachedRegion*>;  // by begin
    using Order = ucs::ReserveMap<std::pair<std::uint64_t, std::uintptr_t>, CachedRegion*>;

    static Regions::iterator first_overlap(Regions& regions, Range range);
    static Order::key_type place_of(const CachedRegion& region);
    CachedRegion* find(const Wanted& wanted);
    CachedRegion* make(const Wanted& wanted);
    bool try_register(CachedRegion& region, Range range, RegUse rights);
    bool make_room(std::size_t bytes);
    void move_to(CachedRegion& region, std::uint64_t stamp);
    bool try_evict(CachedRegion& region);
    void unlist_overlapping(std::size_t domain, Range range);
    void unlist(CachedRegion& region);
    void destroy(CachedRegion& region);
    void bury(RegLease& lease);
    void detach(RegLease& lease);

    const Context& context_;
    const std::size_t bytes_max_;
    const std::size_t page_bytes_;
    std::shared_ptr<RegionMarks> marks_;
    std::string no_marks_;  // why
    // Apart from what a use reads without the lock.
    alignas(128) std::mutex mutex_;
    std::vector<Regions> listed_;  // by domain
    Order order_;                  // of eviction: by stamp, and by address
    std::size_t bytes_ = 0;        // registered
    std::size_t count_ = 0;
};

}  // namespace tagwire::proto
