// SPDX-License-Identifier: BSD-3-Clause
// Completes operations: runs the program's callback when all requests of an operation have ended.
//
//   request ended -> finish() -+-> callback, the element goes back to its pool
//                              +-> a flush waits for older rendezvous: keep_flush()
//                              '-> late, while another endpoint is destroyed: finish_late()
//
// Threads: owner of the interface.
// Invariant: while an endpoint is destroyed no callback of another one runs.
#pragma once

#include <utility>

#include "ucs/memory/reserve.hpp"
#include "uct/ib/message_ep.hpp"
#include "uct/ib/rndv_reads.hpp"

namespace tagwire::ib {

class OpEnds {
  public:
    /// `has_work` is set when finish_late() has something to do.
    OpEnds(RndvReads& reads, bool& has_work) : reads_(reads), has_work_(has_work) {}

    /// The requests of `op` have ended; it is in no queue.
    void finish(SendOp& op, ucs_status_t status);

    // ---- Flushes wait for the rendezvous before them, too
    /// It ends when no rendezvous before it is under way; settle_flushes() looks.
    static void keep_flush(MessageEp& ep, SendOp& op);
    static void settle_flushes(MessageEp& ep);

    // ---- Ends that wait
    /// By the next call of progress, or when its endpoint is destroyed. It is in no queue.
    void finish_later(SendOp& op, ucs_status_t status);
    /// Null: of all.
    void finish_late(const MessageEp* of);
    [[nodiscard]] bool has_late() const { return !late_.empty(); }
    [[nodiscard]] bool has_late(const MessageEp& ep) const;
    /// Ends of all endpoints but `ep` wait from now on; null: nobody's. Returns the one before.
    MessageEp* put_off_others_than(MessageEp* ep) { return std::exchange(ending_, ep); }
    [[nodiscard]] bool puts_off() const { return ending_ != nullptr; }

  private:
    struct Late {
        SendOp* op;
        ucs_status_t status;
    };

    RndvReads& reads_;
    bool& has_work_;
    ucs::ReserveVector<Late> late_;
    MessageEp* ending_ = nullptr;  // the one that is destroyed
};

}  // namespace tagwire::ib
