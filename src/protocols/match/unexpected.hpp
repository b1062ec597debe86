// SPDX-License-Identifier: BSD-3-Clause
// Messages that arrived before a receive that matches them, and the receives that wait: one pair
// for tagged messages, one for the others.
#pragma once

#include <cstddef>
#include <cstdint>

#include "protocols/api/tw_def.h"
#include "protocols/index/source_matcher.hpp"
#include "protocols/wire/rndv_messages.hpp"
#include "ucs/datastruct/queue.hpp"

// NOLINTNEXTLINE(readability-identifier-naming): the name of the C API
struct tw_message {};

namespace tagwire::proto {

struct MatchPeer;
struct Request;

/// A message that no receive has matched, or that was claimed; an active message that the program
/// has, or whose parts are coming. Its data (before it the program's header), or the keys of its
/// rendezvous (behind them that header), lie behind it; it is made and freed by MatchTable.
///
/// 1. While its endpoint lives it is in that one's list, from when it is made until it is freed.
///    Afterwards it is in the table's list of orphans, unless it is taken.
/// 2. While it is in a matcher, or is an active message that the program has, and its sender may
///    ask for it by its send id, it is in the table's index of those (is_named).
struct Unexpected : tw_message, UnexpectedMessage {
    MatchPeer* peer = nullptr;  // null: it is gone
    std::uint64_t worker_id = 0;
    std::uint64_t imm = 0;
    std::uint64_t length = 0;    // of the message
    std::uint64_t received = 0;  // eager: bytes that are here
    std::uint32_t flags = 0;     // HeaderFlag
    std::uint32_t sender = 0;    // the id of the endpoint that it came by
    std::uint32_t send_id = 0;   // that acknowledgement and cancel name; 0: none
    std::uint64_t held = 0;      // bytes of memory, which count against the budget
    bool is_rndv = false;
    bool is_in_block = false;  // its memory is one of the table's blocks
    bool is_plain = false;     // eager, all of it is here, and its sender is told nothing
    bool is_taken = false;     // in no matcher: a receive or the program has it
    bool is_named = false;
    bool has_failed = false;  // claimed, and the peer died before all of it was here
    bool is_tagged = false;
    bool is_am = false;              // an active message: in no matcher, ever
    bool is_in_handler = false;      // its handler runs: memory stays until that returns
    bool is_over = false;            // to be released when the handler returns
    bool is_canceled = false;        // an active message that its sender has taken back
    std::uint16_t header_bytes = 0;  // of the program's header, which `length` leaves out
    Rts rts{};
    Request* waiting = nullptr;  // a buffered receive that ends when enough is here
    Request* fetch = nullptr;    // what brings it the data of a rendezvous
    std::byte* start = nullptr;  // where `fetch` puts the data
    std::size_t start_bytes = 0;
    ucs::ListLink<Unexpected> link;  // of the same peer, or orphans
    Unexpected* next_of_send = nullptr;
    Unexpected* prev_of_send = nullptr;

    /// The data of the message; for a rendezvous, the keys.
    std::byte* data() {
        return start != nullptr && !is_rndv ? start : behind() + (is_rndv ? 0 : header_bytes);
    }
    /// The program's header of an active message.
    std::byte* header() { return behind() + (is_rndv ? received : 0); }
    std::byte* behind() { return reinterpret_cast<std::byte*>(this + 1); }
};

using UnexpectedList = ucs::List<Unexpected, &Unexpected::link>;

/// By the number that the sender gave it: unique among messages of one connection. Those of one
/// source may come by several (tx_contexts.hpp).
struct MessageSendKeys {
    using Node = Unexpected;
    using Key = detail::SourceTag;
    static constexpr bool kHasCompanions = false;
    static Node*& next(Node& node) { return node.next_of_send; }
    static Node*& prev(Node& node) { return node.prev_of_send; }
    static Key key(const Node& node) { return {node.send_id, node.sender}; }
    static std::uint64_t hash(Key key) { return detail::source_tag_hash(key); }
};

/// One name space of messages.
struct MatchSpace {
    PostedReceivesOf<Request> posted;
    UnexpectedMessages unexpected;
};

}  // namespace tagwire::proto
