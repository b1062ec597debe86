// SPDX-License-Identifier: BSD-3-Clause
// Rendezvous, both sides. The receiver moves the data:
//
//   sender                              receiver
//   state word = pending, kRndv ------> match, then
//                                         from the sender's arena: memcpy (kDirect)
//                                         otherwise: process_vm_readv, alone (kRead)
//               <----- kRndvHelp            or with the sender's help (kBoth, both_copy.hpp)
//               <----- kPull              not permitted: the sender sends the data (kPull)
//                                       state word: pending -> done by compare-and-swap; if that
//                                       fails the sender cancelled meanwhile, and the receive ends
//                                       with UCS_ERR_CANCELED
//   completion  <----- kRndvFin
#pragma once

#include "uct/sm/link.hpp"
#include "uct/sm/transfer.hpp"

namespace tagwire::sm {

class Rendezvous {
  public:
    explicit Rendezvous(SmIface& owner) : iface_(owner) {}

    // ---- Sender
    /// Null: no word or no operation is free.
    RndvOp* start(Link& link, SmEp* ep, uct_completion_t* comp);
    /// The operation ends with `status`.
    void drop(RndvOp& op, ucs_status_t status);
    void deliver_fin(Link& link, const RndvFinBody& fin);

    // ---- Receiver
    /// False: the message stays where it is.
    bool deliver(Link& link, Control control);
    bool deliver_request(Link& link, Control control);
    /// One step of at most kCopyStepBytes. True: something moved.
    bool step_receive(Op& op);
    /// The peer's memory cannot be read any more: the peer sends all of it.
    void pull_instead(Op& op);
    void finish_receive(Op& op, ucs_status_t status);

  private:
    void start_receive(Link& link, const RndvBody& body, bool in_arena, PostedEntry& entry);
    /// By process_vm_readv, alone. True: something moved.
    bool step_read(Op& op);

    SmIface& iface_;
};

}  // namespace tagwire::sm
