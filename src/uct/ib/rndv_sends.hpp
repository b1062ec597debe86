// SPDX-License-Identifier: BSD-3-Clause
// Rendezvous sends of an interface: announced to the peer, not yet read by it. The receiver's FIN
// names one by its id.
//
// Threads: owner of the interface.
// Invariants
//  (1) At most `sends_max` are under way, and each has a receive buffer for the message that ends
//      it.
//  (2) The sends of an endpoint are a list with the oldest first, whose serials grow.
#pragma once

#include <cstdint>
#include <memory>

#include "ucs/memory/reserve.hpp"
#include "uct/ib/message_ep.hpp"
#include "uct/ib/receive_queue.hpp"

namespace tagwire::ib {

/// The handle that tag_rndv_zcopy gives.
struct RndvSend : ucs::FromReserve {
    MessageEp* ep;  // null: free
    uct_completion_t* comp;
    RndvSend* next;  // of the endpoint; of the free ones
    RndvSend* prev;  // the oldest's is the newest
    std::uint64_t serial;
    std::uint32_t id;  // what travels as app_ctx: index and generation
};

class RndvSends {
  public:
    void init(std::uint64_t sends_max);

    [[nodiscard]] bool has_room() const { return under_way_ < sends_max_; }
    [[nodiscard]] unsigned under_way() const { return under_way_; }
    /// Sends that began later have larger serials.
    [[nodiscard]] std::uint64_t newest_serial() const { return serial_; }
    /// Null: as many as there may be are under way, or `fins` has no buffer for its end.
    RndvSend* begin(MessageEp& ep, uct_completion_t* comp, ReceiveQueue& fins);
    /// The send is over for us, and a FIN that comes late finds nothing.
    void drop(RndvSend& send);
    /// Null: cancelled meanwhile, or never ours.
    [[nodiscard]] RndvSend* find(std::uint32_t id) const;
    /// All of the endpoint end with `status`.
    void end_all(MessageEp& ep, ucs_status_t status);

  private:
    ucs::ReserveVector<std::unique_ptr<RndvSend>> sends_;
    RndvSend* free_ = nullptr;
    // The lowest bits of an id, as many as RNDV_MAX needs; the generation has the others. An end
    // that comes late is that of a rendezvous which was cancelled while its receiver read, so it
    // comes at the latest when that read has ended or its connection failed. To be taken for
    // another's it would have to meet the same generation of the same place again, of 2^22 with
    // 1024 rendezvous: of these each takes a request and its acknowledgement, microseconds at
    // least, and over rc only those of the same endpoint count.
    unsigned index_bits_ = 16;
    std::uint64_t sends_max_ = 0;
    unsigned under_way_ = 0;
    std::uint64_t serial_ = 0;
};

}  // namespace tagwire::ib
