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

#include "protocols/index/fifo.hpp"
#include "protocols/wire/rma_messages.hpp"

namespace tagwire::proto {

class Endpoint;

class RmaTarget {
  public:
    explicit RmaTarget(Endpoint& ep) : ep_(ep) {}
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

    Endpoint& ep_;
    ucs_status_t put_status_ = UCS_OK;  // the first failure of the put whose parts come
    std::size_t owed_ = 0;              // replies that have not gone
    Fifo<Get> gets_;
};

}  // namespace tagwire::proto
