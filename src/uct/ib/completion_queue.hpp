// SPDX-License-Identifier: BSD-3-Clause
// A completion queue: plain, or extended with the fields that tag matching reports for a message.
//
// Threads: owner of the interface.
// Invariants
//  (1) poll() gives completions in the order of the device, each once.
//  (2) arm() answers UCS_OK only when no completion was there at that moment and none is untold
//      since the last poll(); else UCS_ERR_BUSY, and the completions that it found are the next
//      that poll() gives. So a sleeper never sleeps over work.
//  (3) look_ahead() takes completions from the device that the next poll() gives, in their order.
//  (4) The fields of a completion that failed are undefined but wr_id, status and qp_num; all those
//      of IBV_WC_TM_RNDV_INCOMPLETE are there. Without its flag a field of an extended queue is
//      undefined, too.
#pragma once

#include <endian.h>
#include <infiniband/verbs.h>
#include <ucs/type/status.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "ucs/memory/reserve.hpp"
#include "uct/ib/ib_md.hpp"

namespace tagwire::ib {

struct Completion {
    std::uint64_t wr_id;
    ibv_wc_status status;
    ibv_wc_opcode opcode;
    std::uint32_t byte_len;
    std::uint32_t qp_num;
    unsigned flags;         // IBV_WC_x
    std::uint32_t imm;      // host order, with IBV_WC_WITH_IMM
    std::uint32_t src_qp;   // datagrams
    std::uint32_t app_ctx;  // host order; IBV_WC_TM_MATCH, from here on
    std::uint64_t tag;
};

class CompletionQueue {
  public:
    static constexpr unsigned kBatch = 16;

    CompletionQueue() = default;
    /// `channel` may be null: such a queue cannot be armed. `has_tags`: an extended queue.
    /// `context`: the mailbox of its asynchronous events.
    /// UCS_ERR_EXCEEDS_LIMIT (logged): more entries than the device has; UCS_ERR_NO_MEMORY,
    /// UCS_ERR_IO_ERROR.
    ucs_status_t open(const IbMd& md, unsigned entries, ibv_comp_channel* channel, bool has_tags,
                      void* context = nullptr);

    /// At most kBatch completions; they stay valid until the next call, be it of arm().
    [[gnu::always_inline]] unsigned poll(const Completion** completions_p) {
        *completions_p = batch_;
        if (has_stash_) [[unlikely]]
            return take_stash();
        newest_ = poll_device();
        return newest_;
    }

    /// Asks for an event on the channel for what comes next.
    ucs_status_t arm(bool solicited_only);

    /// For callers that must know now which completions came, even in the middle of a batch of
    /// poll(), which stays as it is. Allocates.
    void look_ahead();
    /// The completions that poll() or arm() took from the device last. The device is done with
    /// them (handles and places are given out again), while the caller may not have looked at them
    /// yet.
    [[nodiscard]] std::span<const Completion> newest() const { return {batch_, newest_}; }
    /// The completions that look_ahead() took since, which nobody has looked at.
    [[nodiscard]] std::span<const Completion> ahead() const { return ahead_; }

    [[nodiscard]] ibv_cq* get() const { return cq_.get(); }
    [[nodiscard]] unsigned entries() const { return entries_; }

  private:
    // Mostly there is nothing, and then nothing is called but the device.
    [[gnu::always_inline]] unsigned poll_device() {
        if (extended_ == nullptr) {
            const int count = ibv_poll_cq(cq_.get(), kBatch, plain_);
            return count == 0 ? 0 : take_plain(count);
        }
        ibv_cq_ex* const cq = extended_;
        ibv_poll_cq_attr attr{};
        const int error = ibv_start_poll(cq, &attr);
        if (error != 0) [[likely]]  // no ibv_end_poll() either
            return error == ENOENT ? 0 : poll_failed(error);
        read_extended(cq, batch_[0]);
        // One at a time, mostly.
        if (const int after = ibv_next_poll(cq); after != ENOENT) [[unlikely]]
            return take_more(after);
        ibv_end_poll(cq);
        return 1;
    }
    static void read_extended(ibv_cq_ex* cq, Completion& completion);
    unsigned take_stash();
    unsigned take_plain(int count);
    unsigned take_more(int error);
    [[gnu::cold]] static unsigned poll_failed(int error);

    OwnedCq cq_{nullptr, nullptr};
    ibv_cq_ex* extended_ = nullptr;
    unsigned entries_ = 0;
    bool has_stash_ = false;  // any of the next two
    unsigned stashed_ = 0;    // in the batch, untold
    ucs::ReserveVector<Completion> ahead_;
    unsigned newest_ = 0;  // in the batch
    Completion batch_[kBatch]{};
    ibv_wc plain_[kBatch];
};

// Each field costs a call, so only what the completion has is read.
[[gnu::always_inline]] inline void CompletionQueue::read_extended(ibv_cq_ex* cq,
                                                                  Completion& completion) {
    completion.wr_id = cq->wr_id;
    completion.status = cq->status;
    completion.qp_num = ibv_wc_read_qp_num(cq);
    // A rendezvous that does not fit was matched like any other.
    if (completion.status != IBV_WC_SUCCESS && completion.status != IBV_WC_TM_RNDV_INCOMPLETE)
        [[unlikely]] {
        completion.opcode = {};
        completion.flags = 0;
        return;
    }
    completion.opcode = ibv_wc_read_opcode(cq);
    completion.byte_len = ibv_wc_read_byte_len(cq);
    const unsigned flags = ibv_wc_read_wc_flags(cq);
    completion.flags = flags;
    if ((flags & IBV_WC_WITH_IMM) != 0)
        completion.imm = be32toh(ibv_wc_read_imm_data(cq));
    if ((flags & IBV_WC_TM_MATCH) != 0) {
        ibv_wc_tm_info info;
        ibv_wc_read_tm_info(cq, &info);
        completion.tag = info.tag;
        completion.app_ctx = info.priv;
    }
}

}  // namespace tagwire::ib
