// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/request/reg_cache.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "protocols/request/context.hpp"
#include "ucs/debug/check.hpp"
#include "ucs/log/log.hpp"
#include "ucs/sys/shm.hpp"
#include "ucs/time/clock.hpp"

namespace tagwire::proto {

namespace {

constexpr unsigned flags_of(RegUse use) {
    constexpr unsigned kSource = UCT_MD_MEM_ACCESS_LOCAL_READ | UCT_MD_MEM_ACCESS_REMOTE_GET;
    constexpr unsigned kTarget =
        kSource | UCT_MD_MEM_ACCESS_LOCAL_WRITE | UCT_MD_MEM_ACCESS_REMOTE_PUT;
    return UCT_MD_MEM_FLAG_HIDE_ERRORS | (use == RegUse::kTarget ? kTarget : kSource);
}

}  // namespace

RegCache::RegCache(const Context& context, std::size_t bytes_max)
    : context_(context),
      bytes_max_(bytes_max),
      page_bytes_(ucs::page_bytes()),
      marks_(RegionMarks::of_process(&no_marks_)),
      listed_(context.domains().size()) {
    if (marks_ == nullptr) {
        TW_LOG_INFO(
            "registration cache: unmapped memory is not detected (%s); the program must call "
            "tw_mem_invalidate() before it unmaps memory",
            no_marks_.c_str());
    }
}

RegCache::~RegCache() {
    for (Regions& regions : listed_)
        while (!regions.empty())
            unlist(*regions.begin()->second);
    TW_CHECK(count_ == 0);
}

PageRange RegCache::pages_of(const void* address, std::size_t length) const {
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    return {begin / page_bytes_ * page_bytes_,
            (begin + length + page_bytes_ - 1) / page_bytes_ * page_bytes_};
}

RegCache::Regions::iterator RegCache::first_overlap(Regions& regions, Range range) {
    auto at = regions.upper_bound(range.begin);
    if (at != regions.begin() && std::prev(at)->second->end > range.begin)
        --at;
    return at;
}

RegCache::Order::key_type RegCache::place_of(const CachedRegion& region) {
    return {region.stamp, reinterpret_cast<std::uintptr_t>(&region)};
}

RegLease* RegCache::grant(RegLease& lease, const Wanted& wanted, bool* is_new_p) {
    const std::lock_guard lock(mutex_);
    // Before the marks are looked at: if some are set anew meanwhile, the next use asks again.
    const std::uint64_t remarks = marks_ == nullptr ? 0 : marks_->remarks();
    CachedRegion* region = find(wanted);
    *is_new_p = region == nullptr;
    if (region == nullptr)
        region = make(wanted);
    if (region == nullptr)
        return nullptr;
    RegLease* granted = &lease;
    if (lease.state.is_in_use()) {
        granted = new RegLease;
        granted->owner = lease.owner;
        granted->is_for_one_use = true;
    } else if (lease.region != nullptr) {
        lease.state.revoke();
        detach(lease);
    }
    granted->handle = region->handle;
    // Leased is what has stayed, and no more: another part of the region may have been mapped anew,
    // and marked again before `remarks` was read.
    const bool is_whole =
        *is_new_p || marks_ == nullptr || marks_->has_stayed(region->range(), region->generation);
    granted->range = is_whole ? region->range() : wanted.range;
    granted->domain = region->domain;
    granted->rights = region->rights;
    granted->remarks = remarks;
    granted->region = region;
    region->leases.push_back(*granted);
    granted->state.grant();
    return granted;
}

void RegCache::give_up(RegLease& lease) {
    const std::lock_guard lock(mutex_);
    TW_CHECK(!lease.state.is_in_use());
    if (lease.state.try_revoke())
        detach(lease);
}

void RegCache::forget_region_of(const RegLease& lease) {
    const std::lock_guard lock(mutex_);
    if (lease.region->is_listed)
        unlist(*lease.region);
}

/// The last use of a lease that was revoked, or that was for this use, has ended.
void RegCache::bury(RegLease& lease) {
    const std::lock_guard lock(mutex_);
    if (lease.region != nullptr)  // else it was evicted meanwhile
        detach(lease);
    if (lease.is_for_one_use)
        delete &lease;
}

/// With its last lease goes a region that cannot be found any more.
void RegCache::detach(RegLease& lease) {
    CachedRegion& region = *std::exchange(lease.region, nullptr);
    region.leases.erase(lease);
    if (!region.is_listed && region.leases.empty())
        destroy(region);
}

CachedRegion* RegCache::find(const Wanted& wanted) {
    Regions& regions = listed_[wanted.domain];
    const auto at = first_overlap(regions, wanted.range);
    if (at == regions.end())
        return nullptr;
    CachedRegion& region = *at->second;
    if (region.begin > wanted.range.begin || region.end < wanted.range.end ||
        region.rights < wanted.use)
        return nullptr;
    if (marks_ == nullptr || marks_->has_stayed(wanted.range, region.generation))
        return &region;
    unlist(region);
    return nullptr;
}

/// Registers the range, together with what it overlaps if that is still there and has room.
CachedRegion* RegCache::make(const Wanted& wanted) {
    const auto& [domain, range, use] = wanted;
    Range wide = range;
    RegUse rights = use;
    Regions& regions = listed_[domain];
    for (auto at = first_overlap(regions, range);
         at != regions.end() && at->second->begin < range.end; ++at) {
        wide.begin = std::min(wide.begin, at->second->begin);
        wide.end = std::max(wide.end, at->second->end);
        rights = std::max(rights, at->second->rights);
    }
    unlist_overlapping(domain, range);
    if (wide.bytes() > bytes_max_)
        wide = range;
    if (!make_room(wide.bytes()))
        return nullptr;
    auto region = std::make_unique<CachedRegion>();
    region->domain = domain;
    if (!try_register(*region, wide, rights) && !try_register(*region, range, use))
        return nullptr;
    region->is_listed = true;
    region->stamp = ucs::ticks_now();
    bytes_ += region->bytes();
    ++count_;
    regions[region->begin] = region.get();
    order_[place_of(*region)] = region.get();
    return region.release();
}

bool RegCache::try_register(CachedRegion& region, Range range, RegUse rights) {
    // The mark comes first: memory that goes between the two steps has none.
    region.generation = marks_ == nullptr ? 0 : marks_->add(range);
    if (marks_ != nullptr && region.generation == 0)
        return false;
    region.begin = range.begin;
    region.end = range.end;
    region.rights = rights;
    if (uct_md_mem_reg(context_.domains()[region.domain].md, range.address(), range.bytes(),
                       flags_of(rights), &region.handle) == UCS_OK)
        return true;
    if (marks_ != nullptr)
        marks_->remove(range);
    return false;
}

/// The region with the oldest stamp is looked at first: if it was used since, it goes on with a
/// newer one, else it is evicted. Twice for each region suffices.
bool RegCache::make_room(std::size_t bytes) {
    if (bytes > bytes_max_)
        return false;
    for (std::size_t looks = 2 * order_.size(); bytes_ > bytes_max_ - bytes; --looks) {
        if (looks == 0 || order_.empty())
            return false;
        CachedRegion& oldest = *order_.begin()->second;
        std::uint64_t used = 0;
        oldest.leases.for_each([&used](const RegLease& lease) {
            used = std::max(used, lease.last_use.load(std::memory_order_relaxed));
        });
        if (used > oldest.stamp)
            move_to(oldest, used);
        else if (!try_evict(oldest))
            move_to(oldest, ucs::ticks_now());
    }
    return true;
}

void RegCache::move_to(CachedRegion& region, std::uint64_t stamp) {
    auto node = order_.extract(place_of(region));
    region.stamp = stamp;
    node.key() = place_of(region);
    order_.insert(std::move(node));
}

/// False: it is in use.
bool RegCache::try_evict(CachedRegion& region) {
    while (RegLease* lease = region.leases.front()) {
        if (!lease->state.try_revoke())
            return false;
        detach(*lease);
    }
    unlist(region);
    return true;
}

void RegCache::invalidate(const void* address, std::size_t length) {
    const Range range = pages_of(address, length);
    const std::lock_guard lock(mutex_);
    for (std::size_t domain = 0; domain < listed_.size(); ++domain)
        unlist_overlapping(domain, range);
}

void RegCache::unlist_overlapping(std::size_t domain, Range range) {
    Regions& regions = listed_[domain];
    for (auto at = first_overlap(regions, range);
         at != regions.end() && at->second->begin < range.end;) {
        CachedRegion& region = *at++->second;
        unlist(region);
    }
}

/// It is not found any more; in use, the end of the last use destroys it.
void RegCache::unlist(CachedRegion& region) {
    listed_[region.domain].erase(region.begin);
    order_.erase(place_of(region));
    // Still listed, so that it does not go with one of its leases.
    region.leases.for_each([this](RegLease& lease) {
        if (lease.state.revoke())
            detach(lease);
    });
    region.is_listed = false;
    if (region.leases.empty())
        destroy(region);
}

void RegCache::destroy(CachedRegion& region) {
    if (marks_ != nullptr)
        marks_->remove(region.range());
    uct_md_mem_dereg(context_.domains()[region.domain].md, region.handle);
    bytes_ -= region.bytes();
    --count_;
    delete &region;
}

std::string RegCache::description() {
    const std::lock_guard lock(mutex_);
    return fmt::format("{} of {} bytes in {} regions, unmapped memory is {}", bytes_, bytes_max_,
                       count_, marks_ != nullptr ? "noticed" : "not noticed: " + no_marks_);
}

}  // namespace tagwire::proto
