// SPDX-License-Identifier: BSD-3-Clause
// The owner of memory: carries out what one peer asks for by messages, and tells the program of
// notices.
//
// Whatever a peer names is looked up for each message: memory that has no key (any more), a range
// outside of it, or a right that its key does not give is refused, and counted.
#pragma once

#include <ucs/type/status.h>

#include <cstddef>
#include <cstdint>

#include "protocols/api/tw_completion.h"
#include "protocols/index/fifo.hpp"
#include "protocols/port/worker_counters.hpp"
#include "protocols/wire/rma_messages.hpp"

namespace tagwire::proto {

class MemTable;
struct LaneState;
struct MatchPeer;

/// The world of a target. `owner` is the first argument of the function.
struct RmaTargetPorts {
    MemTable& memories;
    WorkerCounters& counters;
    MatchPeer& peer;
    const LaneState& lane;
    void* owner;
    /// A peer's operation on memory of the program has taken effect. `is_counted`: the program has
    /// the memory count it, and needs no completion.
    void (*tell)(void* owner, MatchPeer& from, const tw_completion_t& done, bool is_counted);
};

class RmaTarget {
  public:
    explicit RmaTarget(const RmaTargetPorts& ports) : to_(ports) {}
    RmaTarget(const RmaTarget&) = delete;
    RmaTarget& operator=(const RmaTarget&) = delete;

    void on_put(const PutMessage& message);
    void on_request(const RmaRequest& message);
    void on_notice(const Notice& message);

    // ---- Gets of the peer, which are answered piece by piece, and questions for keys

    bool has_gets() const { return !gets_.empty(); }
    /// Sends a piece. UCS_ERR_NO_RESOURCE: there is no room for it.
    ucs_status_t send_piece();
    /// A reply is with the transport.
    void reply_has_gone() { --owed_; }
    /// The connection has ended.
    void clear() {
        gets_.clear();
        put_status_ = UCS_OK;
        owed_ = 0;
    }

  private:
    struct Get {
        std::uint32_t op_id;
        MemoryRange from;
        std::uint64_t length;
        std::uint64_t offset;
        bool is_for_keys;
    };

    bool admit();
    ucs_status_t send_keys();
    void on_atomic(const RmaRequest& message);
    void reply(std::uint32_t op_id, ucs_status_t status, std::uint64_t before = 0);

    const RmaTargetPorts to_;
    ucs_status_t put_status_ = UCS_OK;  // the first failure of the put whose parts come
    std::size_t owed_ = 0;              // replies that have not gone
    Fifo<Get> gets_;
};

}  // namespace tagwire::proto
