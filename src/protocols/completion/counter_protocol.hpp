// SPDX-License-Identifier: BSD-3-Clause
// A count of ended operations, and the threads that sleep until it reaches a number. Any thread may
// call everything. `Env` as in queue_protocol.hpp: Atom, Lock, Word, kPublish.
//
// 1. A thread sleeps on a word of its own, and is woken when the count reaches its number, not
//    before. Others sleep on.
// 2. The thread that adds takes the lock only when the least number that is slept for is reached.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tagwire::proto {

template <class Env>
class CounterProtocol {
  public:
    void add(std::uint64_t successes, std::uint64_t failures) {
        // SYNC counter: pairs with the loads in successes() and failures(): what was written before
        // is seen there. SYNC counter_sleep: sequentially consistent, before the look at least_.
        if (successes != 0)
            successes_.fetch_add(successes, std::memory_order_seq_cst);
        if (failures != 0)
            failures_.fetch_add(failures, std::memory_order_seq_cst);
        // SYNC counter_sleep: pairs with enter(): either this sees the number, or that thread sees
        // the count.
        if (ended() >= least_.load(std::memory_order_seq_cst))
            wake_reached();
    }
    std::uint64_t successes() const {
        // SYNC counter: pairs with add().
        return successes_.load(std::memory_order_seq_cst);
    }
    std::uint64_t failures() const {
        // SYNC counter: pairs with add().
        return failures_.load(std::memory_order_seq_cst);
    }
    std::uint64_t ended() const { return successes() + failures(); }

    /// Sleeps until `number` operations have completed; false if `end_ns` passed first.
    bool wait_until(std::uint64_t number, std::uint64_t end_ns) {
        if (ended() >= number)
            return true;
        if (end_ns == 0)
            return false;
        Sleeper me{number, {}, nullptr};
        enter(me);
        bool is_reached = false;
        for (bool is_over = false; !(is_reached = ended() >= number) && !is_over;)
            is_over = !me.word.wait_until(0, end_ns);
        leave(me);
        return is_reached;
    }
    bool has_sleepers() const { return least_.load(std::memory_order_relaxed) != UINT64_MAX; }

  private:
    struct Sleeper {
        std::uint64_t number;
        typename Env::Word word;  // 1: it is reached
        Sleeper* next;
    };

    void enter(Sleeper& me) {
        lock_.lock();
        me.next = first_;
        first_ = &me;
        // SYNC counter_sleep: sequentially consistent, before the thread looks at the count.
        least_.store(std::min(me.number, least_.load(std::memory_order_relaxed)), Env::kPublish);
        lock_.unlock();
    }
    void leave(const Sleeper& me) {
        lock_.lock();
        Sleeper** place = &first_;
        while (*place != &me)
            place = &(*place)->next;
        *place = me.next;
        set_least();
        lock_.unlock();
    }
    /// With the lock: none of the sleepers can leave.
    void wake_reached() {
        lock_.lock();
        const std::uint64_t now = ended();
        for (Sleeper* one = first_; one != nullptr; one = one->next) {
            if (one->number > now || one->word.load(std::memory_order_relaxed) != 0)
                continue;
            // Relaxed: the count orders the data, and the lock this word.
            one->word.store(1, std::memory_order_relaxed);
            one->word.wake_one();
        }
        set_least();
        lock_.unlock();
    }
    /// The least number of those that have not been woken.
    void set_least() {
        std::uint64_t least = UINT64_MAX;
        for (const Sleeper* one = first_; one != nullptr; one = one->next)
            if (one->word.load(std::memory_order_relaxed) == 0)
                least = std::min(least, one->number);
        // SYNC counter_sleep: as in enter(); numbers that are left out were woken.
        least_.store(least, std::memory_order_seq_cst);
    }

    typename Env::template Atom<std::uint64_t> successes_{0};
    typename Env::template Atom<std::uint64_t> failures_{0};
    typename Env::template Atom<std::uint64_t> least_{UINT64_MAX};
    typename Env::Lock lock_;
    Sleeper* first_ = nullptr;  // with the lock
};

}  // namespace tagwire::proto
