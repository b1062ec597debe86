// SPDX-License-Identifier: BSD-3-Clause
// A send queue holds the posted requests of a queue pair and completes them in order.
//
// Requests, by index (they run free and are masked on use):
//     free_ <= done_ <= rung_ <= head_
//     [free_, done_)  completed, their slots come back when a later completion is polled
//     [done_, rung_)  posted: the requester sends them
//     [rung_, head_)  enqueued, the doorbell did not ring
// A request takes its sequence numbers when it is enqueued; next_psn_ is the next one.
//
// The queue of a queue pair with a tag-matching SRQ belongs to the device, see
// send_queue_rendezvous.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "vhca/core/objects.hpp"
#include "vhca/core/tm_header.hpp"

namespace tagwire::vhca {

class QueuePair;

/// A rendezvous that the device carries out: it reads the data, then sends the FIN.
struct Rendezvous {
    std::uint32_t handle = 0;  // of the receive that it fills
    std::uint32_t length = 0;
    bool is_solicited = false;
};

/// A posted request; its sges or inline data follow it in memory.
struct alignas(16) SendRequest {
    std::uint64_t wr_id;
    std::uint64_t first_psn;
    std::uint64_t remote_addr;
    std::uint64_t compare_add, swap;
    Route route;
    std::uint32_t packets;  // sequence numbers that it takes
    std::uint32_t length;
    std::uint32_t imm, rkey, remote_qpn, remote_qkey;
    ibv_wr_opcode opcode;
    std::uint32_t flags;
    std::uint16_t sge_count;
    bool needs_care;        // refused, or DC
    bool is_nop;            // takes no sequence number
    bool is_owned;          // by the device: of a rendezvous
    ibv_wc_status refused;  // found at posting, reported in its turn
    std::uint64_t dc_key;
    Rendezvous rendezvous;     // that the device sends this for
    std::uint32_t ring_place;  // of a stream: in the ring of its DCI, free running

    [[nodiscard]] std::byte* data() { return reinterpret_cast<std::byte*>(this + 1); }
    [[nodiscard]] std::span<ibv_sge> sges() {
        return {reinterpret_cast<ibv_sge*>(this + 1), sge_count};
    }
    [[nodiscard]] bool is_read() const { return opcode == IBV_WR_RDMA_READ; }
    [[nodiscard]] bool is_atomic() const {
        return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
    }
    [[nodiscard]] bool wants_data() const { return is_read() || is_atomic(); }
    [[nodiscard]] bool is_inline() const { return (flags & IBV_SEND_INLINE) != 0; }
    [[nodiscard]] bool has_fence() const { return (flags & IBV_SEND_FENCE) != 0; }
    [[nodiscard]] std::uint64_t end_psn() const { return first_psn + packets; }
};
static_assert(sizeof(SendRequest) % 16 == 0);

class SendQueue {
  public:
    explicit SendQueue(QueuePair& qp) : qp_(qp) {}

    int allocate();
    /// Drops all requests without completions.
    void reset();
    /// The first packet gets this number.
    void start(std::uint64_t psn) { next_psn_ = psn; }

    // ---- Posting
    /// The checks of ibv_post_send(3), then a slot of the queue.
    int enqueue(const SendWork& work);
    void ring() { rung_ = head_; }
    void cancel_enqueued();
    /// Polled was the completion of the request before `index`.
    void reclaim(std::uint32_t index) {
        if (static_cast<std::int32_t>(index - free_) > 0)
            free_ = index;
    }
    /// Slots that are taken.
    [[nodiscard]] std::uint32_t used() const { return head_ - free_; }
    [[nodiscard]] std::uint32_t enqueued() const { return head_ - rung_; }
    [[nodiscard]] bool has_enqueued() const { return rung_ != head_; }

    // ---- Rendezvous that the device carries out
    [[nodiscard]] bool has_room_for_rendezvous();
    /// There must be room; `request` is the message that matched, `to` has room for the data.
    void enqueue_rendezvous(const Rendezvous& rendezvous, const ibv_sge& to, Route from,
                            const RendezvousRequest& request);

    // ---- Sending
    [[nodiscard]] SendRequest& at(std::uint32_t index) {
        return *reinterpret_cast<SendRequest*>(memory_.get() + (index & mask_) * stride_);
    }
    [[nodiscard]] SendRequest& oldest() { return at(done_); }
    [[nodiscard]] SendRequest& newest() { return at(head_ - 1); }
    /// Index of the oldest request that is not done.
    [[nodiscard]] std::uint32_t done() const { return done_; }
    /// Index behind the last request that the doorbell rang for.
    [[nodiscard]] std::uint32_t rung() const { return rung_; }
    [[nodiscard]] bool has_undone() const { return done_ != head_; }
    /// Number of the first packet that the doorbell did not ring for.
    [[nodiscard]] std::uint64_t unrung_psn() {
        return has_enqueued() ? at(rung_).first_psn : next_psn_;
    }
    /// The domain of the request's local memory.
    [[nodiscard]] const Pd* pd_of(const SendRequest& request) const {
        return request.is_owned ? owned_pd_ : pd_;
    }

    // ---- Completing
    [[nodiscard]] bool goes_into_cqe(const SendRequest& request) const;
    void complete_oldest(ibv_wc_status status, std::span<const std::byte> data = {});

  private:
    [[nodiscard]] int check(const SendWork& work) const;
    [[nodiscard]] ibv_wc_status find_fault(const SendRequest& request) const;
    void fill(SendRequest& request, const SendWork& work);
    [[nodiscard]] bool is_signaled(const SendRequest& request) const;

    bool grow(std::uint32_t slots);
    void enqueue_owned(const SendWork& work, const Rendezvous& rendezvous);
    void complete_owned(const SendRequest& request, ibv_wc_status status);
    void drop_owned();

    QueuePair& qp_;
    const Pd* pd_ = nullptr;        // of the program's requests
    const Pd* owned_pd_ = nullptr;  // of the device's own
    std::unique_ptr<std::byte[]> memory_;
    std::size_t stride_ = 0;
    std::uint32_t mask_ = 0;
    std::uint32_t free_ = 0, done_ = 0, rung_ = 0, head_ = 0;
    std::uint64_t next_psn_ = 0;
};

}  // namespace tagwire::vhca
