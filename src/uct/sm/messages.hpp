// SPDX-License-Identifier: BSD-3-Clause
// Bodies of the ring's slots, one struct per kind (layout.hpp). All are standard layout without
// padding holes that matter; the receiver copies what it decides by, checks it, and only then uses
// it.
#pragma once

#include <uct/api/tagwire_uct.h>

#include <cstddef>
#include <cstdint>

#include "uct/sm/layout.hpp"

namespace tagwire::sm {

// kAm: the AM's header and payload, as the callback gets them.
constexpr std::size_t kAmInlineMax = kBodyBytes;

// The first bytes of the message are in the slot, too: they have come with the line that announces
// it, the buffer has not.
constexpr std::size_t kAmHeadMax = TAGWIRE_UCT_AM_HEAD_BYTES;

struct AmSegBody {
    std::uint32_t seg;
    std::uint32_t reserved;
    std::byte head[kAmHeadMax];
};

struct TagShortBody {
    std::uint64_t tag;
    std::byte data[kBodyBytes - 8];
};

struct TagImmBody {
    std::uint64_t tag;
    std::uint64_t imm;
    std::byte data[kBodyBytes - 16];
};

enum FragmentFlags : std::uint8_t { kFirst = 1, kMore = 2 };

struct TagSegBody {
    std::uint64_t tag;
    std::uint64_t imm;
    std::uint64_t total;  // bytes of the whole message
    std::uint32_t seg;
};

enum RndvFlags : std::uint8_t { kHeaderInSeg = 1, kInArena = 2 };

// The buffer is [address, address + length) of the sender; in its arena it starts at arena_offset.
struct RndvBody {
    std::uint64_t tag;
    std::uint64_t address;
    std::uint64_t length;
    std::uint64_t arena_offset;
    std::uint32_t generation;
    std::uint32_t op;   // index of the sender's operation and of its RndvWord
    std::uint32_t key;  // registration, for software rendezvous
    std::uint32_t seg;  // buffer that holds the header when it does not fit below
    std::uint64_t key_generation;
    std::byte header[kBodyBytes - 56];
};

struct RndvRequestBody {
    std::uint64_t tag;
    std::uint32_t seg;  // as above
    std::uint32_t reserved;
    std::byte header[kBodyBytes - 16];
};

struct RndvFinBody {
    std::uint32_t generation;
    std::uint32_t op;
    std::int32_t status;
};

struct RndvHelpBody {
    std::uint64_t address;  // receiver's buffer
    std::uint64_t length;   // bytes to copy; the buffer's and the sender's minimum
    std::uint32_t generation;
    std::uint32_t op;
};

// op numbers here are the requester's; the reply carries them back.
struct PullBody {
    std::uint64_t address;
    std::uint64_t length;
    std::uint32_t generation;  // of the rendezvous when rndv_op is one, else 0
    std::uint32_t key;         // of the registration when rndv_op is kNoOp
    std::uint32_t rndv_op;
    std::uint32_t op;
};

struct PullDataBody {
    std::uint32_t op;
    std::uint32_t seg;
    std::int32_t status;
    std::uint32_t length;
};

struct PushBody {
    std::uint64_t address;
    std::uint32_t key;
    std::uint32_t seg;
    std::uint32_t length;
    std::uint32_t op;
    std::uint32_t is_last;  // then the peer acknowledges; an error it tells at once
};

struct PushAckBody {
    std::uint32_t op;
    std::int32_t status;
};

struct AtomicBody {
    std::uint64_t address;
    std::uint64_t value;
    std::uint64_t compare;
    std::uint32_t key;
    std::uint32_t op;
    std::uint32_t opcode;
    std::uint32_t bytes;  // 4 or 8
};

struct AtomicReplyBody {
    std::uint64_t result;
    std::uint32_t op;
    std::int32_t status;
};

// The requester reads [remote, remote + length) into `address`: of the registration `key`, or of
// the buffer that the owner has lent as number `key`.
struct GetHelpBody {
    std::uint64_t address;
    std::uint64_t remote;
    std::uint64_t length;
    std::uint32_t generation;
    std::uint32_t key;
    std::uint32_t word;  // index of the RndvWord, in the requester's segment
    std::uint32_t is_lent;
};

constexpr std::uint32_t kNoOp = 0xffffffffU;

template <class Body>
constexpr bool fits_slot() {
    return sizeof(Body) <= kBodyBytes;
}
static_assert(fits_slot<TagShortBody>() && fits_slot<TagImmBody>() && fits_slot<TagSegBody>());
static_assert(fits_slot<RndvBody>() && fits_slot<RndvRequestBody>() && fits_slot<RndvHelpBody>());
static_assert(fits_slot<GetHelpBody>());
static_assert(offsetof(Slot<>, body) + sizeof(AmSegBody) == kCacheLine, "one line announces it");
static_assert(fits_slot<PullBody>() && fits_slot<PushBody>() && fits_slot<AtomicBody>());
static_assert(sizeof(TagShortBody::data) == 112 && sizeof(TagImmBody::data) == 104 &&
              sizeof(RndvBody::header) == 64);

}  // namespace tagwire::sm
