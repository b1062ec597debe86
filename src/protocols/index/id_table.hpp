// SPDX-License-Identifier: BSD-3-Clause
// Numbers by which a peer names objects of ours: an index and how often its place was used, so that
// a late message about an object that is gone finds none. 0 names nothing. A number comes round
// when its place was used 255 times; places rest for a while, so that it is not soon.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ucs/memory/reserve.hpp"

namespace tagwire::proto {

template <class T>
class IdTable {
  public:
    static constexpr unsigned kIndexBits = 24;
    static constexpr std::uint32_t kIndexMask = (1U << kIndexBits) - 1;

    /// 0: the table is full.
    std::uint32_t add(T& object) {
        std::uint32_t index;
        if (free_.size() > kResting || places_.size() > kIndexMask) {
            if (free_.empty())
                return 0;
            index = free_.front();
            free_.pop_front();
        } else {
            index = count_++;
            places_.push_back({});
        }
        Place& place = places_[index];
        // Index 0 with generation 0 would be the number of nothing.
        if (++place.generation == 0)
            place.generation = 1;
        place.object = &object;
        place.id = (std::uint32_t{place.generation} << kIndexBits) | index;
        ++size_;
        return place.id;
    }

    /// `id` is from add().
    void remove(std::uint32_t id) {
        Place& place = places_[id & kIndexMask];
        place.object = nullptr;
        place.id = 0;
        free_.push_back(id & kIndexMask);
        --size_;
    }

    /// nullptr for a number that is not in use, whoever made it up.
    T* find(std::uint32_t id) const {
        const std::uint32_t index = id & kIndexMask;
        if (index >= count_) [[unlikely]]
            return nullptr;
        const Place& place = places_[index];
        return place.id == id ? place.object : nullptr;
    }

    /// Whether the number is one of the last that its place had before, and is no longer in use.
    bool is_past(std::uint32_t id) const {
        const std::uint32_t index = id & kIndexMask;
        if (index >= count_)
            return false;
        const Place& place = places_[index];
        const unsigned generation = id >> kIndexBits;
        const unsigned age = (place.generation - generation) & 0xff;
        return generation != 0 && place.id != id && age < kPastMax;
    }

    std::size_t size() const { return size_; }

    /// Visits all; `visit` may remove the one that it gets.
    template <class Visit>
    void for_each(Visit visit) {
        for (std::size_t i = 0; i < places_.size(); ++i)
            if (places_[i].object != nullptr)
                visit(*places_[i].object);
    }

  private:
    static constexpr unsigned kPastMax = 32;  // of 255: what was made up is seldom one of them
    static constexpr std::size_t kResting = 64;

    struct Place {
        T* object = nullptr;
        std::uint32_t id = 0;  // of the object; 0: there is none
        std::uint8_t generation = 0;
    };

    std::uint32_t count_ = 0;  // of places_
    ucs::ReserveVector<Place> places_;
    ucs::ReserveDeque<std::uint32_t> free_;  // places; the first rests longest
    std::size_t size_ = 0;
};

}  // namespace tagwire::proto
