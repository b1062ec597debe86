// SPDX-License-Identifier: BSD-3-Clause
//
// TagIndex: the hash under the tag matchers. It maps a key (a tag, or what its `Keys` say: see
// TagKeys) to the oldest of the nodes that carry it.
//
// Shape. One bucket is one cache line: a control word (seven one-byte fingerprints and an overflow
// count) and seven node pointers. A look-up reads the bucket of its key and, where a fingerprint
// agrees, the node itself, which the caller needs anyway: two cache misses at any depth.
//
//   control word   bits 0..55   fingerprint of slot i in byte i, 0 = the slot is empty
//                  bits 56..63  how many keys passed this bucket because it was full (sticks at
//                  255)
//
// The owner of a matched node reads a third line at once: its companion, such as the program's
// context, whose address is in the node. Where the `Keys` name companions, the line beside the
// bucket, which processors fetch with it, has their addresses. So node and companion are loaded at
// the same time, and no miss waits for more than that of the bucket.
//
//   line 0   control word, seven nodes
//   line 1   seven companions (of the slots' nodes), of indexes that have them
//
// Invariants.
//   - A key occupies at most one slot. Nodes of equal key form a ring (next, prev) in order of
//     insertion; the slot points at the oldest, whose prev is the youngest.
//   - A key lies in its home bucket, or in a later one (wrapping) if every bucket between counts it
//     as passed. So a search ends at the first bucket that was never passed, and removal needs no
//     tombstones.
//   - Growth is incremental: the old table stays readable and every insertion moves a few of its
//     buckets, so that no insertion pays for the whole table. A key is in the old table or in the
//     new one, never in both.
//
// Not thread-safe. Memory of nodes belongs to the caller.

#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <type_traits>
#include <utility>

#include "ucs/memory/zeroed_memory.hpp"
#include "ucs/sys/process.hpp"

namespace tagwire::ucs::detail {

inline constexpr std::size_t kCacheLineBytes = 64;

/** Random in each process, and secret: tags are the choice of peers, who could else choose many
 * with one home. The multiplier is part of it, for tags can be found that collide under a known one
 * whatever is added to them. */
struct TagHashKey {
    std::uint64_t mask = 0x243f6a8885a308d3U;
    std::uint64_t factor = 0x9e3779b97f4a7c15U;
};
inline TagHashKey tag_hash_key;

/** Before the first hash that is kept; every index calls it. */
inline void draw_tag_hash_key() {
    static const bool is_drawn = [] {
        tag_hash_key = {random_u64(), random_u64() | 1};
        return true;
    }();
    static_cast<void>(is_drawn);
}

/** One multiplication; every bit of the result depends on every bit of the tag, so that structured
 * tags spread. */
inline std::uint64_t tag_hash(std::uint64_t tag) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(tag ^ tag_hash_key.mask) * tag_hash_key.factor;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

/** One byte, not 0; of bits that do not choose the bucket. */
inline std::uint64_t tag_fingerprint(std::uint64_t hash) {
    const std::uint64_t top = hash >> 56;
    return top + (top == 0);
}

/** Traits of an index's nodes: their key, its hash, its part that a mask leaves, and the two
 * links that are the index's own while the node is inside. Nodes that are in several indexes at
 * once have a pair of links for each. These are the keys of nodes with `tag`, `next`, `prev`. */
template <class NodeType>
struct TagKeys {
    using Node = NodeType;
    using Key = std::uint64_t;
    static constexpr bool kHasCompanions = false;
    static Key key(const Node& node) { return node.tag; }
    static std::uint64_t hash(Key key) { return tag_hash(key); }
    static Key masked(Key key, std::uint64_t mask) { return key & mask; }
    static Node*& next(Node& node) { return node.next; }
    static Node*& prev(Node& node) { return node.prev; }
};

/** Traits of nodes that `Owner` derives from. A match reads its first line, or kHasTwoLines, and
 * the line at companion(): an address, perhaps null, that is only prefetched. */
template <class NodeType, class Owner>
struct CompanionKeys : TagKeys<NodeType> {
    static constexpr bool kHasCompanions = true;
    static constexpr bool has_two_lines() { return Owner::kHasTwoLines; }
    static const void* companion(const NodeType& node) {
        const void* companion = static_cast<const Owner&>(node).companion();
        return companion != nullptr ? companion : &node;
    }
};

template <class Node>
struct alignas(kCacheLineBytes) TagBucket {
    static constexpr unsigned kSlots = 7;
    static constexpr unsigned kPassedShift = 56;
    static constexpr std::uint64_t kPassedOne = std::uint64_t{1} << kPassedShift;
    static constexpr std::uint64_t kPassedSticky = 255;

