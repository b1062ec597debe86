// SPDX-License-Identifier: BSD-3-Clause
// Flushes and closes of an endpoint, at two levels (tw_flush_level_t).
//
//   delivered   sends a query behind all earlier messages, and completes when the peer has replied
//               and no earlier operation is outstanding
//   sent        begins when all earlier operations have begun; completes when none of them needs
//               this process, no control message waits, and the transport has let go of all that
//               the lane was given. A close sends its Bye before it asks the transport.
//
// Those of one level complete in their order.
#pragma once

#include <ucs/type/status.h>

#include <cstddef>
#include <cstdint>

#include "protocols/api/tw_def.h"
#include "protocols/connect/closing.hpp"
#include "protocols/port/lane_port.hpp"
#include "protocols/port/peer_port.hpp"
#include "protocols/request/outstanding.hpp"
#include "protocols/request/request.hpp"
#include "protocols/request/request_table.hpp"

namespace tagwire::proto {

/// The world of flushes; `outstanding`: the operations of the endpoint.
struct FlushesPorts {
    const LanePort& lane;
    const PeerPort& peer;
    RequestTable& requests;
    const Outstanding& outstanding;
    Closing& closing;
};

class Flushes {
  public:
    explicit Flushes(const FlushesPorts& ports) : to_(ports) {}
    Flushes(const Flushes&) = delete;
    Flushes& operator=(const Flushes&) = delete;

    /// A call of the program; `kind` kFlush or kClose, `level` one of a flush.
    tw_status_t call(RequestKind kind, tw_flush_level_t level, const tw_op_t* op,
                     tw_request_h* request_p);
    /// As call(), of a request that was made, behind those of transmit contexts: it has ended, or
    /// waits in the queue.
    void begin(Request& request, tw_flush_level_t level);
    /// Begins to flush the transmit contexts, ahead of begin(). TW_ERR_NO_RESOURCE: to be called
    /// again. `is_kept`: with TW_OP_QUEUE.
    tw_status_t flush_contexts(tw_flush_level_t level, bool is_kept) const {
        return to_.peer.flush_contexts(false, level, is_kept);
    }
    /// A flush has nothing to wait for, and no refusal to tell.
    bool is_flushed(tw_flush_level_t level);
    /// An operation was refused that had ended: the next flush tells it.
    bool has_refusal() const { return refusal_ != UCS_OK; }
    /// Sends it. UCS_INPROGRESS: it is outstanding. UCS_ERR_NO_RESOURCE: to be called again.
    /// UCS_ERR_NO_MEMORY: there are too many ids in use.
    ucs_status_t start(Request& request);
    /// Ends those that nothing holds back any more. `moved`: the operation that has ended; nullptr:
    /// anything may have happened.
    void check(const Request* moved = nullptr);
    /// Control messages have left, or the lane has room: no operation has moved.
    void check_room() {
        if (blocker_ == nullptr)
            check_leaving();
    }
    /// The transport has let go of what was given to it before `request`, at TW_FLUSH_SENT.
    void on_transmitted(Request& request, ucs_status_t status);
    /// The peer has taken all before `request`.
    void on_flushed(Request& request);
    /// An operation was refused that had ended: the next flush ends with `status`.
    void note_refusal(ucs_status_t status) { refusal_ = status; }
    /// Removes and returns the oldest; nullptr: none.
    Request* pop() {
        Request* const oldest = asked_.pop_front();
        return oldest != nullptr ? oldest : leaving_.pop_front();
    }
    bool is_empty() const { return asked_.empty() && leaving_.empty(); }
    /// Nothing waits to end, or to be told, and the transport was given no put since it let go.
    bool is_idle() const { return is_empty() && refusal_ == UCS_OK && !has_puts_; }
    /// The transport has a put whose operation may end before the transport lets go of it.
    void note_put() { has_puts_ = true; }
    /// Some wait for the peer's reply.
    bool await_peer() const { return !asked_.empty(); }
    /// Some at TW_FLUSH_SENT have begun.
    bool are_leaving() const { return !leaving_.empty(); }
    std::size_t size() const { return asked_.size() + leaving_.size(); }
    /// Takes the number of the next operation.
    std::uint64_t next_order() { return order_++; }
    std::uint64_t order() const { return order_; }

  private:
    void check_asked();
    void check_leaving();
    bool may_let_go() const;
    bool has_let_go();
    bool is_over(const Request& request);
    bool may_end(Request& request);
    void answer(Request& request, ucs_status_t status);
    ucs_status_t ask_transport(Request& request);
    const Request* blocker_before(std::uint64_t order) const;
    /// The status that the request ends with; the endpoint of a close is closed.
    ucs_status_t end(const Request& request);

    const FlushesPorts to_;
    std::uint64_t order_ = 0;           // of the next operation
    RequestList asked_;                 // the peer is to reply, or has
    RequestList leaving_;               // at TW_FLUSH_SENT
    const Request* blocker_ = nullptr;  // which the first of these waits for; it may have ended
    ucs_status_t refusal_ = UCS_OK;
    bool has_puts_ = false;  // is_idle() tells of
};

}  // namespace tagwire::proto
