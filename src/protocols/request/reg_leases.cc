// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/request/reg_leases.hpp"

#include <algorithm>
#include <utility>

#include "protocols/request/reg_cache.hpp"
#include "ucs/time/clock.hpp"

namespace tagwire::proto {

RegLeases::RegLeases(RegCache& cache) : cache_(cache) {
    for (RegLease& lease : leases_)
        lease.owner = this;
}

RegLeases::~RegLeases() {
    for (RegLease& lease : leases_)
        cache_.give_up(lease);
}

RegLease* RegLeases::acquire(std::size_t domain, const void* address, std::size_t length,
                             RegUse use, bool* is_new_p) {
    *is_new_p = false;
    if (length > cache_.bytes_max() || length > UINTPTR_MAX / 2)
        return nullptr;
    const PageRange range = cache_.pages_of(address, length);
    const std::uint64_t key = cache_.page_of(range) ^ (std::uint64_t{domain} << 52);
    static_assert(kSets == std::size_t{1} << (64 - 60));
    RegLease* const set = &leases_[((key * 0x9e3779b97f4a7c15u) >> 60) * kWays];
    for (RegLease* lease = set; lease < set + kWays; ++lease) {
        if (!lease->covers(domain, range, use) || !lease->state.try_use())
            continue;
        if (cache_.has_stayed(range, lease->remarks)) [[likely]]
            return lease;
        cache_.end_use(*lease);
    }
    return cache_.grant(oldest_of(set), {domain, range, use}, is_new_p);
}

/// One in use only if all are.
RegLease& RegLeases::oldest_of(RegLease* set) {
    const auto age = [](const RegLease& lease) {
        return std::pair(lease.state.is_in_use(), lease.last_use.load(std::memory_order_relaxed));
    };
    return *std::min_element(set, set + kWays, [age](const RegLease& one, const RegLease& other) {
        return age(one) < age(other);
    });
}

void RegLeases::release(RegLease& lease, bool is_kept) {
    RegCache& cache = lease.owner->cache_;
    if (!is_kept)
        cache.forget_region_of(lease);
    lease.last_use.store(ucs::ticks_now(), std::memory_order_relaxed);
    cache.end_use(lease);
}

}  // namespace tagwire::proto
