// SPDX-License-Identifier: BSD-3-Clause
// A completion queue: a ring, the completions that found it full, and the threads that sleep for
// it. Any thread may call everything. `Env` is that of ring.hpp, and gives
//
//   Kept      a completion that found the ring full; it stays where it is: next, item(), home,
//             give_back() (the last use of it)
//   Lock      a short lock
//   Word      a word that threads sleep on (ucs/sys/futex.hpp)
//   kPassesOn true; false shows what rule 3 is for
//   kIsBehind true; false shows what rule 1 is for
//
// 1. While any completion is kept, later ones are kept behind it. So the order of each producer
//    stays: what lies in the ring is older than what is kept.
// 2. A consumer that finds the ring empty takes kept ones, oldest first, with the lock, and moves
//    others into the ring as far as they fit.
// 3. Each completion wakes one thread, if any sleeps; whoever moves kept ones wakes one. A thread
//    that was awake for one, and leaves with some, passes that on if more are here: the thread that
//    was woken for those may have found them hidden behind a position that was claimed and not
//    published. Whoever publishes that position wakes a thread again. A thread whose time is over
//    looks once more before it leaves. So no completion waits while all threads sleep.
#pragma once

#include <cstddef>
#include <cstdint>

#include "protocols/completion/ring.hpp"

namespace tagwire::proto {

/// Kept completions on the way back to the worker that they belong to, in no order: any thread
/// pushes, the worker takes all.
template <class Env>
class KeptReturns {
  public:
    using Kept = typename Env::Kept;

    void push(Kept& kept) {
        Kept* top = top_.load(std::memory_order_relaxed);
        do {
            kept.next = top;
            // SYNC cq_return: pairs with the acquire in take_all(): the completion was read.
        } while (!top_.compare_exchange_weak(top, &kept, std::memory_order_release,
                                             std::memory_order_relaxed));
    }
    /// The first of a chain; nullptr: none.
    Kept* take_all() {
        // SYNC cq_return: pairs with the release in push().
        return top_.exchange(nullptr, std::memory_order_acquire);
    }

  private:
    typename Env::template Atom<Kept*> top_{nullptr};
};

enum class CqWait : std::uint8_t { kSome, kTimedOut, kClosed };

template <class Env>
class QueueProtocol {
  public:
    using Item = typename Env::Item;
    using Kept = typename Env::Kept;

    explicit QueueProtocol(std::size_t capacity) : ring_(capacity) {}

    std::size_t capacity() const { return ring_.capacity(); }

    /// True: the completion was copied. False: `kept`, whose completion is the same, belongs to the
    /// queue until give_back().
    bool push(const Item& item, Kept& kept) {
        // SYNC cq_kept: pairs with the release in take_kept(): what was kept before is in the ring.
        const bool may_copy = !Env::kIsBehind || kept_count_.load(std::memory_order_acquire) == 0;
        const bool is_copied =
            may_copy && ring_.try_push([&](typename Env::Slot& slot) { slot.put(item); });
        if (!is_copied)
            keep(kept);
        announce();
        return is_copied;
    }

    /// Takes up to `max` completions, the oldest first.
    unsigned poll(Item* items, unsigned max) {
        unsigned taken = 0;
        do {
            while (taken < max && ring_.try_pop(&items[taken]))
                ++taken;
        } while (taken < max && has_kept() && take_kept(items, max, &taken));
        return taken;
    }

    /// As poll(), and sleeps while there is nothing, until this time of the clock.
    CqWait wait_until(Item* items, unsigned max, std::uint64_t end_ns, unsigned* taken_p) {
        *taken_p = poll(items, max);
        if (*taken_p > 0)
            return CqWait::kSome;
        if (end_ns == 0)
            return is_closed() ? CqWait::kClosed : CqWait::kTimedOut;
        // SYNC cq_sleep: sequentially consistent, before this thread looks: either it sees the
        // completion, or the producer sees it.
        sleepers_.fetch_add(1, std::memory_order_seq_cst);
        const CqWait how = sleep_until(items, max, end_ns, taken_p);
        const bool others_sleep = sleepers_.fetch_sub(1, std::memory_order_seq_cst) > 1;
        if (Env::kPassesOn && *taken_p > 0 && others_sleep && (ring_.may_have_some() || has_kept()))
            wake_one();
        return how;
    }

    /// No thread sleeps from now on.
    void close() {
        // SYNC cq_close: pairs with is_closed(): what was written before it is seen there.
        is_closed_.store(1, std::memory_order_seq_cst);
        // SYNC cq_event: pairs with the acquire in sleep_until().
        events_.fetch_add(1, std::memory_order_release);
        events_.wake_all();
    }

