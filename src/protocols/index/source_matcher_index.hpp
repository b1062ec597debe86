// SPDX-License-Identifier: BSD-3-Clause
//
// Nodes of the matcher by tag and source, and their keys in each of its indexes
// (ucs/datastruct/tag_matcher_index.hpp).

#pragma once

#include <cstddef>
#include <cstdint>

#include "ucs/datastruct/tag_matcher.hpp"

namespace tagwire::proto {

using ucs::kExactMask;

/** In a receive or a look-up: whoever sent the message. No message has it as its source. */
inline constexpr std::uint32_t kAnySource = UINT32_MAX;

namespace detail {

struct SourceTag {
    std::uint64_t tag;
    std::uint32_t source;
    bool operator==(const SourceTag&) const = default;
};

struct MaskedLinks;

}  // namespace detail

struct PostedReceive {
    std::uint64_t tag = 0;  // set before post(); bits outside the mask do not count
    PostedReceive* next;    // while posted: in the queue, or in the ring of equal keys
    PostedReceive* prev;
    std::uint64_t sequence;             // among those in the indexes
    std::uint64_t mask = kExactMask;    // set before post()
    std::uint32_t source = kAnySource;  // set before post()

    /** A message from one source; `message_source` is not kAnySource. */
    bool matches(std::uint64_t message_tag, std::uint32_t message_source) const {
        return ((message_tag ^ tag) & mask) == 0 &&
               (source == kAnySource || source == message_source);
    }

    // Derived classes hide these (ucs's tag_matcher_index.hpp).
    static constexpr bool kHasTwoLines = false;
    static const void* companion() { return nullptr; }
};
static_assert(sizeof(PostedReceive) == 48);  // room for buffer and length in its cache line

struct UnexpectedMessage {
    struct Links {
        UnexpectedMessage* next = nullptr;
        UnexpectedMessage* prev = nullptr;
    };

    std::uint64_t tag = 0;               // set before add(); the rest belongs to UnexpectedMessages
    std::uint32_t source = 0;            // set before add()
    UnexpectedMessage* newer = nullptr;  // neighbours in order of arrival
    UnexpectedMessage* older = nullptr;
    Links same_tag;  // rings of equal keys, one for each index
    Links same_both;
    Links same_source;
    detail::MaskedLinks* masked = nullptr;  // in indexes by mask (masked_messages.hpp)

    /** A receive of this tag, mask and source. */
    bool is_for(std::uint64_t receive_tag, std::uint64_t mask, std::uint32_t receive_source) const {
        return ((tag ^ receive_tag) & mask) == 0 &&
               (receive_source == kAnySource || receive_source == source);
    }
};
// Exact look-ups and walks read one cache line.
static_assert(offsetof(UnexpectedMessage, same_source) == 64);
static_assert(sizeof(UnexpectedMessage) == 88);

namespace detail {

/** One multiplication of both, so that structured tags and sources spread together, by the key of
 * tag_hash(). */
inline std::uint64_t source_tag_hash(SourceTag key) {
    __extension__ using Wide = unsigned __int128;
    const ucs::detail::TagHashKey& secret = ucs::detail::tag_hash_key;
    const Wide product = static_cast<Wide>(key.tag ^ secret.mask) * (key.source ^ secret.factor);
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

template <class Receive>
using AnySourceKeys = ucs::detail::CompanionKeys<PostedReceive, Receive>;

template <class Receive>
struct DirectedKeys : AnySourceKeys<Receive> {
    using Node = PostedReceive;
    using Key = SourceTag;
    static Key key(const Node& node) { return {node.tag, node.source}; }
    static std::uint64_t hash(Key key) { return source_tag_hash(key); }
    static Key masked(Key key, std::uint64_t mask) { return {key.tag & mask, key.source}; }
};

/** The links that an index of unexpected messages uses. */
template <UnexpectedMessage::Links UnexpectedMessage::*links>
struct MessageLinks {
    using Node = UnexpectedMessage;
    static constexpr bool kHasCompanions = false;
    static Node*& next(Node& node) { return (node.*links).next; }
    static Node*& prev(Node& node) { return (node.*links).prev; }
};

struct MessageTagKeys : MessageLinks<&UnexpectedMessage::same_tag> {
    using Key = std::uint64_t;
    static Key key(const Node& node) { return node.tag; }
    static std::uint64_t hash(Key key) { return ucs::detail::tag_hash(key); }
};

struct MessageSourceKeys : MessageLinks<&UnexpectedMessage::same_source> {
    using Key = std::uint32_t;
    static Key key(const Node& node) { return node.source; }
    static std::uint64_t hash(Key key) { return ucs::detail::tag_hash(key); }
};

struct MessageBothKeys : MessageLinks<&UnexpectedMessage::same_both> {
    using Key = SourceTag;
    static Key key(const Node& node) { return {node.tag, node.source}; }
    static std::uint64_t hash(Key key) { return source_tag_hash(key); }
};

}  // namespace detail
}  // namespace tagwire::proto
