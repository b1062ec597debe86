// SPDX-License-Identifier: BSD-3-Clause
// The work queue of the sends of a queue pair: counts of posted and acknowledged requests, and the
// operations that wait for them.
//
// Threads: owner of the interface.
// Invariants
//  (1) posted - acked + free = depth, or less than that where places come back later. A request is
//      acknowledged by a completion of itself or of a later one.
//  (2) ops is the queue of operations whose requests are not acknowledged, in order of posting.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "ucs/datastruct/queue.hpp"
#include "uct/ib/send_pool.hpp"

namespace tagwire::ib {

class MessageEp;

struct WorkQueue {
    /// ibv_post_send() for a queue pair that wants to know where to.
    static constexpr std::uint32_t kUnlisted = 1U << 31;
    /// A reserve that keeps the last place, too: nothing is posted, not even a flush.
    static constexpr std::uint32_t kStopped = UINT32_MAX / 2;
    using Post = int (*)(WorkQueue& queue, MessageEp& ep, ibv_send_wr* first, ibv_send_wr** bad_p);

    ibv_qp* qp = nullptr;
    Post post_call = nullptr;    // null: ibv_post_send()
    MessageEp* owner = nullptr;  // whose requests it has; null: of several, or of nobody
    bool is_broken = false;      // a request failed, or it was stopped
    bool is_shared = false;      // of several endpoints
    bool is_special = false;     // the transport handles what completes: shared ones, and others
    bool wants_mark = false;     // stopped, and there was no place for the request that tells
    std::uint32_t id = 0;        // in the upper half of wr_id
    std::uint32_t posted = 0;    // requests, of all time: the lower half of the newest's wr_id
    std::uint32_t acked = 0;
    std::uint32_t free = 0;
    std::uint32_t reserve = 1;  // places that only what ends a turn may take: a flush; or kStopped
    // Requests since the last one that asked for a completion. kUnlisted makes it so many that the
    // next one is a special case: it lists the queue as busy.
    std::uint32_t unsignaled = kUnlisted;
    ucs::ListLink<WorkQueue> busy_link;
    unsigned fence_flag = 0;  // IBV_SEND_FENCE for the next request
    SendOp* first = nullptr;
    SendOp* last = nullptr;

    int post(MessageEp& ep, ibv_send_wr* request, ibv_send_wr** bad_p) {
        if (post_call == nullptr) [[likely]]
            return ibv_post_send(qp, request, bad_p);
        return post_call(*this, ep, request, bad_p);
    }
    [[nodiscard]] bool is_drained() const { return posted == acked; }
    /// For a flush, or a request that asks for the completion of those before it.
    [[nodiscard]] bool has_last_place() const { return free > 0 && reserve != kStopped; }
    [[nodiscard]] bool has_unsignaled() const { return (unsignaled & ~kUnlisted) != 0; }
    void clear_unsignaled() { unsignaled &= kUnlisted; }
    std::uint64_t next_wr_id() { return std::uint64_t{id} << 32 | ++posted; }
    /// `op` belongs to the newest request.
    void append(SendOp* op) {
        op->sn = posted;
        append_numbered(op);
    }
    void append_numbered(SendOp* op) {
        op->next = nullptr;
        (first == nullptr ? first : last->next) = op;
        last = op;
    }
    /// The oldest operation, when it is none behind request `sn`; it leaves the queue.
    SendOp* take_until(std::uint32_t sn) {
        SendOp* op = first;
        if (op == nullptr || static_cast<std::int32_t>(op->sn - sn) > 0)
            return nullptr;
        first = op->next;
        return op;
    }
    /// `op`, which is behind `previous` (null: the oldest), leaves the queue.
    void remove(const SendOp* op, SendOp* previous) {
        (previous == nullptr ? first : previous->next) = op->next;
        if (last == op)
            last = previous;
    }
    /// The oldest, whatever was acknowledged; it leaves the queue.
    SendOp* take_any() {
        SendOp* op = first;
        if (op != nullptr)
            first = op->next;
        return op;
    }
};

}  // namespace tagwire::ib
