// SPDX-License-Identifier: BSD-3-Clause
// One-sided operations by messages: where the transport of an endpoint does not reach the memory,
// its owner's progress carries them out.
//
//     initiator                              owner
//       |  PutPart, data ... PutPart, data     |
//       |------------------------------------->|  written; RmaReply behind the last
//       |  RmaRequest (get)                    |
//       |------------------------------------->|  GetData, data ... ; RmaReply
//       |  RmaRequest (atomic)                 |
//       |------------------------------------->|  carried out; RmaReply with what was there
//       |  RmaRequest (keys)                   |
//       |------------------------------------->|  GetData, keys; RmaReply
//       |  Notice                              |
//       |------------------------------------->|  the program is told
//
// RmaReply is a control message. Parts of one put follow each other, without parts of another.
#pragma once

#include <cstddef>
#include <cstdint>

#include "protocols/api/tw_rma.h"
#include "protocols/wire/wire.hpp"

namespace tagwire::proto {

/// Memory of the owner.
struct MemoryRange {
    std::uint64_t memory;  // its id (mem_table.hpp)
    std::uint64_t address;
};

/// Before data of a put.
struct PutPart {
    std::uint32_t sender;
    std::uint32_t op_id;  // of the initiator; 0: it is over there
    MemoryRange to;
    std::uint32_t is_last;  // 1: RmaReply is wanted
    std::uint32_t reserved;
};
static_assert(sizeof(PutPart) == 32);

struct PutMessage {
    PutPart head;
    WireBytes data;  // not empty; where the transport has it
};
[[nodiscard]] bool decode(WireBytes bytes, PutMessage* message);

enum class RmaKind : std::uint8_t {
    kPut = 1,
    kGet = 2,
    kAtomic = 3,
    kKeys = 4,  // keys of all the owner's domains (KeyHead), as the data of a get
};

/// `type`: tw_atomic_type_t.
constexpr std::size_t bytes_of_number(std::uint8_t type) {
    return type == TW_UINT32 || type == TW_INT32 ? 4 : 8;
}

struct RmaRequest {
    std::uint32_t sender;
    std::uint32_t op_id;  // 0: an atomic that is over there
    MemoryRange at;
    std::uint64_t length;  // in bytes; of an atomic 4 or 8, of keys the most that are wanted
    std::uint64_t operand;
    std::uint64_t compare;
    RmaKind kind;            // kGet, kAtomic or kKeys
    std::uint8_t operation;  // tw_atomic_op_t
    std::uint8_t type;       // tw_atomic_type_t
    std::uint8_t reserved[5];
};
static_assert(sizeof(RmaRequest) == 56);
[[nodiscard]] bool decode(WireBytes bytes, RmaRequest* message);

/// Before data of a get.
struct GetData {
    std::uint32_t sender;
    std::uint32_t op_id;
    std::uint64_t offset;
};
static_assert(sizeof(GetData) == 16);

struct GetMessage {
    GetData head;
    WireBytes data;  // not empty; where the transport has it
};
[[nodiscard]] bool decode(WireBytes bytes, GetMessage* message);

/// An operation has taken effect, and the owner is to be told.
struct Notice {
    std::uint32_t sender;
    RmaKind kind;          // kPut
    std::uint8_t is_list;  // 1: `at` is the first piece, `length` the bytes of all
    std::uint8_t reserved[2];
    MemoryRange at;
    std::uint64_t length;
    std::uint64_t imm;
};
static_assert(sizeof(Notice) == 40);
[[nodiscard]] bool decode(WireBytes bytes, Notice* message);

}  // namespace tagwire::proto
