// SPDX-License-Identifier: BSD-3-Clause
// The layout of shared memory: the ring segment of one sender for one receiver, and the bell page
// of an interface. docs/internals/formats/shared-memory.md has the same as prose. A change of
// anything here changes kFormatVersion.
//
// Rules: standard layout, fixed width, offsets and indices instead of pointers; every line has one
// writer (named below) except the words marked "both"; whatever the other side wrote is copied
// once, checked, then used. The geometry of a segment is taken from the message that announced it
// (wire.hpp), never from the segment.
//
//   ring segment (memfd made by the sender)                                 written by
//   0      RingHeader          identity, for a debugger                     sender, once
//   128    Consumer front      tail, sleep                                  receiver (sleep: both)
//   256    Consumer back       the same of the other ring                   receiver (sleep: both)
//   384    Producer            closed                                       sender
//   512    Returns             count, then names of released buffers        receiver
//   ..     RndvWord[]          one per outstanding rendezvous of the sender both
//   page   Slot[front_count]   128 bytes each                               sender
//   page   Slot[slot_count]    if there is a back ring                      sender
//   page   reserve buffers     kReserveCount x seg_bytes                    sender
//
//   pool segment (memfd made by an interface, for all peers that it sends to)
//   0      blocks              kBlockBytes each; a buffer is a run of them  sender
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tagwire::sm {

constexpr std::uint32_t kFormatVersion = 7;
constexpr std::uint64_t kRingMagic = 0x74772d72696e6731ULL;  // "tw-ring1"
constexpr std::uint64_t kBellMagic = 0x74772d62656c6c31ULL;  // "tw-bell1"

constexpr std::size_t kCacheLine = 64;
// Two lines: processors fetch lines in pairs.
constexpr std::size_t kNoFalseSharing = 128;

// A receiver that keeps up is served through the front ring, whose slots fit a page and the first
// cache of both sides; the back ring is for a sender that runs ahead.
constexpr std::uint32_t kFrontCount = 32;
constexpr std::uint32_t kSlotCountMin = 16;
constexpr std::uint32_t kSlotCountMax = 65536;
constexpr std::uint32_t kSegBytesMax = 32768 + 64;
// A buffer of the pool is a run of blocks, named by the first one.
constexpr std::uint32_t kBlockBytes = 512;
constexpr std::uint32_t kPoolBytesMax = 32U << 20;
// Buffers of one connection, for the time when others have used up the pool: as many as the longest
// message needs.
constexpr std::uint32_t kReserveCount = 8;
constexpr std::uint32_t kReserveBit = 1U << 31;  // in the name of a buffer
// Buffers that one receiver may have at a time; the return ring has so many entries.
constexpr std::uint32_t kReturnCount = 2048;
constexpr std::uint32_t kRndvCount = 256;
constexpr std::uint32_t kFragmentCountMax = 8;

// Kinds of slots; the names of the bodies are in messages.hpp.
enum class Kind : std::uint8_t {
    kNone = 0,
    kAm,           // id: AM id, length: bytes of the body
    kAmSeg,        // id: AM id, length: bytes in the buffer; the first ones are here, too
    kTagShort,     // tag + data, immediate 0
    kTagImm,       // tag + immediate + data
    kTagSeg,       // one fragment in a buffer; id: FragmentFlags
    kRndv,         // rendezvous; length: bytes of header; id: RndvFlags
    kRndvRequest,  // software rendezvous; length: bytes of header
    kRndvFin,      // the receiver finished a rendezvous
    kRndvHelp,     // the receiver asks the sender to copy chunks, too
    kPull,         // read memory of the peer by messages
    kPullData,
    kPush,  // write memory of the peer by messages
    kPushAck,
    kAtomic,  // executed by the target
    kAtomicReply,
    kGetHelp,    // the reader of registered or lent memory asks its owner to copy chunks, too
    kOtherRing,  // the last message in this ring: the next is in the other one
    kLast = kOtherRing
};

// The control word of a slot. It is stored last and loaded first, so one load says whether the slot
// is new, and has all that is needed to check it:
//
//     63      56 55      48 47            32 31                            0
//     |   id    |   kind   |     length     |  low half of position + 1    |
struct Control {
    std::uint64_t word;

    static constexpr Control make(Kind kind, std::uint8_t id, std::uint16_t length) {
        return Control{std::uint64_t{id} << 56 |
                       std::uint64_t{static_cast<std::uint8_t>(kind)} << 48 |
                       std::uint64_t{length} << 32};
    }
    [[nodiscard]] constexpr std::uint32_t sequence() const {
        return static_cast<std::uint32_t>(word);
    }
    [[nodiscard]] constexpr std::uint16_t length() const {
        return static_cast<std::uint16_t>(word >> 32);
    }
    [[nodiscard]] constexpr std::uint8_t kind() const {
        return static_cast<std::uint8_t>(word >> 48);
    }
    [[nodiscard]] constexpr std::uint8_t id() const {
        return static_cast<std::uint8_t>(word >> 56);
    }
    /// The word's kind is that, and its id has no bit that is not in `ids`.
    [[nodiscard]] constexpr bool is_of(Kind kind, std::uint8_t ids) const {
        return (word >> 48 & (0xffU | (0xffU & ~unsigned{ids}) << 8)) ==
               static_cast<unsigned>(kind);
    }
};

constexpr std::size_t kSlotBytes = 128;
constexpr std::size_t kBodyBytes = kSlotBytes - 8;

template <template <class> class Atom = std::atomic>
struct alignas(kSlotBytes) Slot {
    Atom<std::uint64_t> control;
    std::byte body[kBodyBytes];
};

// Whether the receiver polls a ring. The receiver writes it; a sender only takes kUntilNext away.
enum RingSleep : std::uint32_t {
    kAwake = 0,      // it does
    kUntilNext = 1,  // not before the bell was rung: by whoever takes this away
    kByBell = 2,     // only when the bell was rung: after each message
};

template <template <class> class Atom = std::atomic>
struct alignas(kNoFalseSharing) Consumer {
    Atom<std::uint64_t> tail;   // all positions below may be reused; published every slot_count / 4
    Atom<std::uint32_t> sleep;  // both: RingSleep
};

struct alignas(kNoFalseSharing) Producer {
    std::atomic<std::uint32_t> closed;  // 1: the sender closed this ring on purpose
};

struct alignas(kNoFalseSharing) Returns {
    // Buffers given back so far; entry i is at index i % kReturnCount.
    std::atomic<std::uint64_t> count;
};

// State of one rendezvous: generation << 32 | RndvState. When both sides copy, `next` counts the
// chunks that either has claimed and `done` those that are finished, in the low halves behind the
// same generation: so whoever is late, after a cancel and the next use of the word, claims nothing.
enum class RndvState : std::uint32_t { kFree = 0, kPending = 1, kDone = 2, kCancelled = 3 };

struct alignas(kCacheLine) RndvWord {
    std::atomic<std::uint64_t> state;
    std::atomic<std::uint64_t> next;
    std::atomic<std::uint64_t> done;
    // generation << 32 | 1: the sender could not write, the receiver reads all.
    std::atomic<std::uint64_t> failed;
};

struct alignas(kNoFalseSharing) RingHeader {
    std::uint64_t magic;
    std::uint32_t version;
    std::uint32_t slot_count;
    std::uint32_t seg_bytes;
    std::uint32_t pool_blocks;
};

struct RingHead {
    RingHeader header;
    Consumer<> front;
    Consumer<> back;
    Producer producer;
    Returns returns;
};

static_assert(sizeof(Slot<>) == kSlotBytes && offsetof(Slot<>, body) == 8);
static_assert(offsetof(RingHead, front) == 128 && offsetof(RingHead, back) == 256);
static_assert(offsetof(RingHead, producer) == 384 && offsetof(RingHead, returns) == 512);
static_assert(sizeof(RingHead) == 640);
static_assert(sizeof(RndvWord) == 64);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
              std::atomic<std::uint32_t>::is_always_lock_free);

