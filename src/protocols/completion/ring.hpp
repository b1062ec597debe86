// SPDX-License-Identifier: BSD-3-Clause
// A bounded ring of completions: any number of producers and consumers, no lock. `Env` gives
// atomics and the slots, so that a model test runs the same text under every schedule:
//
//   Atom<T>    std::atomic<T>
//   Item       a completion
//   Slot       room for one: put(const Item&), get(Item*)
//   kPublish   the order of the store that makes an item visible: sequentially consistent
//
// 1. The turn of a cell is its position while it is free, position + 1 while it has an item, and
//    the position of the next lap when that was taken. Turns and positions run free.
// 2. Items are taken in the order in which their producers have claimed positions: so those of one
//    producer are taken in its order, and each once.
// 3. A producer that has claimed a position and not yet published hides what lies behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace tagwire::proto {

/// Two lines, which processors fetch as a pair.
inline constexpr std::size_t kApartBytes = 128;

template <class Env>
class CompletionRing {
  public:
    using Item = typename Env::Item;
    using Slot = typename Env::Slot;

    /// `capacity` is a power of two, 2 or more.
    explicit CompletionRing(std::size_t capacity)
        : cells_(std::make_unique<Cell[]>(capacity)), capacity_(capacity) {
        for (std::size_t i = 0; i < capacity; ++i)
            cells_[i].turn.store(i, std::memory_order_relaxed);
    }

    std::size_t capacity() const { return capacity_; }

    /// `fill(Slot&)` runs before the item becomes visible. False: the ring is full.
    template <class Fill>
    bool try_push(const Fill& fill) {
        std::uint64_t at = tail_.load(std::memory_order_relaxed);
        for (;;) {
            Cell& cell = cell_at(at);
            // SYNC cq_free: pairs with the release in try_pop(): the item before was read.
            const std::uint64_t turn = cell.turn.load(std::memory_order_acquire);
            if (turn == at) {
                // Relaxed: the turn of the cell orders its data; this only divides positions.
                if (!tail_.compare_exchange_weak(at, at + 1, std::memory_order_relaxed,
                                                 std::memory_order_relaxed))
                    continue;
                fill(cell.slot);
                // SYNC cq_item: pairs with the load in try_pop(). SYNC cq_sleep: sequentially
                // consistent, before announce() looks for sleepers (queue_protocol.hpp).
                cell.turn.store(at + 1, Env::kPublish);
                return true;
            }
            if (static_cast<std::int64_t>(turn - at) < 0)
                return false;
            at = tail_.load(std::memory_order_relaxed);
        }
    }

    /// False: there is nothing, or the first is not yet published.
    bool try_pop(Item* item) {
        std::uint64_t at = head_.load(std::memory_order_relaxed);
        for (;;) {
            Cell& cell = cell_at(at);
            // SYNC cq_item: pairs with the store in try_push(). SYNC cq_sleep: sequentially
            // consistent, after a thread that falls asleep has counted itself.
            const std::uint64_t turn = cell.turn.load(std::memory_order_seq_cst);
            if (turn == at + 1) {
                if (!head_.compare_exchange_weak(at, at + 1, std::memory_order_relaxed,
                                                 std::memory_order_relaxed))
                    continue;
                cell.slot.get(item);
                // SYNC cq_free: pairs with the acquire in try_push().
                cell.turn.store(at + capacity_, std::memory_order_release);
                return true;
            }
            if (static_cast<std::int64_t>(turn - (at + 1)) < 0)
                return false;
            at = head_.load(std::memory_order_relaxed);
        }
    }

    /// Whether consumers have claimed everything that was pushed before: by this thread, or by one
    /// that it has synchronized with since.
    bool is_claimed() const {
        // Relaxed: an older head, or a newer tail, only makes it say no.
        const std::uint64_t pushed = tail_.load(std::memory_order_relaxed);
        return static_cast<std::int64_t>(head_.load(std::memory_order_relaxed) - pushed) >= 0;
    }

    /// False: the first was not published. True: it was, or other threads are taking some.
    bool may_have_some() const {
        const std::uint64_t at = head_.load(std::memory_order_relaxed);
        // SYNC cq_sleep: as in try_pop().
        const std::uint64_t turn = cell_at(at).turn.load(std::memory_order_seq_cst);
        return static_cast<std::int64_t>(turn - (at + 1)) >= 0;
    }

  private:
    struct alignas(kApartBytes) Cell {
        typename Env::template Atom<std::uint64_t> turn{0};
        Slot slot;
    };

    Cell& cell_at(std::uint64_t at) const { return cells_[at & (capacity_ - 1)]; }

    const std::unique_ptr<Cell[]> cells_;
    const std::size_t capacity_;
    alignas(kApartBytes) typename Env::template Atom<std::uint64_t> tail_{0};  // of producers
    alignas(kApartBytes) typename Env::template Atom<std::uint64_t> head_{0};  // of consumers
};

}  // namespace tagwire::proto
