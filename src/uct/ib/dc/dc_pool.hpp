// SPDX-License-Identifier: BSD-3-Clause
// What endpoints post to: channels of initiators (DCIs). A channel is a DCI, or a stream of one
// where the device has streams: an order of requests that goes on by itself.
//
//   owned (dcs, dcs_quota)    idle <-> of one endpoint, until all its requests are acknowledged
//   shared (rand, hash)       of each endpoint that was given it, for good
//
// Threads: owner of the interface.
// Invariants
//  (1) Completions of a channel come in order, and one counts for all requests before it.
//  (2) A shared channel keeps each request that is not acknowledged, as it was posted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ucs/datastruct/queue.hpp"
#include "uct/ib/dc/dc_verbs.hpp"
#include "uct/ib/message_ep.hpp"
#include "uct/ib/send_queue.hpp"

namespace tagwire::dc {

class DcEp;

/// A request that is not acknowledged: what it takes to post it again.
struct SentRequest {
    DcEp* ep;
    ibv_send_wr request;           // alone; its list is `pieces`
    ibv_sge pieces[ib::kSgesMax];  // inline data: one piece, in `data`
    std::byte data[ib::kInlineBytesMax];
};

/// The requests of a shared channel, by their number.
class SentRing {
  public:
    explicit SentRing(std::uint32_t depth);

    /// Request number `sn` of the channel, which takes the place of number sn - depth.
    void keep(std::uint32_t sn, DcEp& ep, const ibv_send_wr& request);
    /// Number `from` becomes number `to`, which is not larger.
    void move(std::uint32_t from, std::uint32_t to);
    [[nodiscard]] SentRequest& at(std::uint32_t sn) { return requests_[sn & mask_]; }
    [[nodiscard]] const SentRequest& at(std::uint32_t sn) const { return requests_[sn & mask_]; }

  private:
    std::uint32_t mask_;
    std::vector<SentRequest> requests_;
};

struct Dci {
    Initiator initiator;
    unsigned channels = 0;  // that were made of it
};

struct Channel : ib::SendQueue {
    Dci* dci = nullptr;
    ucs::ListLink<Channel> idle_link;
    std::uint16_t stream = 0;
    std::uint16_t index = 0;       // in the pool
    std::uint32_t turn_begin = 0;  // owned: requests posted before the owner's turn
    bool was_granted = false;      // owned: to one that waited, whose request has not come yet
    std::uint32_t flushed = 0;  // shared and broken: the newest request that is known to have ended
    std::unique_ptr<SentRing> sent;  // shared
};

}  // namespace tagwire::dc
