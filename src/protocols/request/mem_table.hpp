// SPDX-License-Identifier: BSD-3-Clause
// Memory of a context that has keys, by the ids that those carry. Any thread.
//
// 1. An id is never used twice: 20 bits of it are an index, 20 count the uses of that index.
// 2. While use() runs, remove() of the same memory waits: so an operation that a peer has asked for
//    is over, or has not begun, when the program gets its memory back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <shared_mutex>

#include "ucs/memory/reserve.hpp"

namespace tagwire::proto {

class Memory;

class MemTable {
  public:
    /// 0: there are too many.
    std::uint64_t add(Memory& memory) {
        const std::unique_lock guard(lock_);
        if (first_free_ == kNone) {
            if (entries_.size() == kEntriesMax)
                return 0;
            entries_.push_back({nullptr, 0, kNone});
            first_free_ = static_cast<std::uint32_t>(entries_.size() - 1);
        }
        const std::uint32_t index = first_free_;
        Entry& entry = entries_[index];
        first_free_ = entry.next_free;
        entry.memory = &memory;
        ++entry.uses;
        return std::uint64_t{entry.uses} << kIndexBits | index;
    }

    void remove(std::uint64_t id) {
        const std::unique_lock guard(lock_);
        Entry& entry = entries_[id & (kEntriesMax - 1)];
        entry.memory = nullptr;
        if (entry.uses == kUsesMax)
            return;  // no id is left for it
        entry.next_free = first_free_;
        first_free_ = static_cast<std::uint32_t>(id & (kEntriesMax - 1));
    }

    /// Calls `function(Memory&)`. False: there is no such memory.
    template <class Function>
    [[nodiscard]] bool use(std::uint64_t id, const Function& function) {
        const std::shared_lock guard(lock_);
        const std::size_t index = id & (kEntriesMax - 1);
        if (index >= entries_.size() || entries_[index].memory == nullptr ||
            entries_[index].uses != id >> kIndexBits)
            return false;
        function(*entries_[index].memory);
        return true;
    }

  private:
    static constexpr unsigned kIndexBits = 20;
    static constexpr std::size_t kEntriesMax = std::size_t{1} << kIndexBits;
    static constexpr std::uint32_t kUsesMax = (1U << 20) - 1;
    static constexpr std::uint32_t kNone = UINT32_MAX;

    struct Entry {
        Memory* memory;
        std::uint32_t uses;
        std::uint32_t next_free;
    };

    std::shared_mutex lock_;
    ucs::ReserveVector<Entry> entries_;
    std::uint32_t first_free_ = kNone;
};

}  // namespace tagwire::proto
