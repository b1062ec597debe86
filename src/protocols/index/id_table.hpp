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

/// The number of objects in a table.
class IdCount {
  public:
    std::size_t size() const { return size_; }

  protected:
    std::size_t size_ = 0;
};

template <class T>
class IdTable : public IdCount {
  public:
    static constexpr unsigned kIndexBits = 24;
    static constexpr std::uint32_t kIndexMask = (1U << kIndexBits) - 1;

    IdTable() { make_room(2); }

    /// 0: the table is full.
    std::uint32_t add(T& object) {
        std::uint32_t index;
        if (free_.size() > kResting || count_ > kIndexMask) {
            if (free_.empty())
                return 0;
            index = free_.front();
            free_.pop_front();
        } else {
            if (count_ == places_.size())
                make_room(2 * places_.size());
            index = count_++;
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
        place.id = no_id(id & kIndexMask);
        free_.push_back(id & kIndexMask);
        --size_;
    }

    /// nullptr for a number that is not in use, whoever made it up.
    T* find(std::uint32_t id) const {
        const Place& place = places_.data()[id & mask_];
        if (place.id != id) [[unlikely]]
            return nullptr;
        if (place.object == nullptr)
            __builtin_unreachable();
        return place.object;
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
        std::uint32_t id = 0;  // of the object, or no_id()
        std::uint8_t generation = 0;
    };

    /// The number of a place that is not in use: low bits that differ from its own.
    static constexpr std::uint32_t no_id(std::uint32_t index) { return ~index; }

    /// `places`: a power of two.
    void make_room(std::size_t places) {
        const std::size_t before = places_.size();
        places_.resize(places);
        for (std::size_t i = before; i < places; ++i)
            places_[i].id = no_id(static_cast<std::uint32_t>(i));
        mask_ = static_cast<std::uint32_t>(places - 1);
    }

    std::uint32_t count_ = 0;  // of places_ that were used
    std::uint32_t mask_ = 0;   // finds the place of any number, if it has one
    ucs::ReserveVector<Place> places_;
    ucs::ReserveDeque<std::uint32_t> free_;  // places; the first rests longest
};

}  // namespace tagwire::proto
