// SPDX-License-Identifier: BSD-3-Clause
// Registrations of buffers that messages have used, kept for the next message.
//
// One per context, for the domains that do not register cheaply; workers of any thread.
//  1. Regions that can be found do not overlap within a domain; a message that overlaps some
//     without being inside one replaces them by one region.
//  2. A region in use stays registered. One that was invalidated, replaced or found unmapped cannot
//     be found any more, and goes with its last use.
//  3. Regions, in use or not, have at most `bytes_max` bytes together; to make room, regions not in
//     use are evicted, the least recently used one first.
//  4. A region is used again only if its memory has stayed mapped since it was registered
//     (region_marks.hpp). Memory that takes no mark is not cached. Where the system has no marks,
//     the program must tell (tw_mem_invalidate); it must always tell of pages that it discards.
#pragma once

#include <uct/api/uct.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "protocols/request/region_marks.hpp"
#include "ucs/datastruct/queue.hpp"
#include "ucs/memory/reserve.hpp"

namespace tagwire::proto {

class Context;

enum class RegUse : std::uint8_t {
    kSource,  // peers read it; it may be memory that cannot be written
    kTarget,  // written by a read of this side, or by a peer
};

struct CachedRegion : ucs::FromReserve {
    std::uintptr_t begin = 0;  // whole pages
    std::uintptr_t end = 0;
    uct_mem_h handle = nullptr;
    std::size_t domain = 0;
    RegUse rights = RegUse::kSource;
    std::uint64_t generation = 0;  // of its marks; 0: the system has none
    bool is_listed = false;        // can be found
    std::uint32_t users = 0;
    ucs::ListLink<CachedRegion> unused_link;  // while nobody uses it
    PageRange range() const { return {begin, end}; }
    std::size_t bytes() const { return end - begin; }
};

class RegCache {
  public:
    RegCache(const Context& context, std::size_t bytes_max);
    RegCache(const RegCache&) = delete;
    RegCache& operator=(const RegCache&) = delete;
    ~RegCache();

    /// A region of `domain` with all of [address, address + length), in use until release().
    /// Null: there is no room beside what is in use, or the domain refused. *is_new_p: it was
    /// registered for this.
    CachedRegion* acquire(std::size_t domain, const void* address, std::size_t length, RegUse use,
                          bool* is_new_p);
    /// `is_kept` false: it is not found any more, as after invalidate().
    void release(CachedRegion& region, bool is_kept);
    /// Regions that overlap [address, address + length) are never used again.
    void invalidate(const void* address, std::size_t length);
    /// For people.
    std::string description();

  private:
    using Range = PageRange;
    using Regions = ucs::ReserveMap<std::uintptr_t, CachedRegion*>;  // by begin

    Range pages_of(const void* address, std::size_t length) const;
    static Regions::iterator first_overlap(Regions& regions, Range range);
    CachedRegion* find(std::size_t domain, Range range, RegUse use);
    CachedRegion* make(std::size_t domain, Range range, RegUse use);
    bool try_register(CachedRegion& region, Range range, RegUse rights);
    bool make_room(std::size_t bytes);
    void unlist_overlapping(std::size_t domain, Range range);
    void unlist(CachedRegion& region);
    void destroy(CachedRegion& region);

    const Context& context_;
    const std::size_t bytes_max_;
    const std::size_t page_bytes_;
    std::shared_ptr<RegionMarks> marks_;
    std::string no_marks_;  // why
    std::mutex mutex_;
    std::vector<Regions> listed_;                                 // by domain
    ucs::List<CachedRegion, &CachedRegion::unused_link> unused_;  // used longest ago first
    std::size_t bytes_ = 0;                                       // registered
    std::size_t count_ = 0;
};

}  // namespace tagwire::proto
