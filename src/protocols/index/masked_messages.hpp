// SPDX-License-Identifier: BSD-3-Clause
//
// Unexpected messages by the bits of their tags that a mask leaves: one index for each mask that
// receives look with, from any source or from one. MPI_ANY_TAG is such a mask where the
// communicator is a part of the tag, and so is every receive that ignores bits of the protocol.
//
// 1. Few masks are kept, since a program uses few. One more takes the place of the one that was
//    looked for longest ago, when two look-ups in succession ask for it; the first of them walks.
// 2. Every message is in every kept index, or no message is in any (UnexpectedMessages::filed_).
// 3. A message that is in has links for all of them, in memory of their own until it leaves: one of
//    a program that looks with no mask costs a pointer. The owner removes all messages in the end.
// 4. Nothing throws: without memory there are no indexes, and look-ups walk.
//
// Owner: UnexpectedMessages. Not thread-safe.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include "protocols/index/source_matcher_index.hpp"

namespace tagwire::proto {

/** A message's place in one of the indexes. */
struct detail::MaskedLinks {
    MaskedLinks* next = nullptr;
    MaskedLinks* prev = nullptr;
    SourceTag key{};
    UnexpectedMessage* of = nullptr;
};

class MaskedMessages {
  public:
    static constexpr std::size_t kMasks = 4;

    bool is_any_kept() const { return count_ != 0; }
    /** Messages may have links. */
    bool was_any_kept() const { return was_any_kept_; }

    void file(UnexpectedMessage& message) {
        for (std::size_t i = 0; i < count_; ++i)
            insert(i, message);
    }

    void unfile(UnexpectedMessage& message) {
        for (std::size_t i = 0; i < count_; ++i)
            views_[i].index->erase(message.masked[i]);
        drop_links(message);
    }

    /** The message is in no index. It has links where begin() had no memory for those of others. */
    static void drop_links(UnexpectedMessage& message) {
        delete[] std::exchange(message.masked, nullptr);
    }

    /** Sought in an index. False: it is not kept, and could not be begun; the caller walks. */
    bool find(std::uint64_t tag, std::uint64_t mask, std::uint32_t source,
              UnexpectedMessage** found_p) {
        const std::size_t at = place_of(mask, source != kAnySource);
        if (at == count_)
            return false;
        View& view = views_[at];
        view.last_use = ++uses_;
        const detail::MaskedLinks* const node = view.index->find({tag & mask, source});
        *found_p = node == nullptr ? nullptr : node->of;
        return true;
    }

    /** Keeps an index of this mask, of all messages from `oldest` on. False: not this time. */
    bool begin(std::uint64_t mask, bool is_directed, UnexpectedMessage* oldest) {
        std::size_t at = count_;
        if (count_ == kMasks) {
            const bool was_missed = missed_mask_ == mask && missed_directed_ == is_directed;
            missed_mask_ = mask;
            missed_directed_ = is_directed;
            if (!was_missed)
                return false;
            at = least_used();
        }
        std::unique_ptr<Index> index = make_index();
        if (index == nullptr)
            return false;
        views_[at].index = std::move(index);
        views_[at].mask = mask;
        views_[at].is_directed = is_directed;
        if (at == count_)
            ++count_;
        was_any_kept_ = true;
        for (UnexpectedMessage* each = oldest; each != nullptr && count_ != 0; each = each->newer)
            insert(at, *each);
        return count_ != 0;
    }

  private:
    struct Keys {
        using Node = detail::MaskedLinks;
        using Key = detail::SourceTag;
        static constexpr bool kHasCompanions = false;
        static Node*& next(Node& node) { return node.next; }
        static Node*& prev(Node& node) { return node.prev; }
        static Key key(const Node& node) { return node.key; }
        static std::uint64_t hash(Key key) { return detail::source_tag_hash(key); }
    };
    using Index = ucs::detail::TagIndex<Keys>;

    struct View {
        std::unique_ptr<Index> index;
        std::uint64_t mask = 0;
        std::uint64_t last_use = 0;
        bool is_directed = false;  // its look-ups name a source
    };

    static std::unique_ptr<Index> make_index() {
        try {
            return std::make_unique<Index>();
        } catch (const std::bad_alloc&) {
            return nullptr;
        }
    }

    std::size_t place_of(std::uint64_t mask, bool is_directed) const {
        std::size_t at = 0;
        while (at < count_ && (views_[at].mask != mask || views_[at].is_directed != is_directed))
            ++at;
        return at;
    }

    std::size_t least_used() const {
        std::size_t least = 0;
        for (std::size_t i = 1; i < kMasks; ++i)
            if (views_[i].last_use < views_[least].last_use)
                least = i;
        return least;
    }

    void insert(std::size_t at, UnexpectedMessage& message) {
        if (message.masked == nullptr)
            message.masked = new (std::nothrow) detail::MaskedLinks[kMasks];
        if (message.masked == nullptr)
            return keep_none();
        const View& view = views_[at];
        detail::MaskedLinks& node = message.masked[at];
        node.key = {message.tag & view.mask, view.is_directed ? message.source : kAnySource};
        node.of = &message;
        view.index->insert(node);
    }

    void keep_none() {
        views_ = {};
        count_ = 0;
    }

    std::array<View, kMasks> views_;
    std::size_t count_ = 0;
    std::uint64_t uses_ = 0;
    std::uint64_t missed_mask_ = 0;  // of the latest look-up that no index served
    bool missed_directed_ = false;
    bool was_any_kept_ = false;
};

}  // namespace tagwire::proto
