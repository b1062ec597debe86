// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/request/reg_cache.hpp"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "protocols/request/context.hpp"
#include "ucs/debug/check.hpp"
#include "ucs/log/log.hpp"
#include "ucs/sys/shm.hpp"

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

RegCache::Range RegCache::pages_of(const void* address, std::size_t length) const {
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

CachedRegion* RegCache::acquire(std::size_t domain, const void* address, std::size_t length,
                                RegUse use, bool* is_new_p) {
    *is_new_p = false;
    if (length > bytes_max_ || length > UINTPTR_MAX / 2)
        return nullptr;
    const Range range = pages_of(address, length);
    const std::lock_guard lock(mutex_);
    CachedRegion* region = find(domain, range, use);
    *is_new_p = region == nullptr;
    if (region == nullptr)
        region = make(domain, range, use);
    if (region != nullptr && region->users++ == 0 && !*is_new_p)
        unused_.erase(*region);
    return region;
}

CachedRegion* RegCache::find(std::size_t domain, Range range, RegUse use) {
    const auto at = first_overlap(listed_[domain], range);
    if (at == listed_[domain].end())
        return nullptr;
    CachedRegion& region = *at->second;
    if (region.begin > range.begin || region.end < range.end || region.rights < use)
        return nullptr;
    if (marks_ == nullptr || marks_->has_stayed(range, region.generation))
        return &region;
    unlist(region);
    return nullptr;
}

/// Registers the range, together with what it overlaps if that is still there and has room.
CachedRegion* RegCache::make(std::size_t domain, Range range, RegUse use) {
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
    bytes_ += region->bytes();
    ++count_;
    regions[region->begin] = region.get();
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

bool RegCache::make_room(std::size_t bytes) {
    if (bytes > bytes_max_)
        return false;
    while (bytes_ > bytes_max_ - bytes) {
        CachedRegion* oldest = unused_.front();
        if (oldest == nullptr)
            return false;
        unlist(*oldest);
    }
    return true;
}

void RegCache::release(CachedRegion& region, bool is_kept) {
    const std::lock_guard lock(mutex_);
    TW_CHECK(region.users > 0);
    if (!is_kept && region.is_listed)
        unlist(region);
    if (--region.users > 0)
        return;
    if (region.is_listed)
        unused_.push_back(region);
    else
        destroy(region);
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

/// It is not found any more; in use, release() destroys it.
void RegCache::unlist(CachedRegion& region) {
    listed_[region.domain].erase(region.begin);
    region.is_listed = false;
    if (region.users > 0)
        return;
    unused_.erase(region);
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
