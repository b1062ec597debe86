// SPDX-License-Identifier: BSD-3-Clause
// Active messages of atomic operations. The initiator asks, the owner of the memory carries out and
// replies, once for each request:
//
//                  header                                      data
//                 +------+-------+------+----+----------+-----++----------+----------+----------+
//     kAtomicAsk  | id   | count | kind | op | datatype | n   || n x      | operands | compares |
//                 | u64  | u32   | u8   | u8 | u8       | u8  || segment  |          |          |
//                 +------+-------+------+----+----------+-----++----------+----------+----------+
//     segment:  address u64, key u64, count u64; their counts sum up to `count`
//
//                 +------+-------+------++---------+
//     kAtomicTell | id   | error | 0    || results |    results: unless it failed, of kFetch and
//                 | u64  | u32   | u32  ||         |    kCompare
//                 +------+-------+------++---------+
//
// Operands are `count` elements of the datatype, but of FI_ATOMIC_READ none; compares as many, of
// kCompare only. Everything has the byte order of the processor: both sides have the same numbers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "atomic_kernel.hpp"
#include "letters.hpp"

namespace tagwire::fi {

/// Bytes of the operands of one call: the greatest count is that of the datatype in them.
inline constexpr std::size_t kAtomicBytesMax = 4096;
inline constexpr std::size_t kAtomicSegmentsMax = 16;
/// Requests of an endpoint to one peer without a reply.
inline constexpr std::size_t kAtomicsOfPeerMax = Outbox::kDataRepliesMax / 2;

struct AtomicHeader {
    std::uint64_t id;
    std::uint32_t count;
    std::uint8_t kind;  ///< AtomicKind
    std::uint8_t op;
    std::uint8_t datatype;
    std::uint8_t segments;
};
static_assert(sizeof(AtomicHeader) == 16 && offsetof(AtomicHeader, segments) == 15);

struct AtomicSegment {
    std::uint64_t address;
    std::uint64_t key;
    std::uint64_t count;
};
static_assert(sizeof(AtomicSegment) == 24);

struct AtomicReply {
    std::uint64_t id;
    std::uint32_t error;  ///< 0, or an errno of libfabric, positive.
    std::uint32_t reserved = 0;
};
static_assert(sizeof(AtomicReply) == 16);

inline constexpr std::size_t kAtomicDataMax =
    kAtomicSegmentsMax * sizeof(AtomicSegment) + 2 * kAtomicBytesMax;

static_assert(sizeof(AtomicHeader) + kAtomicDataMax <= TW_AM_URGENT_MAX);

using AtomicBytes = LetterBytes;

/// A request that was checked, all but its addresses and keys. Its data stays where it was.
struct AtomicRequest {
    std::uint64_t id = 0;
    AtomicKind kind{};
    bool changes = false;  ///< Not FI_ATOMIC_READ.
    AtomicApply apply = nullptr;
    std::size_t element_bytes = 0;
    std::size_t bytes = 0;  ///< All operands, or all results.
    std::array<AtomicSegment, kAtomicSegmentsMax> segments_room;
    std::span<const AtomicSegment> segments;
    const std::byte* operands = nullptr;
    const std::byte* compares = nullptr;
};

/// 0, or why it is refused: a positive errno of libfabric. Bytes of any peer. The id is there if
/// the header has its length.
[[nodiscard]] int decode(AtomicBytes header, AtomicBytes data, AtomicRequest* request);

}  // namespace tagwire::fi