/// Where the parts of a ring segment are. Pure computation from checked numbers.
struct RingGeometry {
    std::uint32_t slot_count = 0;   // a power of two; up to kFrontCount there is no back ring
    std::uint32_t seg_bytes = 0;    // the largest buffer; a multiple of the cache line
    std::uint32_t pool_blocks = 0;  // in the pool of the sender's interface
    std::uint32_t page_bytes = 4096;

    [[nodiscard]] bool is_valid() const {
        const auto power = [](std::uint32_t v) { return v != 0 && (v & (v - 1)) == 0; };
        return power(slot_count) && slot_count >= kSlotCountMin && slot_count <= kSlotCountMax &&
               seg_bytes >= kCacheLine && seg_bytes <= kSegBytesMax &&
               seg_bytes % kCacheLine == 0 && pool_blocks <= kPoolBytesMax / kBlockBytes &&
               power(page_bytes) && page_bytes >= 4096 && page_bytes <= 65536;
    }
    [[nodiscard]] std::size_t returns_offset() const { return sizeof(RingHead); }
    [[nodiscard]] std::size_t rndv_offset() const {
        return align(returns_offset() + kReturnCount * sizeof(std::uint32_t), kNoFalseSharing);
    }
    [[nodiscard]] std::uint32_t front_count() const {
        return slot_count < kFrontCount ? slot_count : kFrontCount;
    }
    [[nodiscard]] std::uint32_t back_count() const {
        return slot_count > kFrontCount ? slot_count : 0;
    }
    [[nodiscard]] std::size_t front_offset() const {
        return align(rndv_offset() + kRndvCount * sizeof(RndvWord), page_bytes);
    }
    [[nodiscard]] std::size_t back_offset() const {
        return align(front_offset() + front_count() * kSlotBytes, page_bytes);
    }
    [[nodiscard]] std::size_t reserve_offset() const {
        return align(back_offset() + back_count() * kSlotBytes, page_bytes);
    }
    [[nodiscard]] std::size_t bytes() const {
        return align(reserve_offset() + std::size_t{kReserveCount} * seg_bytes, page_bytes);
    }
    [[nodiscard]] std::size_t pool_bytes() const {
        return align(std::size_t{pool_blocks} * kBlockBytes, page_bytes);
    }
    /// There is a buffer of this name with room for `length` bytes.
    [[nodiscard]] bool has_buffer(std::uint32_t seg, std::size_t length) const {
        if (length > seg_bytes)
            return false;
        if ((seg & kReserveBit) != 0)
            return (seg & ~kReserveBit) < kReserveCount;
        return seg < pool_blocks && length <= std::size_t{pool_blocks - seg} * kBlockBytes;
    }

