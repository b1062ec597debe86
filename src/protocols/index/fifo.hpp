// SPDX-License-Identifier: BSD-3-Clause
// A queue that is nearly always empty and takes no memory before its first use: std::deque takes
// 600 bytes at construction, and an endpoint has several queues. Memory that many items at a time
// have taken is freed with the last of them. For one thread.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "ucs/memory/reserve.hpp"

namespace tagwire::proto {

template <class T>
class Fifo {
  public:
    bool empty() const { return next_ == items_.size(); }
    std::size_t size() const { return items_.size() - next_; }
    T& front() { return items_[next_]; }
    T& operator[](std::size_t index) { return items_[next_ + index]; }
    void push_back(T item) { items_.push_back(std::move(item)); }
    template <class... Args>
    T& emplace_back(Args&&... args) {
        return items_.emplace_back(std::forward<Args>(args)...);
    }
    void pop_front() {
        items_[next_++] = T();
        if (empty()) {
            items_.clear();
            next_ = 0;
            if (items_.capacity() > kKept)
                clear();
        } else if (next_ > kDeadMax && next_ > items_.size() / 2) {
            items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(next_));
            next_ = 0;
        }
    }
    void clear() {
        items_ = {};
        next_ = 0;
    }
    auto begin() { return items_.begin() + static_cast<std::ptrdiff_t>(next_); }
    auto end() { return items_.end(); }

  private:
    static constexpr std::size_t kDeadMax = 32;
    static constexpr std::size_t kKept = 16;

    ucs::ReserveVector<T> items_;
    std::size_t next_ = 0;  // those before it have gone
};

}  // namespace tagwire::proto
