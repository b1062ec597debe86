// SPDX-License-Identifier: BSD-3-Clause
// Messages that arrived before a receive that matches them, and the receives that wait: one pair
// for tagged messages, one for the others.
#pragma once

#include <cstddef>
#include <cstdint>

#include "protocols/api/tw_def.h"
#include "protocols/source_matcher.hpp"
#include "protocols/wire.hpp"

// NOLINTNEXTLINE(readability-identifier-naming): the name of the C API
struct tw_message {};

namespace tagwire::proto {

class Endpoint;
struct Request;

/// A message that no receive has matched, or that was claimed. Its data, or the keys of its
/// rendezvous, lie behind it; it is made and freed by Worker.
struct Unexpected : tw_message, UnexpectedMessage {
    Endpoint* ep = nullptr;  // null: the peer is gone
    std::uint64_t worker_id = 0;
    std::uint64_t imm = 0;
    std::uint64_t length = 0;    // of the message
    std::uint64_t received = 0;  // eager: bytes that are here
    std::uint32_t flags = 0;     // HeaderFlag
    std::uint32_t send_id = 0;   // that acknowledgement and cancel name; 0: none
    std::uint64_t held = 0;      // bytes that count against the peer's share
    bool is_rndv = false;
    bool has_failed = false;  // claimed, and the peer died before all of it was here
    bool is_tagged = false;
    Rndv rndv{};
    Request* waiting = nullptr;  // a buffered receive that ends when enough is here
    Request* fetch = nullptr;    // what brings it the data of a rendezvous
    std::byte* start = nullptr;  // ... to here
    std::size_t start_bytes = 0;

    /// Of a rendezvous: the keys.
    std::byte* data() {
        return start != nullptr && !is_rndv ? start : reinterpret_cast<std::byte*>(this + 1);
    }
};

/// One name space of messages.
struct MatchSpace {
    PostedReceives posted;
    UnexpectedMessages unexpected;
};

}  // namespace tagwire::proto
