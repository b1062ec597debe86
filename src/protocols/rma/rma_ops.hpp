// SPDX-License-Identifier: BSD-3-Clause
// The one-sided operations of a worker beside their requests, and the pieces that transports have
// under way (rma_op.hpp).
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
#include "protocols/request/rma_op.hpp"
#include "ucs/memory/mpool.hpp"

namespace tagwire::proto {

class RmaSender;

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

/// The program is told of its end when this process is needed no longer.
inline bool is_tracked(const Request& request) {
    return (request.flags & TW_OP_SENT_COMPLETE) != 0 && request.rma->kind != RmaKind::kGet &&
           !is_acked(request);
}

class RmaOps {
  public:
    RmaOps() = default;
    RmaOps(const RmaOps&) = delete;
    RmaOps& operator=(const RmaOps&) = delete;

    ucs_status_t open();
    /// Gives the request its operation, and holds the key. False: out of memory.
    [[nodiscard]] bool add(Request& request, const RmaWish& wish);
    /// The request, which has its operation, moves a list. False: out of memory.
    [[nodiscard]] bool add_list(Request& request, const RmaList& list);
    /// The request ends; its pieces end by themselves.
    void end(Request& request);
    /// nullptr: out of memory.
    RmaPiece* make_piece(Request& request, RmaSender& sender);
    /// Releases a piece whose operation has not ended.
    void release_piece(RmaPiece& piece);

  private:
    static void ended(uct_completion_t* self);

    ucs::Mpool ops_;
    ucs::Mpool lists_;
    ucs::Mpool pieces_;
};

}  // namespace tagwire::proto
