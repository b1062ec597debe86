// SPDX-License-Identifier: BSD-3-Clause
// One-sided operations beside their requests: the memory at the peer, and the pieces that a
// transport has under way.
//
// A piece may end long after its operation, which has failed: it lives until then, without a
// request, and touches no memory of the program any more.
#pragma once

#include <uct/api/uct.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "protocols/api/tw_rma.h"
#include "protocols/request/request.hpp"
#include "protocols/wire/rma_messages.hpp"
#include "ucs/datastruct/queue.hpp"
#include "ucs/memory/mpool.hpp"

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
    ucs::ListLink<RmaPiece> link;  // among those of its operation
};

enum class RmaPhase : std::uint8_t {
    kMove,    // data moves, or the number is changed
    kNotice,  // the target is told, if that is wanted
    kAck,     // its end there is asked for, if that is wanted
    kEnd,     // the owner's acknowledgement is awaited
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
    ucs_status_t status = UCS_OK;  // the first failure
    ucs::List<RmaPiece, &RmaPiece::link> pieces;
};

/// Ways of an operation.
enum class RmaWay : std::uint8_t {
    kNothing,   // there are no bytes
    kStores,    // loads and stores of the calling thread
    kShort,     // the lane's short put
    kCopied,    // the lane's put or get of copied data
    kTransfer,  // the lane moves the data from memory to memory, with other lanes if it is long
    kAtomic,    // the lane's atomic operation
    kByOwner,   // an atomic that the owner's progress carries out
    kEmulated,  // the lane's compare-and-swap, again and again
    kMessages   // the owner's progress, asked by messages
};

/// Writes `value`, which was there before, to the program's memory, if it wants that.
inline void store_result(const RmaWish& op, std::uint64_t value) {
    if (op.result != nullptr)
        std::memcpy(op.result, &value, op.number_bytes());
}

/// The program is told of its end when that has come at the target, and wants no number.
inline bool is_acked(const Request& request) {
    constexpr std::uint32_t kAckFlags =
        TW_OP_TRANSMIT_COMPLETE | TW_OP_DELIVERY_COMPLETE | TW_OP_MATCH_COMPLETE;
    return (request.flags & kAckFlags) != 0 && request.rma->kind != RmaKind::kGet;
}

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

class RmaOps {
  public:
    RmaOps() = default;
    RmaOps(const RmaOps&) = delete;
    RmaOps& operator=(const RmaOps&) = delete;

    ucs_status_t open();
    /// Gives the request its operation, and holds the key. False: out of memory.
    [[nodiscard]] bool add(Request& request, const RmaWish& wish);
    /// The request ends; its pieces end by themselves.
    void end(Request& request);
    /// nullptr: out of memory.
    RmaPiece* make_piece(Request& request, RmaSender& sender);
    /// Releases a piece whose operation has not ended.
    void release_piece(RmaPiece& piece);

  private:
    static void ended(uct_completion_t* self);

    ucs::Mpool ops_;
    ucs::Mpool pieces_;
};

}  // namespace tagwire::proto
