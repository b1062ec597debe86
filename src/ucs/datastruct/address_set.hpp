// SPDX-License-Identifier: BSD-3-Clause
//
// A set of addresses: the buffers of posted receives, of which each may be posted once at a time.
// Used by the thread that posts receives, no other.
//
// Shape. A power-of-two array of addresses (0: empty), each at its home slot or in the next free
// one behind it (wrapping). At most half of the slots are taken, so that most addresses are at
// home: insert() and erase() then touch one or two neighbouring slots.
//
// Invariants.
//  1. Between the home of an address and its slot no slot is empty. remove() moves addresses back
//     to keep that, so there are no tombstones.
//  2. slots_[slot count] is never 0, so that the last slot looks as if its neighbour were taken.
//  3. Only insert() beyond the room that reserve() made allocates: it doubles the array.
//  4. The address that was erased last lingers: it keeps its slot until another one is erased or
//     room is needed. So a buffer that is posted again and again touches no slot, and one among
//     many is removed when its slot, which is loaded meanwhile, has come.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include "ucs/type/status.h"

namespace tagwire::ucs {

class AddressSet {
  public:
    AddressSet() = default;
    AddressSet(const AddressSet&) = delete;
    AddressSet& operator=(const AddressSet&) = delete;

    /// Room for `count` addresses; once at least before insert(). False: no memory.
    [[nodiscard]] bool reserve(std::size_t count) {
        const std::size_t slots = std::bit_ceil(count < kRoomMin ? 2 * kRoomMin : 2 * count);
        return slots <= slot_count() || resize(slots);
    }

    /// UCS_ERR_ALREADY_EXISTS: it is inside. UCS_ERR_NO_MEMORY: the array cannot grow.
    ucs_status_t insert(const void* address) {
        const std::uint64_t key = key_of(address);
        if (key == lingering_) {
            lingering_ = kNone;
            return UCS_OK;
        }
        std::uint64_t& home = slots_[home_of(key)];
        if (home != 0 || left_ == 0) [[unlikely]]
            return insert_slowly(key);
        home = key;
        --left_;
        return UCS_OK;
    }

    /// `address` is inside.
    void erase(const void* address) {
        if (lingering_ != kNone)
            remove(lingering_);
        lingering_ = key_of(address);
        __builtin_prefetch(&slots_[home_of(lingering_)], 1);
    }

    [[nodiscard]] std::size_t size() const {
        return slot_count() / 2 - left_ - (lingering_ != kNone ? 1 : 0);
    }

  private:
    static constexpr std::size_t kRoomMin = 4;
    static constexpr std::uint64_t kNone = ~std::uint64_t{0};  // nothing lies there

    static std::uint64_t key_of(const void* address) {
        return reinterpret_cast<std::uint64_t>(address);
    }
    [[nodiscard]] std::size_t home_of(std::uint64_t key) const {
        constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15;
        return key * kGolden >> shift_;
    }
    [[nodiscard]] std::size_t slot_count() const {
        return slots_ == nullptr ? 0 : std::size_t{1} << (64 - shift_);
    }

    void remove_lingering() {
        if (lingering_ != kNone)
            remove(std::exchange(lingering_, kNone));
    }

    void remove(std::uint64_t key) {
        std::uint64_t* const home = &slots_[home_of(key)];
        ++left_;
        if (home[0] != key || home[1] != 0) [[unlikely]]
            return remove_slowly(key);
        *home = 0;
    }

    [[gnu::noinline]] ucs_status_t insert_slowly(std::uint64_t key) {
        remove_lingering();
        const std::size_t mask = slot_count() - 1;
        std::size_t slot = home_of(key);
        for (; slots_[slot] != 0; slot = (slot + 1) & mask)
            if (slots_[slot] == key)
                return UCS_ERR_ALREADY_EXISTS;
        if (left_ == 0)
            return resize(2 * slot_count()) ? insert_slowly(key) : UCS_ERR_NO_MEMORY;
        slots_[slot] = key;
        --left_;
        return UCS_OK;
    }

    [[gnu::noinline]] void remove_slowly(std::uint64_t key) {
        const std::size_t mask = slot_count() - 1;
        std::size_t hole = home_of(key);
        while (slots_[hole] != key)
            hole = (hole + 1) & mask;
        for (std::size_t slot = (hole + 1) & mask; slots_[slot] != 0; slot = (slot + 1) & mask) {
            // An element may move back as far as to its home.
            if (((slot - home_of(slots_[slot])) & mask) < ((slot - hole) & mask))
                continue;
            slots_[hole] = slots_[slot];
            hole = slot;
        }
        slots_[hole] = 0;
    }

    bool resize(std::size_t slots) {
        auto* memory = new (std::nothrow) std::uint64_t[slots + 1]();
        if (memory == nullptr)
            return false;
        remove_lingering();
        const std::size_t count = slot_count();
        const std::unique_ptr<std::uint64_t[]> old =
            std::exchange(slots_, std::unique_ptr<std::uint64_t[]>(memory));
        shift_ = 64U - static_cast<unsigned>(std::countr_zero(slots));
        slots_[slots] = ~std::uint64_t{0};
        left_ = slots / 2;
        for (std::size_t i = 0; i < count; ++i)
            if (old[i] != 0)
                static_cast<void>(insert_slowly(old[i]));
        return true;
    }

    std::unique_ptr<std::uint64_t[]> slots_;
    std::size_t left_ = 0;             // addresses that may still be inserted
    std::uint64_t lingering_ = kNone;  // is in its slot, and not inside
    unsigned shift_ = 63;
};

}  // namespace tagwire::ucs
