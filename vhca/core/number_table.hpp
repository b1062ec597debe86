// SPDX-License-Identifier: BSD-3-Clause
// Numbers for objects, with look-up in one load.
//
// A number that was given back waits until kQuarantine others (or as many as the table was made
// for) were given back after it: late packets for a destroyed object do not hit a new one. Numbers
// are dense from `first` on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace tagwire::vhca {

template <typename T>
class NumberTable {
  public:
    static constexpr std::size_t kQuarantine = 1 << 12;

    explicit NumberTable(std::uint32_t first, std::size_t quarantine = kQuarantine)
        : first_(first), quarantine_(quarantine) {}

    [[nodiscard]] T* find(std::uint32_t number) const {
        const std::uint32_t at = number - first_;
        return at < slots_.size() ? slots_[at] : nullptr;
    }

    std::uint32_t add(T* object) {
        ++used_;
        if (free_.size() > quarantine_) {
            const std::uint32_t at = free_.front();
            free_.pop_front();
            slots_[at] = object;
            return first_ + at;
        }
        slots_.push_back(object);
        return first_ + static_cast<std::uint32_t>(slots_.size() - 1);
    }

    void remove(std::uint32_t number) {
        --used_;
        slots_[number - first_] = nullptr;
        free_.push_back(number - first_);
    }

    [[nodiscard]] std::size_t used() const { return used_; }

    template <typename F>
    void for_each(F&& visit) const {
        for (T* object : slots_)
            if (object != nullptr)
                visit(*object);
    }

  private:
    std::uint32_t first_;
    std::size_t quarantine_;
    std::size_t used_ = 0;
    std::vector<T*> slots_;
    std::deque<std::uint32_t> free_;
};

}  // namespace tagwire::vhca
