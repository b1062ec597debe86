// SPDX-License-Identifier: BSD-3-Clause
// Rendezvous that software carries out: it reads the data from the sender's memory, then sends a
// FIN.
//
//   start() -> reads of at most message_max bytes -> FIN -> the receive is complete
//       '--> waiting for room -- step_all() --^
//
// Threads: owner of the interface.
// Invariant: no FIN follows a read that failed, because its endpoint fails, too.
#pragma once

#include <infiniband/tm_types.h>

#include <cstddef>
#include <cstdint>

#include "ucs/memory/mpool.hpp"
#include "ucs/memory/reserve.hpp"
#include "uct/ib/message_ep.hpp"

namespace tagwire::ib {

class MessageReceiver;

/// A rendezvous whose data software reads.
struct RndvRead {
    SoftReceive* receive;
    MessageEp* ep;
    uct_tag_t tag;
    std::uint64_t remote_addr;
    std::size_t length;  // that the sender announced
    std::size_t wanted;  // that are read: at most the receive's capacity
    std::size_t asked;   // by requests so far
    std::uint32_t rkey;
    std::uint32_t id;    // of the sender's operation, big endian
    unsigned under_way;  // requests
    ucs_status_t status;
};

class RndvReads {
  public:
    explicit RndvReads(MessageReceiver& owner) : owner_(owner) {}
    ucs_status_t init();

    void start(MessageEp& ep, SoftReceive& receive, uct_tag_t tag, const ibv_tmh& head,
               const ibv_rvh& from);
    /// A request of it has ended.
    void part_done(RndvRead& read, ucs_status_t status);
    /// Continues reads that wait for room in a send queue. Returns how many.
    unsigned step_all();
    /// Ends reads of a failed endpoint that wait.
    void end_all(MessageEp& ep);
    [[nodiscard]] unsigned under_way() const { return under_way_; }
    [[nodiscard]] bool has_waiting() const { return !waiting_.empty(); }

  private:
    /// False: no room now.
    bool step(RndvRead& read);
    bool tell_end(const RndvRead& read);
    void finish(RndvRead& read);

    MessageReceiver& owner_;
    ucs::ObjectPool<RndvRead> pool_;
    ucs::ReserveVector<RndvRead*> waiting_;
    unsigned under_way_ = 0;
};

}  // namespace tagwire::ib
