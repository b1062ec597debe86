// SPDX-License-Identifier: BSD-3-Clause
// A lock whose owner carries out jobs of threads that find it taken, so that they need not wait.
//
//     free --- brief ---> free        for moments: others spin
//      '------ long ----> free        others wait
//               '- open -> free       others delegate: the owner does their jobs before it leaves
//
// `Env` gives atomics, the job, and the ways to wait, so that a model test runs the same text under
// every schedule:
//
//   Atom<T>          std::atomic<T>
//   Job              what is delegated; written in place
//   kRoom            how many jobs one owner takes, a power of two
//   kLeave           the order in which an owner leaves: release
//   kPatience        pauses of a thread that waits, before others let it in
//   pause(spins)     a while; after some calls it also yields the processor
//   yield()
//
// 1. The lock is free only when each job that was delegated is done. So whoever takes it, or has a
//    job done, comes behind all jobs whose calls have returned.
// 2. Jobs are done in the order in which they were delegated. A thread claims the place of its job
//    and announces it to the owner by one atomic operation on the word of the lock.
// 3. An owner takes kRoom jobs at most; those who come then wait. So it leaves.
// 4. Owners open the lock only for a while after a thread had to wait: who is alone pays for
//    nothing but taking the lock.
//
// Its owner must not take it again. A job runs while its owner leaves: it must not leave, too.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "ucs/debug/check.hpp"

namespace tagwire::ucs {

enum class Delegated : bool { kNo, kYes };

template <class Env>
class DelegationLock {
  public:
    using Job = typename Env::Job;

    /// `takes_jobs`: it may be opened.
    explicit DelegationLock(bool takes_jobs)
        : cells_(takes_jobs ? std::make_unique<Cell[]>(kRoom) : nullptr) {}
    DelegationLock(const DelegationLock&) = delete;
    DelegationLock& operator=(const DelegationLock&) = delete;

    // ---- For moments

    bool try_lock_briefly() { return try_take(kBrief); }
    void lock_briefly() {
        if (!try_take(kBrief)) [[unlikely]]
            wait(kBrief);
    }
    void unlock_briefly() { free(); }
    /// kNo: the lock is taken for a moment, and the job is the caller's. kYes: the owner does it;
    /// `fill(Job&)` has run.
    template <class Fill>
    Delegated lock_briefly_or_delegate(const Fill& fill) {
        if (try_take(kBrief)) [[likely]]
            return Delegated::kNo;
        return wait_or_delegate(fill);
    }

    // ---- For longer

    void lock() {
        if (!try_take(kLong)) [[unlikely]]
            wait(kLong);
    }
    /// False: another thread has it.
    bool try_lock() { return try_take(kLong); }
    /// Somebody has it for longer. Asked without it.
    bool is_taken_for_long() const { return (word_.load(std::memory_order_relaxed) & kLong) != 0; }
    /// To be asked once by each owner: it is better opened.
    bool should_open() {
        if (rounds_ == 0) [[likely]]
            return false;
        --rounds_;
        return true;
    }
    /// Threads delegate from now on.
    void open() {
        end_.store(done_ + kRoom, std::memory_order_relaxed);
        // SYNC delegation_open: pairs with the acquire in delegate(): cells are free up to end_.
        word_.store(word_.load(std::memory_order_relaxed) | kOpen, std::memory_order_release);
    }
    /// The end of lock(). `carry_out(const Job&)` runs for each job that was delegated.
    template <class CarryOut>
    void unlock(const CarryOut& carry_out) {
        const std::uint64_t word = word_.load(std::memory_order_relaxed);
        if ((word & kState) == kOpen) [[unlikely]]
            return close(carry_out);
        word_.store(word & ~kState, std::memory_order_release);  // SYNC delegation_lock: as free()
    }

    // ---- Turns of others

    /// For who takes it again and again, right after unlock(): those who have waited long get a
    /// turn, who could hardly ever find it free else. The calling thread may yield the processor to
    /// them.
    void give_way() const {
        // Relaxed: who comes later has its turn later.
        if (hungry_.load(std::memory_order_relaxed) > 0) [[unlikely]]
            let_in_or_yield();
    }
    /// For who takes it again at once, for longer: those who have waited long and run get a turn.
    void lock_behind_others() {
        if (hungry_.load(std::memory_order_relaxed) > 0) [[unlikely]]
            let_in(kSpinsBehind);
        lock();
    }

  private:
    struct alignas(64) Cell {
        typename Env::template Atom<std::uint64_t> turn{0};  // position + 1 of the job in it
        Job job;
    };

    static constexpr std::uint64_t kRoom = Env::kRoom;
    // The word: the state, and how many jobs were ever delegated.
    static constexpr std::uint64_t kBrief = 1, kLong = 2, kOpen = 3, kState = 3, kOne = 4;
    static constexpr unsigned kCountShift = 2;
    // Pauses: a thread that waits looks once in each.
    static constexpr unsigned kSpinsBehind = 2, kSpinsAlone = 4;
    static constexpr unsigned kRounds = 1000;  // owners that open it after a thread had to wait