    std::uint64_t control;
    Node* node[kSlots];

    /** Bit 7 of byte i is set when slot i holds `fingerprint`; exact, and never set for the
     * overflow count. */
    std::uint64_t slots_with(std::uint64_t fingerprint) const {
        constexpr std::uint64_t kOnes = 0x0001010101010101U;
        constexpr std::uint64_t kLow = 0x7f7f7f7f7f7f7f7fU;
        const std::uint64_t difference = control ^ (fingerprint * kOnes);
        return ~(((difference & kLow) + kLow) | difference) & (kOnes << 7);
    }
    static unsigned first_of(std::uint64_t slots) {
        return static_cast<unsigned>(std::countr_zero(slots)) / 8;
    }
    /** No key of this fingerprint has its home here. */
    bool lacks(std::uint64_t fingerprint) const {
        return passed() == 0 && slots_with(fingerprint) == 0;
    }
    std::uint64_t passed() const { return control >> kPassedShift; }
    void count_pass() { control += passed() == kPassedSticky ? 0 : kPassedOne; }
    void uncount_pass() { control -= passed() == kPassedSticky ? 0 : kPassedOne; }
    void fill(unsigned slot, std::uint64_t fingerprint, Node* head) {
        control |= fingerprint << (8 * slot);
        node[slot] = head;
    }
    bool occupied(unsigned slot) const { return ((control >> (8 * slot)) & 0xff) != 0; }
    void clear(unsigned slot) { control &= ~(std::uint64_t{0xff} << (8 * slot)); }
};

template <class Node>
struct alignas(2 * kCacheLineBytes) TagBucketPair : TagBucket<Node> {
    const void* companion[TagBucket<Node>::kSlots];
};

/** A power-of-two array of buckets; knows where keys are, nothing about growth. */
template <class Keys>
class TagTable {
  public:
    using Node = typename Keys::Node;
    using Key = typename Keys::Key;
    using Bucket = std::conditional_t<Keys::kHasCompanions, TagBucketPair<Node>, TagBucket<Node>>;
    static_assert(sizeof(Bucket) == (Keys::kHasCompanions ? 2 : 1) * kCacheLineBytes);
    static_assert(ZeroedMemory::kAlignment % alignof(Bucket) == 0);

    struct Place {
        Bucket* bucket = nullptr;
        unsigned slot = 0;
        explicit operator bool() const { return bucket != nullptr; }
        Node* head() const { return bucket->node[slot]; }
    };

    /** Fresh zeroed buckets. */
    bool allocate(std::size_t buckets) {
        if (!memory_.allocate(buckets * sizeof(Bucket)))
            return false;
        buckets_ = static_cast<Bucket*>(memory_.data());
        mask_ = buckets - 1;
        return true;
    }
    void release() {
        memory_.release();
        buckets_ = nullptr;
        mask_ = 0;
    }
    void swap(TagTable& other) noexcept {
        memory_.swap(other.memory_);
        std::swap(buckets_, other.buckets_);
        std::swap(mask_, other.mask_);
    }

