// SPDX-License-Identifier: BSD-3-Clause
//
// TagQueue: the receives that a matcher has not filed yet, in the order of their posting. Most
// messages come in the order of their receives, so the first one matches; then no hash is needed.
// A match walks over at most kFew; when none of these matches and there are more, or when
// kRoom are inside, the matcher files all of them in its hashes, and goes on there until it is
// empty. So a receive is filed at most once, and nothing is slower for it than a walk over kFew.
//
// Nodes have `next` and `prev`, which belong to the queue while they are inside.

#pragma once

#include <cstddef>

namespace tagwire::ucs::detail {

template <class Node>
class TagQueue {
  public:
    static constexpr std::size_t kFew = 4;
    static constexpr std::size_t kRoom = 256;

    bool empty() const { return oldest_ == nullptr; }
    Node* front() const { return oldest_; }

    void push_back(Node& node) {
        node.next = nullptr;
        node.prev = newest_;
        (newest_ != nullptr ? newest_->next : oldest_) = &node;
        newest_ = &node;
    }

    /** The front's `prev` is never read. */
    Node* pop_front() {
        Node* const node = oldest_;
        oldest_ = node->next;
        if (oldest_ == nullptr)
            newest_ = nullptr;
        return node;
    }

    void remove(Node& node) {
        if (&node == oldest_) {
            pop_front();
            return;
        }
        node.prev->next = node.next;
        (node.next != nullptr ? node.next->prev : newest_) = node.prev;
    }

    /** The first of the oldest kFew that matches; `*are_all_p`: there are no others. */
    template <class Matches>
    Node* find(const Matches& matches, bool* are_all_p) const {
        Node* node = oldest_;
        for (std::size_t looked = 0; node != nullptr && looked < kFew; ++looked) {
            if (matches(*node))
                return node;
            node = node->next;
        }
        *are_all_p = node == nullptr;
        return nullptr;
    }

    /** Some node that matches; null when there is none. Visits all. */
    template <class Matches>
    Node* any(const Matches& matches) const {
        Node* node = oldest_;
        while (node != nullptr && !matches(*node))
            node = node->next;
        return node;
    }

  private:
    Node* oldest_ = nullptr;
    Node* newest_ = nullptr;
};

}  // namespace tagwire::ucs::detail
