// SPDX-License-Identifier: BSD-3-Clause
//
// MaskClasses: posted wildcards, by their mask. One index for each mask in use; an arrival probes
// each of them once with its own key under that mask and takes the candidate that was posted first.
//
// Nodes have, beside their key and links (see TagKeys), `mask` and `sequence`, and their key is
// masked already. Indexes that became empty wait for a new mask and keep their memory.
//
// Not thread-safe. Memory of nodes belongs to the caller.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "ucs/datastruct/tag_matcher_index.hpp"
#include "ucs/memory/reserve.hpp"

namespace tagwire::ucs::detail {

/** Sequence numbers are compared by signed difference, so that they may wrap. */
template <class Node>
bool is_before(const Node& a, const Node& b) {
    return static_cast<std::int64_t>(a.sequence - b.sequence) < 0;
}

/** The one of two nodes that was posted first; either may be null. */
template <class Node>
Node* earlier_of(Node* a, Node* b) {
    return b != nullptr && (a == nullptr || is_before(*b, *a)) ? b : a;
}

template <class Keys>
class MaskClasses {
  public:
    using Node = typename Keys::Node;
    using Key = typename Keys::Key;

    bool empty() const { return in_use_ == 0; }

    /** The earliest of `earliest`, which may be null, and the nodes that match `key`; left inside.
     */
    Node* earliest_of(Node* earliest, Key key) {
        for (std::size_t i = 0; i < in_use_; ++i) {
            MaskClass& posted = *classes_[i];
            earliest = earlier_of(earliest, posted.index.find(Keys::masked(key, posted.mask)));
        }
        return earliest;
    }

    [[gnu::noinline]] void insert(Node& node) { class_to_add(node.mask).index.insert(node); }

    [[gnu::noinline]] void erase(Node& node) {
        const std::size_t position = find_class(node.mask);
        classes_[position]->index.erase(node);
        if (classes_[position]->index.empty())
            std::swap(classes_[position], classes_[--in_use_]);
    }

    /** Some node that is `wanted`, left in place; null when there is none. See TagIndex::any. */
    template <class Wanted>
    Node* any(const Wanted& wanted) {
        Node* found = nullptr;
        for (std::size_t i = 0; i < in_use_ && found == nullptr; ++i)
            found = classes_[i]->index.any(wanted);
        return found;
    }

  private:
    struct alignas(kCacheLineBytes) MaskClass : FromReserve {
        std::uint64_t mask = 0;
        TagIndex<Keys> index;
    };

    /** Where this mask is among the classes in use; in_use_ if it is not. */
    std::size_t find_class(std::uint64_t mask) const {
        std::size_t i = 0;
        while (i < in_use_ && classes_[i]->mask != mask)
            ++i;
        return i;
    }

    MaskClass& class_to_add(std::uint64_t mask) {
        const std::size_t position = find_class(mask);
        if (position < in_use_)
            return *classes_[position];
        if (position == classes_.size())
            classes_.push_back(std::make_unique<MaskClass>());
        classes_[position]->mask = mask;
        ++in_use_;
        return *classes_[position];
    }

    std::size_t in_use_ = 0;  // the first so many of classes_; the others wait, empty
    ReserveVector<std::unique_ptr<MaskClass>> classes_;
};

}  // namespace tagwire::ucs::detail
