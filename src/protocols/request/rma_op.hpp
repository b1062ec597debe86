// SPDX-License-Identifier: BSD-3-Clause
// A one-sided operation beside its request, and the pieces of it that a transport has under way.
// The initiator (rma_sender.hpp) writes it; a send queue asks in which line it waits.
#pragma once

#include <uct/api/uct.h>

#include <cstddef>
#include <cstdint>

#include "protocols/api/tw_rma.h"
#include "protocols/request/request.hpp"
#include "protocols/request/rma_list.hpp"
#include "protocols/wire/rma_messages.hpp"
#include "ucs/datastruct/queue.hpp"

namespace tagwire::proto {

class RemoteKey;
class RmaOps;
class RmaSender;

/// The completion of a get that the transport buffers, of an atomic, or of a flush.
struct RmaPiece : uct_completion_t {
    RmaOps* ops = nullptr;
    RmaSender* sender = nullptr;
    Request* request = nullptr;    // nullptr: it has ended
    std::uint64_t offset = 0;      // of a get: where the data goes in its buffer
    std::uint64_t value = 0;       // of an atomic: what was there before
    std::byte* to = nullptr;       // of a list: where the data goes
    ucs::ListLink<RmaPiece> link;  // among those of its operation
};

enum class RmaPhase : std::uint8_t {
    kMove,    // data moves, or the number is changed
    kNotice,  // the target is told, if that is wanted
    kAck,     // its end there is asked for, if that is wanted
    kEnd,     // the owner's acknowledgement is awaited
};

/// A list beside its operation.
struct ListOp {
    explicit ListOp(const RmaList& of) : list(of) {}

    static constexpr std::uint8_t kNoDomain = UINT8_MAX;

    const RmaList list;
    ListCursor next;                  // what is copied, sent or asked for next
    ListCursor coming;                // of a get by messages: behind `part`
    ListPart part{};                  // whose data comes; its length is 0: none
    std::size_t got = 0;              // of its bytes
    std::size_t asked = 0;            // bytes
    unsigned replies = 0;             // that are to come
    std::uint8_t domain = kNoDomain;  // of the peer, for which this was found out:
    bool is_reached = false;          // the lane reaches the memory of each key
};

/// An operation as a call asks for it, but its local buffer.
struct RmaWish {
    RemoteKey* key = nullptr;
    std::uint64_t address = 0;
    RmaKind kind = RmaKind::kPut;
    std::uint8_t operation = 0;  // tw_atomic_op_t
    std::uint8_t type = 0;       // tw_atomic_type_t
    std::uint64_t operand = 0;
    std::uint64_t compare = 0;  // of a compare-and-swap
    void* result = nullptr;     // nullptr: nothing is fetched

    std::size_t number_bytes() const { return bytes_of_number(type); }
};

struct RmaOp : RmaWish {
    explicit RmaOp(const RmaWish& wish) : RmaWish(wish) {}

    RmaPhase phase = RmaPhase::kMove;
    bool by_messages = false;  // some of it has gone so
    bool has_reply = false;
    bool is_emulated = false;  // an atomic: `compare` is the guess
    bool is_there = false;     // it has taken effect at the target
    bool awaits_down = false;  // the target is to end its side of a lost rail first
    // The window of that one has its notice, which has not gone.
    RmaSender* owes_notice = nullptr;
    ListOp* list = nullptr;
    ucs_status_t status = UCS_OK;  // the first failure
    ucs::List<RmaPiece, &RmaPiece::link> pieces;
};

/// An operation that moves no message of the program's order: no notice is part of it.
inline bool is_one_sided(const Request& request) {
    return request.kind == RequestKind::kRma && (request.flags & TW_OP_IMM) == 0;
}

/// A put by messages: some of its parts have gone, and the others must follow before those of
/// another put.
inline bool is_put_in_parts(const Request& request) {
    return request.kind == RequestKind::kRma && request.rma->kind == RmaKind::kPut &&
           request.rma->by_messages && request.offset < request.buffer.length;
}

/// Some of the operation has gone; of a one-sided one, it may have taken effect.
inline bool has_begun(const Request& request) {
    if (request.kind != RequestKind::kRma)
        return request.offset > 0 || request.has_gone || request.is_announced;
    const RmaOp& op = *request.rma;
    return request.offset > 0 || op.by_messages || op.phase != RmaPhase::kMove ||
           !op.pieces.empty() || op.is_emulated;
}

}  // namespace tagwire::proto