    Cell& cell_at(std::uint64_t position) const { return cells_[position & (kRoom - 1)]; }

    bool try_take(std::uint64_t state) {
        // Read first: a thread that only looks does not take the line away from who is inside.
        std::uint64_t word = word_.load(std::memory_order_relaxed);
        // SYNC delegation_lock: pairs with the releases in free() and close().
        if ((word & kState) != 0) [[unlikely]]
            return false;
        return word_.compare_exchange_strong(word, word | state, std::memory_order_acquire,
                                             std::memory_order_relaxed);
    }

    /// Nobody else writes the word of a lock that is taken and not open.
    void free() {
        // SYNC delegation_lock: pairs with the acquire in try_take().
        word_.store(word_.load(std::memory_order_relaxed) & ~kState, std::memory_order_release);
    }

    template <class CarryOut>
    [[gnu::noinline]] void close(const CarryOut& carry_out) {
        TW_CHECK(!is_closing_);
        std::uint64_t word = word_.load(std::memory_order_relaxed);
        do {
            is_closing_ = true;
            const std::uint64_t count = word >> kCountShift;
            if (done_ != count)
                rounds_ = kRounds;
            while (done_ != count) {
                Cell& cell = cell_at(done_);
                // SYNC delegation_job: pairs with the release in delegate().
                for (unsigned spins = 0; cell.turn.load(std::memory_order_acquire) != done_ + 1;)
                    Env::pause(spins++);
                ++done_;
                carry_out(cell.job);  // nobody else gets the cell before the lock is opened again
            }
            is_closing_ = false;
            // SYNC delegation_lock: pairs with the acquire in try_take().
        } while (!word_.compare_exchange_strong(word, word & ~kState, Env::kLeave,
                                                std::memory_order_relaxed));
    }

    /// False: the lock is not open, or its owner takes no more.
    template <class Fill>
    bool delegate(const Fill& fill) {
        // SYNC delegation_open: pairs with the release in open().
        std::uint64_t word = word_.load(std::memory_order_acquire);
        while ((word & kState) == kOpen &&
               (word >> kCountShift) != end_.load(std::memory_order_relaxed)) {
            if (!word_.compare_exchange_weak(word, word + kOne, std::memory_order_acquire,
                                             std::memory_order_acquire))
                continue;
            const std::uint64_t position = word >> kCountShift;
            Cell& cell = cell_at(position);
            fill(cell.job);
            // SYNC delegation_job: pairs with the acquire in close().
            cell.turn.store(position + 1, std::memory_order_release);
            return true;
        }
        return false;
    }

    [[gnu::noinline]] bool let_in(unsigned spins) const {
        // Relaxed: whoever comes later has its turn later.
        for (; spins > 0; --spins) {
            if (hungry_.load(std::memory_order_relaxed) == 0 ||
                (word_.load(std::memory_order_relaxed) & kState) != 0)
                return true;
            Env::pause(0);
        }
        return false;
    }

    [[gnu::noinline]] void let_in_or_yield() const {
        if (!let_in(kSpinsAlone))
            Env::yield();
    }

    [[gnu::noinline]] void wait(std::uint64_t state) {
        Waiter me(*this);
        while (!try_take(state))
            me.wait();
        rounds_ = kRounds;
    }

    template <class Fill>
    [[gnu::noinline]] Delegated wait_or_delegate(const Fill& fill) {
        Waiter me(*this);
        while (!delegate(fill)) {
            if (try_take(kBrief)) {
                rounds_ = kRounds;
                return Delegated::kNo;
            }
            me.wait();
        }
        return Delegated::kYes;
    }

    /// A thread that waits. After a while it is hungry: others let it in.
    class Waiter {
      public:
        explicit Waiter(DelegationLock& lock) : lock_(lock) {}
        Waiter(const Waiter&) = delete;
        Waiter& operator=(const Waiter&) = delete;
        ~Waiter() {
            if (spins_ > kHungry)
                lock_.hungry_.fetch_sub(1, std::memory_order_relaxed);
        }
        void wait() {
            if (spins_++ == kHungry)
                lock_.hungry_.fetch_add(1, std::memory_order_relaxed);
            Env::pause(spins_);
        }

      private:
        static constexpr unsigned kHungry = Env::kPatience;
        DelegationLock& lock_;
        unsigned spins_ = 0;
    };

    const std::unique_ptr<Cell[]> cells_;
    alignas(64) typename Env::template Atom<std::uint64_t> word_{0};
    // Position at which an owner takes no more jobs. Relaxed: the word orders it.
    typename Env::template Atom<std::uint64_t> end_{0};
    typename Env::template Atom<std::uint32_t> hungry_{0};  // threads
    // With the lock.
    std::uint32_t rounds_ = 0;  // owners that open it from now on
    std::uint64_t done_ = 0;    // jobs, with the one that is carried out
    bool is_closing_ = false;   // jobs are carried out
};

}  // namespace tagwire::ucs