    bool has_kept() const {
        // SYNC cq_sleep: as in CompletionRing::try_pop().
        return kept_count_.load(std::memory_order_seq_cst) != 0;
    }
    /// The word that threads sleep on.
    const typename Env::Word& word() const { return events_; }
    bool has_sleepers() const { return sleepers_.load(std::memory_order_relaxed) != 0; }

    /// Drops the kept completions for which `is_dropped(Kept&)`.
    template <class IsDropped>
    void drop_kept(const IsDropped& is_dropped) {
        const Locked locked(lock_);
        Kept** place = &first_;
        last_ = nullptr;
        std::uint32_t left = 0;
        while (Kept* kept = *place) {
            Kept* const following = kept->next;
            if (is_dropped(*kept)) {
                *place = following;
                continue;
            }
            last_ = kept;
            place = &kept->next;
            ++left;
        }
        // Relaxed: those that are left are kept with the lock.
        kept_count_.store(left, std::memory_order_relaxed);
    }

  private:
    class Locked {
      public:
        explicit Locked(typename Env::Lock& lock) : lock_(lock) { lock_.lock(); }
        Locked(const Locked&) = delete;
        Locked& operator=(const Locked&) = delete;
        ~Locked() { lock_.unlock(); }

      private:
        typename Env::Lock& lock_;
    };

    void keep(Kept& kept) {
        const Locked locked(lock_);
        kept.next = nullptr;
        (first_ == nullptr ? first_ : last_->next) = &kept;
        last_ = &kept;
        // SYNC cq_sleep: sequentially consistent, before announce() looks for sleepers.
        kept_count_.fetch_add(1, std::memory_order_seq_cst);
    }

    /// With the ring as good as empty: takes kept completions, and moves others into the ring.
    /// False: there was nothing to do.
    bool take_kept(Item* items, unsigned max, unsigned* taken_p) {
        std::uint32_t taken = 0, moved = 0;
        {
            const Locked locked(lock_);
            // Not over the ring alone: cells may have been claimed and not yet given free by
            // threads that do not look here again.
            if (first_ != nullptr && ring_.is_claimed()) {
                for (; first_ != nullptr && *taken_p < max; ++taken) {
                    items[(*taken_p)++] = first_->item();
                    unlink_first().give_back();
                }
            }
            while (first_ != nullptr && ring_.try_push([this](typename Env::Slot& slot) {
                slot.put(first_->item());
                unlink_first().give_back();  // before it is visible: then it may be used again
            }))
                ++moved;
            // SYNC cq_kept: pairs with the acquire in push(). Behind the ring.
            kept_count_.fetch_sub(taken + moved, std::memory_order_release);
        }
        if (moved > 0)
            announce();
        return taken + moved > 0;
    }
    Kept& unlink_first() {
        Kept& first = *first_;
        first_ = first.next;
        return first;
    }

    void announce() {
        // SYNC cq_sleep: sequentially consistent, after the completion is visible.
        if (sleepers_.load(std::memory_order_seq_cst) != 0)
            wake_one();
    }
    void wake_one() {
        // SYNC cq_event: pairs with the acquire in sleep_until(): what was published is seen there.
        events_.fetch_add(1, std::memory_order_release);
        events_.wake_one();
    }

    bool is_closed() const {
        // SYNC cq_close: pairs with close().
        return is_closed_.load(std::memory_order_seq_cst) != 0;
    }

    CqWait sleep_until(Item* items, unsigned max, std::uint64_t end_ns, unsigned* taken_p) {
        for (bool is_over = false;;) {
            // SYNC cq_event: pairs with the releases in wake_one() and close(). Before the look: an
            // event after it ends the sleep.
            const std::uint32_t event = events_.load(std::memory_order_acquire);
            *taken_p = poll(items, max);
            if (*taken_p > 0)
                return CqWait::kSome;
            if (is_closed())
                return CqWait::kClosed;
            if (is_over)
                return CqWait::kTimedOut;
            is_over = !events_.wait_until(event, end_ns);
        }
    }

    CompletionRing<Env> ring_;
    alignas(kApartBytes) typename Env::template Atom<std::uint32_t> sleepers_{0};
    typename Env::template Atom<std::uint32_t> is_closed_{0};
    typename Env::template Atom<std::uint32_t> kept_count_{0};
    alignas(kApartBytes) typename Env::Word events_;
    typename Env::Lock lock_;
    Kept* first_ = nullptr;  // with the lock
    Kept* last_ = nullptr;   // with the lock; valid if first_ is
};

}  // namespace tagwire::proto