  private:
    static std::size_t align(std::size_t v, std::size_t to) { return (v + to - 1) / to * to; }
};

// The bell page of an interface (memfd made by the receiver; every sender maps it). A sender whose
// ring sleeps sets its bit, then the summary bit of that word; when the receiver is armed, it takes
// that, and wakes it: by a packet, and if it naps by futex(2) on `armed`.
constexpr std::uint32_t kArmedPacket = 1;
constexpr std::uint32_t kArmedNap = 2;
constexpr std::size_t kBellWords = 64;
constexpr std::size_t kBellBits = kBellWords * 64;

/// Bell::waited_on: the processor plus 1, 0 before it has waited; whether it has given it away
/// since.
constexpr std::uint32_t kIsAway = 0x80000000U;

template <template <class> class Atom = std::atomic>
struct Bell {
    std::uint64_t magic;
    alignas(kNoFalseSharing) Atom<std::uint64_t> summary;  // senders set, the receiver takes
    alignas(kNoFalseSharing) Atom<std::uint32_t> armed;    // the receiver sets, a sender takes
    alignas(kNoFalseSharing) Atom<std::uint64_t> words[kBellWords];
    /// The receiver's calls of progress; peers that wait look whether it makes any.
    alignas(kNoFalseSharing) Atom<std::uint64_t> calls;
    Atom<std::uint64_t> waited_ns;  // CLOCK_MONOTONIC when it waited last
    Atom<std::uint32_t> waited_on;  // the processor; 0: it has not waited
};
static_assert(sizeof(Bell<>) <= 4096);

}  // namespace tagwire::sm
