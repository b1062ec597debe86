// SPDX-License-Identifier: BSD-3-Clause
// A table of connections by their numbers. A number is an index, and above it a generation, so the
// number of a removed connection finds nothing.
//
// Threads: owner of the interface.
// Invariants
//  (1) No number is 0.
//  (2) Tables that share a generation never have the same number at the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "ucs/memory/reserve.hpp"

namespace tagwire::ud {

inline constexpr std::uint32_t kIndexBits = 20;
inline constexpr std::uint32_t kIndexMask = (1U << kIndexBits) - 1;

/// `Pointer` is one, or owns what it points to; what it points to has a member `id`.
template <class Pointer>
class Numbers {
  public:
    using Entry = typename std::pointer_traits<Pointer>::element_type;

    explicit Numbers(std::uint32_t& generation) : generation_(generation) {}

    /// A number whose place is empty. False: there are as many as there may be.
    bool take(std::uint32_t* id_p) {
        if (free_.empty()) {
            if (places_.size() > kIndexMask)
                return false;
            free_.push_back(static_cast<std::uint32_t>(places_.size()));
            places_.emplace_back(nullptr);
        }
        do {
            generation_ += 1U << kIndexBits;
        } while ((generation_ | free_.back()) == 0);  // 0 means none
        *id_p = generation_ | free_.back();
        free_.pop_back();
        return true;
    }
    void give_back(std::uint32_t id) {
        free_.push_back(id & kIndexMask);
        place(id) = nullptr;
    }
    [[nodiscard]] Pointer& place(std::uint32_t id) { return places_[id & kIndexMask]; }
    /// Null: it is gone, or there never was one.
    [[nodiscard]] Entry* find(std::uint32_t id) const {
        const std::uint32_t index = id & kIndexMask;
        Entry* found = index < places_.size() ? at(index) : nullptr;
        return found != nullptr && found->id == id ? found : nullptr;
    }

    // ---- By index; null where free
    [[nodiscard]] std::size_t size() const { return places_.size(); }
    [[nodiscard]] Entry* at(std::size_t index) const {
        const Pointer& pointer = places_[index];
        return pointer == nullptr ? nullptr : &*pointer;
    }

  private:
    std::uint32_t& generation_;  // of the newest number
    ucs::ReserveVector<Pointer> places_;
    ucs::ReserveVector<std::uint32_t> free_;  // indices
};

}  // namespace tagwire::ud
