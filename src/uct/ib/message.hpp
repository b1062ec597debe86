// SPDX-License-Identifier: BSD-3-Clause
// The format of messages on reliable queue pairs. Tagged messages are exactly those that a
// tag-matching SRQ understands (<infiniband/tm_types.h>); all others are NO_TAG messages, which it
// passes through. The same format is used where software matches.
//
//   tagged     | TMH: opcode, 0, app_ctx, tag | data                      EAGER
//              | TMH                          | RVH | user's header       RNDV
//              | TMH, app_ctx = operation                                 FIN
//   the rest   | Prefix 8 B | data, at least 8 bytes on the wire          NO_TAG
//
// The immediate of a tagged message is split: its low half is the InfiniBand immediate, its high
// half app_ctx; 0 travels as a SEND without immediate. EAGER with an immediate of two halves that
// are 0 is a software rendezvous request: data is the user's header.
//
// Threads: none; plain data. docs/internals/formats/verbs.md has the tables.
#pragma once

#include <infiniband/tm_types.h>

#include <cstddef>
#include <cstdint>

namespace tagwire::ib {

/// Kinds of NO_TAG messages.
enum class MessageKind : std::uint8_t {
    kAm = 1,      // value: AM id
    kCredit = 2,  // no data: only the count of the prefix
    kTagFragment =
        3,       // the next part of the eager message of this queue pair; value: 1 for the last
    kAsk = 4,    // dc: how far the target is; data: dc::Progress, dc::ReturnAddress
    kGrant = 5,  // dc: the answer; data: dc::Progress
};

/// Lies over the first 8 bytes of the TMH.
struct Prefix {
    std::uint8_t opcode;  // IBV_TMH_NO_TAG
    MessageKind kind;
    std::uint8_t value;
    std::uint8_t padding;    // bytes behind the data that are not part of it: 0 to 8
    std::uint32_t released;  // big endian: messages of the peer that we are done with, of all time
};
static_assert(sizeof(Prefix) == 8 && sizeof(ibv_tmh) == 16 && sizeof(ibv_rvh) == 16);
static_assert(offsetof(Prefix, released) == offsetof(ibv_tmh, app_ctx));

inline constexpr std::size_t kPrefixBytes = sizeof(Prefix);
inline constexpr std::size_t kTmhBytes = sizeof(ibv_tmh);
inline constexpr std::size_t kMessageBytesMin = kTmhBytes;  // a device may drop shorter ones

/// First byte of `reserved` in an EAGER header of software matching: fragments follow.
inline constexpr std::uint8_t kEagerHasMore = 1;
/// The same of RNDV: so many bytes that end the user's header lie behind it. A device carries out
/// no rendezvous whose headers are longer than it says, so where it matches these are a gain.
inline constexpr std::size_t kRndvTailBytes = 2;
static_assert(1 + kRndvTailBytes == sizeof(ibv_tmh::reserved));

}  // namespace tagwire::ib
