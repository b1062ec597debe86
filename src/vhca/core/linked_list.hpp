// SPDX-License-Identifier: BSD-3-Clause
// A list threaded through its elements: no allocation, removal in constant time. An element is in
// at most one list per link.
#pragma once

#include <cstddef>

namespace tagwire::vhca {

template <typename T>
struct Link {
    T* next = nullptr;
    T* prev = nullptr;
    bool is_linked = false;
};

template <typename T, Link<T> T::*kLink>
class LinkedList {
  public:
    [[nodiscard]] bool is_empty() const { return size_ == 0; }
    [[nodiscard]] std::size_t size() const { return size_; }
    [[nodiscard]] T* front() const { return front_; }
    [[nodiscard]] static T* after(const T& element) { return (element.*kLink).next; }

    void push_back(T& element) {
        Link<T>& link = element.*kLink;
        link = {nullptr, back_, true};
        (back_ == nullptr ? front_ : (back_->*kLink).next) = &element;
        back_ = &element;
        ++size_;
    }

    void remove(T& element) {
        Link<T>& link = element.*kLink;
        (link.prev == nullptr ? front_ : (link.prev->*kLink).next) = link.next;
        (link.next == nullptr ? back_ : (link.next->*kLink).prev) = link.prev;
        link = {};
        --size_;
    }

  private:
    T* front_ = nullptr;
    T* back_ = nullptr;
    std::size_t size_ = 0;
};

}  // namespace tagwire::vhca
