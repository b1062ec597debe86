// SPDX-License-Identifier: BSD-3-Clause
// Registrations of a memory domain, by the index of their key. Any thread.
//
// Over shared memory each rendezvous registers its buffer for itself. So that threads do not meet
// there:
//  1. Indexes belong to 16 shards, by turns of 16 indexes; each shard has a lock. A thread takes
//     indexes of its own shard first, of others when that has none left.
//  2. A shard's state lies on cache lines of its own, and so do the generations of 16 indexes,
//     which peers read (key_guard.hpp).
//  3. The index that was released last is taken first. A generation is never used twice.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>

#include "ucs/memory/reserve.hpp"
#include "uct/sm/key_guard.hpp"
#include "uct/sm/wire.hpp"

namespace tagwire::sm {

/// The object that uct_mem_h points to.
struct MemHandle : ucs::FromReserve {
    std::byte* address = nullptr;
    std::size_t length = 0;
    std::uint64_t arena_offset = kNoOffset;
    std::uint32_t key = 0;
    std::uint64_t generation = 0;
    unsigned flags = 0;  // UCT_MD_MEM_ACCESS_*
    bool is_allocated = false;
    bool is_packed = false;  // somebody may have its key; by atomic_ref, threads may pack at a time
};

class KeyTable {
  public:
    /// `generations`: kKeyIndexMax of them, aligned to a cache line.
    explicit KeyTable(Generation* generations) : generations_(generations) {}
    KeyTable(const KeyTable&) = delete;
    KeyTable& operator=(const KeyTable&) = delete;

    /// Gives it a key and a generation. False: kKeyIndexMax are registered.
    [[nodiscard]] bool add(MemHandle& handle);
    /// From now on nobody finds it, and its generation is not that of its key.
    void remove(const MemHandle& handle);
    /// As remove(), in a forked child: the generation, which peers see, is its parent's.
    void forget(const MemHandle& handle);
    /// Local address of [address, address + length) when registration `key` covers it with one of
    /// the rights in `access` (UCT_MD_MEM_ACCESS_REMOTE_*), else null.
    std::byte* resolve(std::uint32_t key, std::uint64_t address, std::uint64_t length,
                       unsigned access);
    /// Calls `function(MemHandle&)` for each; it may destroy it. While no other thread is here.
    template <class Function>
    void for_each(Function function) {
        for (Shard& shard : shards_)
            for (Turn& turn : shard.turns)
                for (Entry& entry : turn.entries)
                    if (entry.handle != nullptr)
                        function(*entry.handle);
    }

  private:
    static constexpr std::uint32_t kShards = 16;
    static constexpr std::uint32_t kTurn = 16;
    static constexpr std::uint32_t kNone = UINT32_MAX;
    static_assert(kTurn * sizeof(Generation) == 128);

    struct Entry {
        MemHandle* handle = nullptr;  // null: free
        std::uint64_t serial = 0;
        std::uint32_t next_free = kNone;
    };
    struct alignas(128) Turn {
        std::array<Entry, kTurn> entries;
    };
    struct alignas(128) Shard {
        std::mutex mutex;
        std::uint32_t first_free = kNone;
        ucs::ReserveDeque<Turn> turns;
    };

    static std::uint32_t shard_of_thread();
    Entry* find(std::uint32_t index);
    bool add_to(std::uint32_t shard, MemHandle& handle);
    bool grow(std::uint32_t shard);
    void release(std::uint32_t index);
    void set_generation(std::uint32_t index, std::uint64_t generation);

    Generation* const generations_;
    std::array<Shard, kShards> shards_;
};

}  // namespace tagwire::sm
