// SPDX-License-Identifier: BSD-3-Clause
// Intrusive containers: the link lies in the element, so nothing is allocated and nothing can fail.
//
// Queue<T, &T::link>: singly linked FIFO. List<T, &T::link>: doubly linked, O(1) erase from
// anywhere. The element belongs to its user, who keeps it alive and in place while it is linked.
// One thread at a time.
//
// 1. An element is in at most one container per link.
// 2. A container is neither copied nor moved.
#pragma once

#include <cstddef>

#include "ucs/debug/check.hpp"

namespace tagwire::ucs {

template <class T>
struct QueueLink {
    T* next = nullptr;
};

template <class T, QueueLink<T> T::*Link>
class Queue {
  public:
    Queue() = default;
    Queue(const Queue&) = delete;
    Queue& operator=(const Queue&) = delete;

    bool empty() const { return head_ == nullptr; }
    std::size_t size() const { return size_; }
    T* front() const { return head_; }
    T* back() const { return tail_; }
    static T* next(const T& element) { return (element.*Link).next; }

    void push_back(T& element) {
        (element.*Link).next = nullptr;
        if (head_ == nullptr)
            head_ = &element;
        else
            (tail_->*Link).next = &element;
        tail_ = &element;
        ++size_;
    }

    void push_front(T& element) {
        (element.*Link).next = head_;
        head_ = &element;
        if (tail_ == nullptr)
            tail_ = &element;
        ++size_;
    }

    /// nullptr when empty.
    T* pop_front() {
        T* element = head_;
        if (element != nullptr) {
            head_ = (element->*Link).next;
            (element->*Link).next = nullptr;
            if (head_ == nullptr)
                tail_ = nullptr;
            --size_;
        }
        return element;
    }

    /// Unlinks every element for which `predicate(T&)` holds; the others keep their order. The
    /// predicate may destroy the element that it was given, and must not touch the queue. Returns
    /// how many were unlinked.
    template <class Predicate>
    std::size_t remove_if(Predicate predicate) {
        std::size_t removed = 0;
        T* kept = nullptr;
        for (T* element = head_; element != nullptr;) {
            T* following = (element->*Link).next;
            if (predicate(*element)) {
                (kept == nullptr ? head_ : (kept->*Link).next) = following;
                ++removed;
            } else {
                kept = element;
            }
            element = following;
        }
        tail_ = kept;
        size_ -= removed;
        return removed;
    }

  private:
    T* head_ = nullptr;
    T* tail_ = nullptr;
    std::size_t size_ = 0;
};

template <class T>
struct ListLink {
    T* prev = nullptr;
    T* next = nullptr;
    bool linked = false;
};

template <class T, ListLink<T> T::*Link>
class List {
  public:
    List() = default;
    List(const List&) = delete;
    List& operator=(const List&) = delete;

    bool empty() const { return head_ == nullptr; }
    std::size_t size() const { return size_; }
    // An element leaves the list before its memory goes; the analyzer does not see that it does.
    T* front() const { return head_; }  // NOLINT(clang-analyzer-unix.Malloc)
    T* back() const { return tail_; }
    static T* next(const T& element) { return (element.*Link).next; }
    static T* prev(const T& element) { return (element.*Link).prev; }
    static bool is_linked(const T& element) { return (element.*Link).linked; }

    void push_back(T& element) { insert_between(tail_, element, nullptr); }
    void push_front(T& element) { insert_between(nullptr, element, head_); }
    void insert_before(T& position, T& element) {
        insert_between((position.*Link).prev, element, &position);
    }

    /// `element` must be in this list.
    void erase(T& element) {
        ListLink<T>& link = element.*Link;
        TW_ASSERT(link.linked);
        (link.prev == nullptr ? head_ : (link.prev->*Link).next) = link.next;
        (link.next == nullptr ? tail_ : (link.next->*Link).prev) = link.prev;
        link = {};
        --size_;
    }

    /// nullptr when empty.
    T* pop_front() {
        T* element = head_;
        if (element != nullptr)
            erase(*element);
        return element;
    }

    /// Calls `function(T&)` for every element, in order; it may erase or destroy the element that
    /// it was given.
    template <class Function>
    void for_each(Function function) {
        for (T* element = head_; element != nullptr;) {
            T* following = (element->*Link).next;
            function(*element);
            element = following;
        }
    }

  private:
    void insert_between(T* before, T& element, T* after) {
        ListLink<T>& link = element.*Link;
        TW_ASSERT(!link.linked);
        link = {.prev = before, .next = after, .linked = true};
        (before == nullptr ? head_ : (before->*Link).next) = &element;
        (after == nullptr ? tail_ : (after->*Link).prev) = &element;
        ++size_;
    }

    T* head_ = nullptr;
    T* tail_ = nullptr;
    std::size_t size_ = 0;
};

}  // namespace tagwire::ucs
