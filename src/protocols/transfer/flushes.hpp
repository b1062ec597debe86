// SPDX-License-Identifier: BSD-3-Clause
// Flushes and closes of an endpoint. Each sends a query behind all earlier messages, and completes
// when the peer has replied and no earlier send is outstanding.
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

    /// A call of the program; `kind` kFlush or kClose.
    tw_status_t call(RequestKind kind, const tw_op_t* op, tw_request_h* request_p);
    /// Sends it. UCS_INPROGRESS: it is outstanding. UCS_ERR_NO_RESOURCE: to be called again.
    /// UCS_ERR_NO_MEMORY: there are too many ids in use.
    ucs_status_t start(Request& request);
    /// Ends those that the peer has answered and that no earlier send holds back.
    void check();
    /// The peer has taken all before `request`.
    void on_flushed(Request& request);
    /// An operation was refused that had ended: the next flush ends with `status`.
    void note_refusal(ucs_status_t status) { refusal_ = status; }
    /// Removes and returns the oldest; nullptr: none.
    Request* pop() { return sent_.pop_front(); }
    bool is_empty() const { return sent_.empty(); }
    std::size_t size() const { return sent_.size(); }
    /// Takes the number of the next operation.
    std::uint64_t next_order() { return order_++; }
    std::uint64_t order() const { return order_; }

  private:
    const FlushesPorts to_;
    std::uint64_t order_ = 0;  // of the next operation
    RequestList sent_;
    ucs_status_t refusal_ = UCS_OK;
};

}  // namespace tagwire::proto
