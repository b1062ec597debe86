// SPDX-License-Identifier: BSD-3-Clause
// Memory for what the library must write down so that nothing of what is under way is lost: lists,
// tables and small objects that grow in progress or in callbacks, where nobody could be told that
// there is no memory. It comes from the heap; when the heap refuses, from a reserve of the process.
// Any thread.
//
//  1. The reserve is mapped when the first worker is made, and untouched until it is needed: it
//     takes address space alone.
//  2. A call that begins something new refuses with UCS_ERR_NO_MEMORY while the reserve is low. So
//     the rest of it remains for what is under way.
//  3. Each block has cache lines of its own: what the thread of one worker writes never lies beside
//     what the thread of another one reads.
//  4. Data does not belong here: registered buffers, copies. Whoever needs them waits or is
//     refused. Only a message that has come, and that nobody could ask for again, may use the
//     reserve while it is not low.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace tagwire::ucs {

constexpr std::size_t kReserveBytes = std::size_t{32} << 20;

/// Sets the reserve aside, once per process. False: there is no memory for it.
[[nodiscard]] bool reserve_open();
/// Half of it is in use: nothing new should begin.
[[nodiscard]] bool reserve_is_low() noexcept;
/// In use, rounded as they were taken.
[[nodiscard]] std::size_t reserve_used() noexcept;

/// Throws std::bad_alloc when the reserve, too, has too little. `alignment`: a power of two; a
/// cache line at least is given.
[[nodiscard]] void* reserve_allocate(std::size_t bytes, std::size_t alignment);
/// For data that has come and cannot be refused. Null: the heap has none, and the reserve is low.
[[nodiscard]] void* reserve_try_allocate(std::size_t bytes) noexcept;
/// `memory`: from either of them, or null.
void reserve_free(void* memory) noexcept;

template <class T>
struct ReserveAllocator {
    using value_type = T;

    ReserveAllocator() = default;
    template <class U>
    // NOLINTNEXTLINE(google-explicit-constructor): containers convert them
    ReserveAllocator(const ReserveAllocator<U>&) noexcept {}

    [[nodiscard]] T* allocate(std::size_t count) {
        if (count > std::numeric_limits<std::size_t>::max() / 2 / sizeof(T))  // NOLINT
            throw std::bad_alloc();
        return static_cast<T*>(reserve_allocate(count * sizeof(T), alignof(T)));  // NOLINT
    }
    void deallocate(T* memory, std::size_t) noexcept { reserve_free(memory); }

    template <class U>
    bool operator==(const ReserveAllocator<U>&) const noexcept {
        return true;
    }
};

template <class T>
using ReserveVector = std::vector<T, ReserveAllocator<T>>;
using ReserveString = std::basic_string<char, std::char_traits<char>, ReserveAllocator<char>>;
template <class T>
using ReserveDeque = std::deque<T, ReserveAllocator<T>>;
template <class T>
using ReserveList = std::list<T, ReserveAllocator<T>>;
template <class Key, class Value>
using ReserveMap =
    std::map<Key, Value, std::less<Key>, ReserveAllocator<std::pair<const Key, Value>>>;
template <class Key, class Value, class Hash = std::hash<Key>, class Equal = std::equal_to<Key>>
using ReserveHashMap =
    std::unordered_map<Key, Value, Hash, Equal, ReserveAllocator<std::pair<const Key, Value>>>;
template <class Key>
using ReserveHashSet =
    std::unordered_set<Key, std::hash<Key>, std::equal_to<Key>, ReserveAllocator<Key>>;

/// A base of objects that are made in progress: `new` and std::make_unique take such memory.
struct FromReserve {
    static void* operator new(std::size_t bytes) {
        return reserve_allocate(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
    }
    static void* operator new(std::size_t bytes, std::align_val_t alignment) {
        return reserve_allocate(bytes, static_cast<std::size_t>(alignment));
    }
    static void* operator new(std::size_t, void* place) noexcept { return place; }
    static void operator delete(void* memory) noexcept { reserve_free(memory); }
    static void operator delete(void* memory, std::align_val_t) noexcept { reserve_free(memory); }
    static void* operator new[](std::size_t bytes) { return operator new(bytes); }
    static void* operator new[](std::size_t bytes, std::align_val_t alignment) {
        return operator new(bytes, alignment);
    }
    static void operator delete[](void* memory) noexcept { reserve_free(memory); }
    static void operator delete[](void* memory, std::align_val_t) noexcept { reserve_free(memory); }
};

}  // namespace tagwire::ucs