    bool allocated() const { return buckets_ != nullptr; }
    std::size_t bucket_count() const { return allocated() ? mask_ + 1 : 0; }
    Bucket& bucket(std::size_t index) { return buckets_[index & mask_]; }
    const Bucket& bucket(std::size_t index) const { return buckets_[index & mask_]; }

    Place locate(Key key, std::uint64_t hash) const {
        const std::uint64_t mark = tag_fingerprint(hash);
        std::size_t index = hash & mask_;
        for (std::size_t probes = 0; probes <= mask_; ++probes, index = (index + 1) & mask_) {
            Bucket& candidate = buckets_[index];
            for (std::uint64_t hits = candidate.slots_with(mark); hits != 0; hits &= hits - 1) {
                const auto slot = Bucket::first_of(hits);
                prefetch_found(candidate, slot);
                if (Keys::key(*candidate.node[slot]) == key)
                    return {&candidate, slot};
            }
            if (candidate.passed() == 0) [[likely]]
                break;
        }
        return {};
    }

    /** Starts loading what a match of the node in `slot` reads. */
    [[gnu::always_inline]] static void prefetch_found([[maybe_unused]] const Bucket& bucket,
                                                      [[maybe_unused]] unsigned slot) {
        if constexpr (Keys::kHasCompanions) {
            __builtin_prefetch(bucket.companion[slot], 1);
            const auto* const lines = reinterpret_cast<const char*>(bucket.node[slot]);
            __builtin_prefetch(lines, 1);
            if constexpr (Keys::has_two_lines())
                __builtin_prefetch(lines + kCacheLineBytes, 1);
        }
    }

    /** `place` is empty. */
    [[gnu::always_inline]] static void fill(Place place, std::uint64_t hash, Node* head) {
        place.bucket->fill(place.slot, tag_fingerprint(hash), head);
        set_companion(place, *head);
    }

    /** In place of another node of its key. */
    static void replace(Place place, Node* head) {
        place.bucket->node[place.slot] = head;
        set_companion(place, *head);
    }

    /** `head` carries a key that is not in the table, and there is an empty slot somewhere. */
    void put(std::uint64_t hash, Node* head) {
        std::size_t index = hash & mask_;
        for (;; index = (index + 1) & mask_) {
            Bucket& candidate = buckets_[index];
            const std::uint64_t empty = candidate.slots_with(0);
            if (empty != 0) [[likely]] {
                fill({&candidate, Bucket::first_of(empty)}, hash, head);
                return;
            }
            candidate.count_pass();
        }
    }

    std::size_t longest_search() const {
        std::size_t longest = 0;
        for (std::size_t index = 0; index < bucket_count(); ++index)
            for (unsigned slot = 0; slot < Bucket::kSlots; ++slot)
                if (bucket(index).occupied(slot)) {
                    const auto home = Keys::hash(Keys::key(*bucket(index).node[slot]));
                    longest = std::max(longest, ((index - home) & mask_) + 1);
                }
        return longest;
    }

    void remove(Place place, std::uint64_t hash) {
        place.bucket->clear(place.slot);
        for (std::size_t index = hash & mask_; &buckets_[index] != place.bucket;
             index = (index + 1) & mask_)
            buckets_[index].uncount_pass();
    }

  private:
    [[gnu::always_inline]] static void set_companion(Place place, [[maybe_unused]] Node& node) {
        if constexpr (Keys::kHasCompanions)
            place.bucket->companion[place.slot] = Keys::companion(node);
    }

    ZeroedMemory memory_;
    Bucket* buckets_ = nullptr;
    std::size_t mask_ = 0;
};

/** While a node is inside, the caller leaves its key and its links alone. */
template <class Keys>
class TagIndex {
  public:
    using Node = typename Keys::Node;
    using Key = typename Keys::Key;
    static constexpr std::size_t kBucketsMin = 4;
    static constexpr std::size_t kKeysPerBucketMax =
        5;                                        // mean; of seven slots, so that few keys pass
    static constexpr std::size_t kSlotsFree = 2;  // at least, for insertions to find one
    static constexpr std::size_t kBucketsMovedPerInsert =
        1;  // an old table is empty long before the next growth

