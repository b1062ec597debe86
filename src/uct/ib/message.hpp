// SPDX-License-Identifier: BSD-3-Clause
// The format of messages on reliable queue pairs. Tagged messages are exactly those that a
// tag-matching SRQ understands (<infiniband/tm_types.h>); all others are NO_TAG messages, which it
// passes through. The same format is used where software matches.
//
//   tagged     | TMH: opcode, 0, app_ctx, tag | data                      EAGER
//              | TMH                          | RVH | user's header       RNDV
//              | TMH, app_ctx = operation                                 FIN
//   the rest   | Prefix 8 B | data, at least 8 bytes on the wire          NO_TAG
//   bare       | data, the first byte of which is 0                       NO_TAG, with immediate
//
// An active message that would need one packet more for its prefix travels bare: the immediate has
// what the prefix would say, and the first byte of the data, in whose place stands NO_TAG.
//
// The immediate of a tagged message is split: its low half is the InfiniBand immediate, its high
// half app_ctx; 0 travels as a SEND without immediate. EAGER with an immediate of two halves that
// are 0 is a software rendezvous request: data is the user's header.
//
// Threads: none; plain data. docs/internals/formats/verbs.md has the tables.
#pragma once

#include <endian.h>
#include <infiniband/tm_types.h>
#include <uct/api/uct.h>

#include <bit>
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

    /// Put together in a register, so that one store writes it: the device reads it at once.
    [[nodiscard]] static Prefix of(MessageKind kind, std::uint8_t value, std::uint8_t padding,
                                   std::uint32_t released) {
        static_assert(std::endian::native == std::endian::little && IBV_TMH_NO_TAG == 0);
        return std::bit_cast<Prefix>(static_cast<std::uint64_t>(kind) << 8 |
                                     std::uint64_t{value} << 16 | std::uint64_t{padding} << 24 |
                                     std::uint64_t{htobe32(released)} << 32);
    }
    /// An active message with a possible id and no padding: what is compared is one word.
    [[nodiscard]] bool is_plain_am() const {
        static_assert((UCT_AM_ID_MAX & (UCT_AM_ID_MAX - 1)) == 0);
        constexpr std::uint32_t kId = (UCT_AM_ID_MAX - 1) << 16;
        const auto word = static_cast<std::uint32_t>(std::bit_cast<std::uint64_t>(*this));
        return (word & ~kId) == static_cast<std::uint32_t>(MessageKind::kAm) << 8;
    }
};
static_assert(sizeof(Prefix) == 8 && sizeof(ibv_tmh) == 16 && sizeof(ibv_rvh) == 16);
static_assert(offsetof(Prefix, released) == offsetof(ibv_tmh, app_ctx));

/// The immediate of a bare active message, as a number of the machine:
///   | first byte of the data: 8 bits | 0 | AM id: 5 | released: its lowest 18 bits |
struct BareHead {
    std::uint8_t first;
    std::uint8_t am_id;
    std::uint32_t released;

    static constexpr unsigned kReleasedBits = 18, kIdBits = 5, kFirstShift = 24;
    static constexpr std::uint32_t kReleasedMask = (1U << kReleasedBits) - 1;
    static constexpr std::uint32_t kIdMask = (1U << kIdBits) - 1;

    [[nodiscard]] static bool is_valid(std::uint32_t imm) { return (imm & 1U << 23) == 0; }
    [[nodiscard]] static BareHead of(std::uint32_t imm) {
        return {static_cast<std::uint8_t>(imm >> kFirstShift),
                static_cast<std::uint8_t>(imm >> kReleasedBits & kIdMask), imm & kReleasedMask};
    }
    [[nodiscard]] std::uint32_t imm() const {
        return std::uint32_t{first} << kFirstShift | std::uint32_t{am_id} << kReleasedBits |
               (released & kReleasedMask);
    }
    /// The whole count: the first at or after `before` that ends with these bits.
    [[nodiscard]] std::uint32_t released_after(std::uint32_t before) const {
        return before + ((released - before) & kReleasedMask);
    }
};
static_assert(BareHead::kReleasedBits + BareHead::kIdBits + 1 == BareHead::kFirstShift);

inline constexpr std::size_t kPrefixBytes = sizeof(Prefix);
inline constexpr std::size_t kTmhBytes = sizeof(ibv_tmh);
inline constexpr std::size_t kMessageBytesMin = kTmhBytes;  // a device may drop shorter ones

/// First byte of `reserved` in an EAGER header of software matching: fragments follow.
inline constexpr std::uint8_t kEagerHasMore = 1;
/// Bytes that end the user's header and lie behind a RNDV header. A device carries out
/// no rendezvous whose headers are longer than it says, so where it matches these are a gain.
inline constexpr std::size_t kRndvTailBytes = 2;
static_assert(1 + kRndvTailBytes == sizeof(ibv_tmh::reserved));

}  // namespace tagwire::ib
