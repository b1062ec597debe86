// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/key_table.hpp"

#include <atomic>

#include "ucs/sys/process.hpp"

namespace tagwire::sm {

std::uint32_t KeyTable::shard_of_thread() {
    static std::atomic<std::uint32_t> threads{0};
    static thread_local const std::uint32_t own =
        threads.fetch_add(1, std::memory_order_relaxed) % kShards;
    return own;
}

/// With the shard's lock. Null: the index was never used.
KeyTable::Entry* KeyTable::find(std::uint32_t index) {
    Shard& shard = shards_[index / kTurn % kShards];
    const std::uint32_t turn = index / kTurn / kShards;
    return turn < shard.turns.size() ? &shard.turns[turn].entries[index % kTurn] : nullptr;
}

bool KeyTable::add(MemHandle& handle) {
    const std::uint32_t own = shard_of_thread();
    for (std::uint32_t i = 0; i < kShards; ++i)
        if (add_to((own + i) % kShards, handle))
            return true;
    return false;
}

bool KeyTable::add_to(std::uint32_t shard, MemHandle& handle) {
    Shard& from = shards_[shard];
    const std::lock_guard lock(from.mutex);
    if (from.first_free == kNone && !grow(shard))
        return false;
    const std::uint32_t index = from.first_free;
    Entry& entry = *find(index);
    from.first_free = entry.next_free;
    ++entry.serial;
    handle.key = static_cast<std::uint32_t>(entry.serial << kKeyIndexBits) | index;
    handle.generation = entry.serial * 2 + 1;
    set_generation(index, handle.generation);
    entry.handle = &handle;
    return true;
}

/// The shard's next indexes, the lowest one first. False: there are no more.
bool KeyTable::grow(std::uint32_t shard) {
    Shard& from = shards_[shard];
    const auto turn = static_cast<std::uint32_t>(from.turns.size());
    if (turn == kKeyIndexMax / kTurn / kShards)
        return false;
    const std::uint32_t first = (turn * kShards + shard) * kTurn;
    from.turns.emplace_back();
    for (std::uint32_t i = 0; i + 1 < kTurn; ++i)
        from.turns.back().entries[i].next_free = first + i + 1;
    from.first_free = first;
    return true;
}

void KeyTable::remove(const MemHandle& handle) {
    const std::uint32_t index = key_index(handle.key);
    Shard& shard = shards_[index / kTurn % kShards];
    const std::lock_guard lock(shard.mutex);
    set_generation(index, handle.generation + 1);
    release(index);
}

void KeyTable::forget(const MemHandle& handle) {
    const std::uint32_t index = key_index(handle.key);
    const std::lock_guard lock(shards_[index / kTurn % kShards].mutex);
    release(index);
}

/// With the shard's lock.
void KeyTable::release(std::uint32_t index) {
    Shard& shard = shards_[index / kTurn % kShards];
    Entry& entry = *find(index);
    entry.handle = nullptr;
    entry.next_free = shard.first_free;
    shard.first_free = index;
}

void KeyTable::set_generation(std::uint32_t index, std::uint64_t generation) {
    // SYNC sm_revoke: before anything that the program does with the memory from now on; peers look
    // again after they have read.
    generations_[index].store(generation, std::memory_order_release);
    ucs::full_barrier();
}

std::byte* KeyTable::resolve(std::uint32_t key, std::uint64_t address, std::uint64_t length,
                             unsigned access) {
    const std::uint32_t index = key_index(key);
    const std::lock_guard lock(shards_[index / kTurn % kShards].mutex);
    const Entry* entry = find(index);
    const MemHandle* handle = entry == nullptr ? nullptr : entry->handle;
    if (handle == nullptr || handle->key != key || (handle->flags & access) == 0)
        return nullptr;
    const auto start = reinterpret_cast<std::uintptr_t>(handle->address);
    if (address < start || address - start > handle->length ||
        length > handle->length - (address - start)) {
        return nullptr;
    }
    return handle->address + (address - start);
}

}  // namespace tagwire::sm