    /** Throws std::bad_alloc. */
    TagIndex() {
        draw_tag_hash_key();
        if (!try_grow_to(kBucketsMin))
            throw std::bad_alloc();
    }

    /** Room for `keys` distinct keys without further allocation; moves everything now. False: no
     * memory, no change. */
    bool reserve(std::size_t keys) {
        const std::size_t buckets = std::bit_ceil(keys / kKeysPerBucketMax + 1);
        if (buckets <= table_.bucket_count())
            return true;
        while (old_.allocated())
            move_buckets(old_.bucket_count());
        if (!try_grow_to(buckets))
            return false;
        move_buckets(old_.bucket_count());
        return true;
    }

    void insert(Node& node) {
        const std::uint64_t hash = Keys::hash(Keys::key(node));
        typename Table::Bucket& home = table_.bucket(hash);
        if (keys_ < fast_keys_max_ && home.lacks(tag_fingerprint(hash))) [[likely]] {
            const std::uint64_t empty = home.slots_with(0);
            if (empty != 0) [[likely]] {
                Keys::next(node) = &node;
                Keys::prev(node) = &node;
                Table::fill({&home, home.first_of(empty)}, hash, &node);
                ++keys_;
                return;
            }
        }
        insert_slowly(node, hash);
    }

    /** The oldest node of this key, left in place; null when there is none. */
    Node* find(Key key) { return locate(key, Keys::hash(key)).oldest(); }

    /** The oldest node of this key, removed; null when there is none. */
    Node* pop(Key key) {
        const std::uint64_t hash = Keys::hash(key);
        typename Table::Bucket& home = table_.bucket(hash);
        const std::uint64_t hits = home.slots_with(tag_fingerprint(hash));
        if (hits != 0) [[likely]] {
            const unsigned slot = home.first_of(hits);
            Table::prefetch_found(home, slot);
            Node* node = home.node[slot];
            if (Keys::key(*node) == key && Keys::next(*node) == node) [[likely]] {
                home.clear(slot);
                --keys_;
                return node;
            }
        }
        return pop_slowly(key, hash);
    }

    void erase(Node& node) {
        const std::uint64_t hash = Keys::hash(Keys::key(node));
        detach(locate(Keys::key(node), hash), hash, node);
    }

    /** Some node, left in place; null when empty. For tear-down: draining by any() and erase() is
     * O(1) per node. */
    Node* any() {
        return any([](const Node&) { return true; });
    }

    /** Some node that is `wanted`, left in place; null when there is none. Nodes of equal key are
     * wanted alike. Looks on where the last call stopped, so that draining what is wanted visits
     * the table about twice, however much that is. */
    template <class Wanted>
    Node* any(const Wanted& wanted) {
        while (old_.allocated())
            move_buckets(old_.bucket_count());
        if (keys_ == 0)
            return nullptr;
        for (std::size_t left = table_.bucket_count(); left != 0; --left, ++any_position_) {
            const auto& bucket = table_.bucket(any_position_);
            for (unsigned slot = 0; slot < bucket.kSlots; ++slot)
                if (bucket.occupied(slot) && wanted(*bucket.node[slot]))
                    return bucket.node[slot];
        }
        return nullptr;
    }

    bool empty() const { return keys_ == 0; }
    /** The buckets that the longest search for a key inside looks at; visits them all. */
    std::size_t longest_search() const {
        return std::max(table_.longest_search(), old_.longest_search());
    }
    std::size_t key_count() const { return keys_; }
    void prefetch(Key key) const {
        const auto& home = table_.bucket(Keys::hash(key));
        __builtin_prefetch(&home, 1);
        if constexpr (Keys::kHasCompanions)
            __builtin_prefetch(&home.companion, 1);
    }

  private:
    using Table = TagTable<Keys>;
    struct Found {
        Table* table;
        typename Table::Place place;
        Node* oldest() const { return place ? place.head() : nullptr; }
    };

