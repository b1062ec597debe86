// SPDX-License-Identifier: BSD-3-Clause
// Leases of the registration cache (protocols/request/lease_state.hpp) in every order in which a
// worker's uses and the cache's revocations may meet: a region goes once, after its last use, and
// not before. The cache around them is that of reg_cache.cc, as far as it matters.
#include <cstdint>
#include <functional>

#include "common/det_atomic.hpp"
#include "common/det_scheduler.hpp"
#include "common/model_fences.hpp"
#include "protocols/request/lease_state.hpp"

namespace tagwire::test {
namespace {

/// As proto::LeaseState, without one of its rules.
enum class LeaseFlaw {
    kNone,
    kUsesWithoutLooking,  // try_use() looks, then adds, in two steps
    kEndsInTwoSteps,      // end_use() subtracts, then looks
    kRevokesInTwoSteps,   // revoke() looks for uses, then revokes
    kEndsRelaxed,         // end_use() orders nothing
};

template <LeaseFlaw kFlaw>
class FlawedState {
  public:
    bool try_use() {
        const std::uint32_t seen = word_.load(std::memory_order_acquire);
        if ((seen & kRevoked) != 0)
            return false;
        word_.fetch_add(1, std::memory_order_acq_rel);
        return true;
    }
    bool end_use() {
        if constexpr (kFlaw == LeaseFlaw::kEndsInTwoSteps) {
            word_.fetch_sub(1, std::memory_order_acq_rel);
            return word_.load(std::memory_order_acquire) == kRevoked;
        }
        constexpr auto kOrder = kFlaw == LeaseFlaw::kEndsRelaxed ? std::memory_order_relaxed
                                                                 : std::memory_order_acq_rel;
        return word_.fetch_sub(1, kOrder) == (kRevoked | 1);
    }
    bool revoke() {
        if constexpr (kFlaw == LeaseFlaw::kRevokesInTwoSteps) {
            const bool is_unused = word_.load(std::memory_order_acquire) == 0;
            word_.fetch_or(kRevoked, std::memory_order_acq_rel);
            return is_unused;
        }
        return word_.fetch_or(kRevoked, std::memory_order_acq_rel) == 0;
    }
    bool try_revoke() {
        std::uint32_t unused = 0;
        return word_.compare_exchange_strong(unused, kRevoked, std::memory_order_acq_rel,
                                             std::memory_order_relaxed);
    }
    void grant() { word_.store(1, std::memory_order_relaxed); }

  private:
    static constexpr std::uint32_t kRevoked = std::uint32_t{1} << 31;
    DetAtomic<std::uint32_t> word_{kRevoked};
};

class LeaseLock {
  public:
    void lock() {
        while (taken_.exchange(1, std::memory_order_acquire) != 0)
            det::block_until([this] { return taken_.load(std::memory_order_relaxed) == 0; });
    }
    void unlock() { taken_.store(0, std::memory_order_release); }

  private:
    DetAtomic<std::uint32_t> taken_{0};
};

/// A region that one worker has a lease on, which it uses again and again, and others that
/// invalidate or evict it. A use writes `data`, and so does the end of the region.
template <class State>
class ModelCache {
  public:
    explicit ModelCache(DetRun& run) : run_(run) { state_.grant(); }

    /// The worker: the use under way, and more of them, as long as the lease is good.
    void use(int times) {
        touch();
        end();
        for (int i = 0; i < times && state_.try_use(); ++i) {
            touch();
            touch();
            end();
        }
    }
    void invalidate() {
        lock_.lock();
        if (state_.revoke())
            detach();
        is_listed_ = false;
        destroy_if_unused();
        lock_.unlock();
    }
    void evict() {
        lock_.lock();
        if (is_listed_ && is_attached_ && state_.try_revoke()) {
            detach();
            is_listed_ = false;
            destroy_if_unused();
        }
        lock_.unlock();
    }
    std::uint32_t destroyed() const { return destroyed_; }

  private:
    void touch() {
        run_.check(destroyed_seen_.load(std::memory_order_relaxed) == 0, "used when destroyed");
        data_ = data_ + 1;
    }
    void end() {
        if (!state_.end_use())
            return;
        lock_.lock();
        detach();
        destroy_if_unused();
        lock_.unlock();
    }
    void detach() {
        run_.check(is_attached_, "detached twice");
        is_attached_ = false;
    }
    void destroy_if_unused() {
        if (is_listed_ || is_attached_ || destroyed_ != 0)
            return;
        ++destroyed_;
        destroyed_seen_.store(1, std::memory_order_relaxed);
        data_ = 0;
    }

    DetRun& run_;
    State state_;
    LeaseLock lock_;
    bool is_listed_ = true;  // with the lock, as the next two
    bool is_attached_ = true;
    std::uint32_t destroyed_ = 0;
    DetAtomic<std::uint32_t> destroyed_seen_{0};
    DetPlain<std::uint32_t> data_{0};
};

template <class State>
void uses_and_revocations(DetRun& run) {
    ModelCache<State> cache(run);
    run.spawn([&] { cache.use(3); });
    run.spawn([&] { cache.evict(); });
    run.spawn([&] { cache.invalidate(); });
    if (run.run())
        run.check(cache.destroyed() == 1, "it was destroyed");
}

TEST(LeaseModel, a_region_goes_once_after_its_last_use) {
    EXPECT_TRUE(always_passes({.schedules = schedules(30'000)},
                              uses_and_revocations<proto::LeaseState<DetAtomic>>));
}

TEST(LeaseModel, a_use_that_looks_before_it_counts_would_outlive_the_region) {
    EXPECT_TRUE(
        fails_with("race", uses_and_revocations<FlawedState<LeaseFlaw::kUsesWithoutLooking>>));
}

TEST(LeaseModel, an_end_that_looks_after_it_counts_would_bury_what_is_gone) {
    EXPECT_TRUE(fails_with("twice", uses_and_revocations<FlawedState<LeaseFlaw::kEndsInTwoSteps>>));
}

TEST(LeaseModel, a_revocation_that_looks_before_it_revokes_would_miss_an_end) {
    EXPECT_TRUE(fails_with("", uses_and_revocations<FlawedState<LeaseFlaw::kRevokesInTwoSteps>>));
}

TEST(LeaseModel, an_end_that_orders_nothing_would_race_with_what_destroys_the_region) {
    EXPECT_TRUE(fails_with("race", uses_and_revocations<FlawedState<LeaseFlaw::kEndsRelaxed>>));
}

}  // namespace
}  // namespace tagwire::test
