// SPDX-License-Identifier: BSD-3-Clause
// Timers of the connections of an interface: a binary heap whose items know their place. An item
// is an object with members `std::uint64_t timer_ns` (kNever at first) and `std::uint32_t
// timer_index`, both ours. Setting an earlier time costs O(log n); a later time costs nothing: the
// item is taken too early once, and its user puts it back.
//
// Threads: owner of the interface.
// Invariants
//  (1) An item is in the heap exactly where its timer_ns is not kNever, once.
//  (2) No item's timer_ns is before that of the item above it.
//  (3) no_later_than() does not allocate when reserve() was called for the number of items.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "ucs/memory/reserve.hpp"

namespace tagwire::ud {

template <class Item>
class TimerHeap {
  public:
    void reserve(std::size_t items) {
        if (items > items_.capacity())
            items_.reserve(std::max(items, 2 * items_.capacity()));
    }
    [[nodiscard]] std::uint64_t earliest() const {
        return items_.empty() ? UINT64_MAX : items_.front()->timer_ns;
    }
    [[nodiscard]] std::size_t size() const { return items_.size(); }

    void no_later_than(Item& item, std::uint64_t at_ns) {
        if (at_ns < item.timer_ns) [[unlikely]]
            set(item, at_ns);
    }
    /// The one with the earliest time; there is one.
    Item& take() {
        Item& first = *items_.front();
        remove(first);
        return first;
    }
    /// Nothing happens to an item that is not there.
    void remove(Item& item) {
        if (std::exchange(item.timer_ns, UINT64_MAX) == UINT64_MAX)
            return;
        const std::size_t at = item.timer_index;
        Item* last = items_.back();
        items_.pop_back();
        if (last == &item)
            return;
        place(*last, at);
        rise(at);
        sink(last->timer_index);
    }

  private:
    void place(Item& item, std::size_t at) {
        items_[at] = &item;
        item.timer_index = static_cast<std::uint32_t>(at);
    }
    void set(Item& item, std::uint64_t at_ns) {
        if (item.timer_ns == UINT64_MAX) {
            items_.push_back(&item);
            item.timer_index = static_cast<std::uint32_t>(items_.size() - 1);
        }
        item.timer_ns = at_ns;
        rise(item.timer_index);
    }
    void rise(std::size_t at) {
        Item& item = *items_[at];
        for (; at > 0 && item.timer_ns < items_[(at - 1) / 2]->timer_ns; at = (at - 1) / 2)
            place(*items_[(at - 1) / 2], at);
        place(item, at);
    }
    void sink(std::size_t at) {
        Item& item = *items_[at];
        for (std::size_t below = 2 * at + 1; below < items_.size(); below = 2 * at + 1) {
            if (below + 1 < items_.size() && items_[below + 1]->timer_ns < items_[below]->timer_ns)
                ++below;
            if (item.timer_ns <= items_[below]->timer_ns)
                break;
            place(*items_[below], at);
            at = below;
        }
        place(item, at);
    }

    ucs::ReserveVector<Item*> items_;
};

}  // namespace tagwire::ud
