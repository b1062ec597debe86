// SPDX-License-Identifier: BSD-3-Clause
// Whether a worker may use a region of the registration cache without asking the cache: one word
// for each worker and region, so that a use writes no line that another thread writes.
//
//     | revoked | uses |
//
//  1. The worker's thread counts its uses; it alone adds to them, and never to a revoked lease.
//  2. Any thread that holds the cache's lock may revoke the lease, and does so before the region
//     goes.
//  3. Exactly one of both sides learns that the lease is revoked and has no uses: revoke(), or the
//     end of the last use. This side takes the lease off its region, holding the cache's lock.
//
// The atomic is a template parameter, so that a model test runs the same text in every order.
#pragma once

#include <atomic>
#include <cstdint>

namespace tagwire::proto {

template <template <class> class Atom>
class LeaseState {
  public:
    /// The worker's thread. False: it was revoked.
    bool try_use() {
        std::uint32_t seen = word_.load(std::memory_order_relaxed);
        do {
            if ((seen & kRevoked) != 0)
                return false;
            // SYNC reg_lease: what revoke() finds out about uses is true.
        } while (!word_.compare_exchange_weak(seen, seen + 1, std::memory_order_acquire,
                                              std::memory_order_relaxed));
        return true;
    }
    /// The worker's thread. True: the lease is revoked, and this was the last use.
    bool end_use() {
        // SYNC reg_lease: the use comes before the region goes, by revoke() or after this.
        return word_.fetch_sub(1, std::memory_order_acq_rel) == (kRevoked | 1);
    }
    /// With the cache's lock. True: there are no uses, and it was not revoked before.
    bool revoke() {
        // SYNC reg_lease: pairs with try_use() and end_use().
        return word_.fetch_or(kRevoked, std::memory_order_acq_rel) == 0;
    }
    /// As revoke(), only if there are no uses. False: nothing has changed.
    bool try_revoke() {
        std::uint32_t unused = 0;
        // SYNC reg_lease: as in revoke().
        return word_.compare_exchange_strong(unused, kRevoked, std::memory_order_acq_rel,
                                             std::memory_order_relaxed);
    }
    /// The worker's thread with the cache's lock: a lease on no region becomes one in use.
    void grant() { word_.store(1, std::memory_order_relaxed); }
    /// The worker's thread.
    bool is_in_use() const { return (word_.load(std::memory_order_relaxed) & ~kRevoked) != 0; }

  private:
    static constexpr std::uint32_t kRevoked = std::uint32_t{1} << 31;

    Atom<std::uint32_t> word_{kRevoked};
};

}  // namespace tagwire::proto