    Found locate(Key key, std::uint64_t hash) {
        const typename Table::Place place = table_.locate(key, hash);
        if (place || !old_.allocated()) [[likely]]
            return {&table_, place};
        return {&old_, old_.locate(key, hash)};
    }

    void detach(const Found& found, std::uint64_t hash, Node& node) {
        if (Keys::next(node) == &node) {
            found.table->remove(found.place, hash);
            --keys_;
            return;
        }
        Node* const next = Keys::next(node);
        Node* const prev = Keys::prev(node);
        Keys::next(*prev) = next;
        Keys::prev(*next) = prev;
        if (found.place.head() == &node)
            Table::replace(found.place, next);
    }

    [[gnu::noinline]] void insert_slowly(Node& node, std::uint64_t hash) {
        if (Node* oldest = locate(Keys::key(node), hash).oldest()) {
            Node* const youngest = Keys::prev(*oldest);
            Keys::next(node) = oldest;
            Keys::prev(node) = youngest;
            Keys::next(*youngest) = &node;
            Keys::prev(*oldest) = &node;
            return;
        }
        Keys::next(node) = &node;
        Keys::prev(node) = &node;
        table_.put(hash, &node);
        ++keys_;
        if (keys_ > keys_max_ || old_.allocated())
            make_room();
    }

    [[gnu::noinline]] Node* pop_slowly(Key key, std::uint64_t hash) {
        const Found found = locate(key, hash);
        if (!found.place)
            return nullptr;
        Node* node = found.place.head();
        detach(found, hash, *node);
        return node;
    }

    void make_room() {
        if (old_.allocated())
            move_buckets(kBucketsMovedPerInsert);
        else
            grow();
    }

    /** Without memory what there is gets fuller, and the next insertion tries again. */
    void grow() {
        const std::size_t buckets = table_.bucket_count();
        if (!try_grow_to(2 * buckets) && keys_ + kSlotsFree > buckets * Table::Bucket::kSlots)
            std::abort();  // reserve() is for those who must not meet this
    }

    bool try_grow_to(std::size_t buckets) {
        Table larger;
        if (!larger.allocate(buckets))
            return false;
        old_.swap(table_);
        table_.swap(larger);
        moved_ = 0;
        keys_max_ = buckets * kKeysPerBucketMax;
        fast_keys_max_ = old_.allocated() ? 0 : keys_max_;
        return true;
    }

    /** Which are moved next: their keys are read then. */
    static void prefetch_nodes(const typename Table::Bucket& bucket) {
        for (unsigned slot = 0; slot < bucket.kSlots; ++slot)
            if (bucket.occupied(slot))
                __builtin_prefetch(bucket.node[slot]);
    }

    void move_buckets(std::size_t count) {
        for (; count != 0 && moved_ < old_.bucket_count(); --count, ++moved_) {
            auto& bucket = old_.bucket(moved_);
            prefetch_nodes(old_.bucket(moved_ + 1));
            for (unsigned slot = 0; slot < bucket.kSlots; ++slot) {
                if (!bucket.occupied(slot))
                    continue;
                table_.put(Keys::hash(Keys::key(*bucket.node[slot])), bucket.node[slot]);
                bucket.clear(slot);  // the counts of passed keys stay: they only lengthen searches
            }
        }
        if (moved_ == old_.bucket_count()) {
            old_.release();
            fast_keys_max_ = keys_max_;
        }
    }

    Table table_;
    Table old_;  // allocated only while growth is under way
    std::size_t keys_ = 0;
    std::size_t keys_max_ = 0;
    std::size_t fast_keys_max_ = 0;  // keys_max_, or 0 while growth is under way
    std::size_t moved_ = 0;          // buckets of old_ that are empty for good
    std::size_t any_position_ = 0;   // where any() looks first, modulo the table
};

}  // namespace tagwire::ucs::detail
