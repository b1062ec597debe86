// SPDX-License-Identifier: BSD-3-Clause
// The sending half of a queue pair: requests go out as packets, acknowledgements, read data and
// atomic results come back, completions are made in order.
//
// Requests, by index (they run free and are masked on use):
//     free_ <= done_ <= cursor_ <= rung_ <= head_
//     [free_, done_)    completed, their places come back when a later completion is polled
//     [done_, cursor_)  sent (RC: not all acknowledged)
//     [cursor_, rung_)  to be sent, from packet cursor_packet_ of cursor_ on
//     [rung_, head_)    enqueued, the doorbell did not ring
// Packets, by sequence number in 64 bits (the wire has the lower 24):
//     una_ <= the cursor's packet <= sent_ <= next_psn_
//     una_ is the oldest that is not acknowledged, and belongs to done_; sent_ is one past the
//     highest that was ever sent. Going back sets the cursor to una_.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "vhca/core/objects.hpp"
#include "vhca/core/packet.hpp"
#include "vhca/core/read_placement.hpp"
#include "vhca/core/responder.hpp"

namespace tagwire::vhca {

class QueuePair;

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
    ibv_wc_status refused;  // found at posting, told in its turn
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
};
static_assert(sizeof(SendRequest) % 16 == 0);

class Requester {
  public:
    explicit Requester(QueuePair& qp) : qp_(qp) {}

    int allocate();
    /// The checks of ibv_post_send(3), then a place in the queue.
    int enqueue(const SendWork& work);
    void ring() { rung_ = head_; }
    void cancel_enqueued();
    /// Polled was the completion of the request before `index`.
    void reclaim(std::uint32_t index) {
        if (static_cast<std::int32_t>(index - free_) > 0)
            free_ = index;
    }

    void reset();
    /// The first packet gets this number.
    void start(std::uint32_t psn);
    /// Completes everything that is left with WR_FLUSH_ERR, in order.
    void flush();

    /// The device's own sends, for a tag-matching SRQ. There must be room; `request` is the message
    /// that matched, `to` has room for the data.
    [[nodiscard]] bool has_room_for_rendezvous();
    void enqueue_rendezvous(const Rendezvous& rendezvous, const ibv_sge& to, Route from,
                            const RendezvousRequest& request);

    /// Sends what order, window and peer allow. False: stopped by the wire or the budget.
    bool transmit();
    /// A response of the peer (RC).
    void receive(const Packet& packet);
    Time run_timer();

    // ---- DC: see requester_dc.cc
    void receive_refusal(const Packet& packet);
    /// A target asks whether a session is still of use; `is_current`: it is ours.
    void receive_inquiry(Route from, const Packet& packet, bool is_current);
    void note_answered() { dc_.is_answered = true; }
    /// Tells the target, if there is one and the wire has room.
    void disconnect();
    /// Whom the newest request is for; of one without requests: whom the last one was for.
    [[nodiscard]] bool goes_to(Route route, std::uint32_t qpn);
    /// Places that are taken.
    [[nodiscard]] std::uint32_t used() const { return head_ - free_; }
    [[nodiscard]] bool has_enqueued() const { return rung_ != head_; }
    [[nodiscard]] std::uint32_t enqueued() const { return head_ - rung_; }

    // ---- A stream of a DCI: see dc_initiator.cc
    /// The newest request lies there.
    void set_ring_place(std::uint32_t place) { at(head_ - 1).ring_place = place; }
    [[nodiscard]] std::uint32_t ring_place(std::uint32_t index) { return at(index).ring_place; }
    /// Where the device still reads, or will: the oldest request that has not ended.
    [[nodiscard]] bool has_unended() const { return done_ != head_; }
    [[nodiscard]] std::uint32_t oldest_ring_place() { return at(done_).ring_place; }
    /// The oldest request was overwritten: it fails.
    void fail_overwritten();

    [[nodiscard]] bool is_idle() const { return done_ == cursor_ && cursor_packet_ == 0; }

  private:
    enum class Step : std::uint8_t { kSent, kWaits, kRefused };
    // Why nothing is sent.
    static constexpr std::uint8_t kPaused = 1;    // told RNR; until deadline_
    static constexpr std::uint8_t kConnects = 2;  // DC: before the session is announced
    struct DcSession {
        std::uint64_t key = 0;
        Time began = 0;
        bool is_open = false;
        bool is_answered = false;  // the target knows it
    };

    [[nodiscard]] SendRequest& at(std::uint32_t index) {
        return *reinterpret_cast<SendRequest*>(memory_.get() + (index & mask_) * stride_);
    }
    [[nodiscard]] const Pd* pd_of(const SendRequest& request) const {
        return request.is_owned ? owned_pd_ : pd_;
    }
    [[nodiscard]] int check(const SendWork& work) const;
    [[nodiscard]] ibv_wc_status find_fault(const SendRequest& request) const;
    void fill(SendRequest& request, const SendWork& work);

    // requester_rendezvous.cc: requests of the device
    static constexpr std::uint64_t kTells = 1;  // wr_id: its end is the end of the rendezvous
    bool grow_owned(std::uint32_t places);
    void enqueue_owned(const SendWork& work, const Rendezvous& rendezvous);
    void complete_owned(const SendRequest& request, ibv_wc_status status);
    void drop_owned();

    // requester.cc: the way out
    Step step();
    Step pass_nop();
    void end_nops();
    [[nodiscard]] bool may_start(SendRequest& request);
    [[nodiscard]] bool is_window_open(const SendRequest& request, std::uint64_t psn) const;
    [[nodiscard]] bool is_data_accessible(SendRequest& request) const;
    Step send_data(SendRequest& request, std::uint64_t psn);
    Step send_read(SendRequest& request, std::uint64_t psn);
    Step send_atomic(SendRequest& request, std::uint64_t psn);
    [[nodiscard]] std::uint8_t outstanding_with(std::uint64_t psn) const;
    void commit(Route to, const std::byte* start, const std::byte* end);
    void note_sent(SendRequest& request, std::uint64_t psn, std::uint32_t packets);
    void fault(ibv_wc_status status);

    // requester_dc.cc
    [[nodiscard]] bool takes_care(const SendRequest& request);
    [[nodiscard]] bool is_connected(const SendRequest& request);
    [[nodiscard]] bool send_connect();
    [[nodiscard]] bool may_connect_again() const;

    // requester_responses.cc: the way back
    bool acknowledge(std::uint64_t end);
    void receive_ack(const Packet& packet, std::uint64_t psn);
    void receive_data(const Packet& packet, std::uint64_t psn);
    [[nodiscard]] bool is_signaled(const SendRequest& request) const;
    [[nodiscard]] bool goes_into_cqe(const SendRequest& request) const;
    [[nodiscard]] ibv_wc_status take_data(SendRequest& request, const Packet& packet,
                                          std::span<const std::byte> data);
    [[nodiscard]] bool place(SendRequest& request, std::uint64_t offset, const Packet& packet);
    void receive_nak(std::uint8_t code);
    void receive_rnr(std::uint8_t timer_code);
    void note_progress();
    void go_back();
    void retry();
    void complete_oldest(ibv_wc_status status, std::span<const std::byte> data = {});
    void fail_oldest(ibv_wc_status status);
    [[nodiscard]] Time next_timeout() const;
    void arm_timer();

    QueuePair& qp_;
    const Pd* pd_ = nullptr;        // of local memory
    const Pd* owned_pd_ = nullptr;  // of that which the device's own requests are about
    std::unique_ptr<std::byte[]> memory_;
    std::size_t stride_ = 0;
    std::uint32_t mask_ = 0;

    std::uint32_t free_ = 0, done_ = 0, cursor_ = 0, rung_ = 0, head_ = 0;
    std::uint32_t cursor_packet_ = 0;
    std::uint64_t una_ = 0, sent_ = 0, next_psn_ = 0;
    std::uint64_t implied_ = 0;             // una_ at which a missing response was asked for again
    std::uint32_t data_requests_ = 0;       // reads and atomics on their way
    std::uint64_t data_packets_ = 0;        // their sequence numbers that are not answered
    ibv_wc_status fault_ = IBV_WC_SUCCESS;  // of the request at the cursor; it is not sent
    std::uint8_t retries_left_ = 0, rnr_retries_left_ = 0;
    std::uint8_t hold_ = 0;
    Time deadline_ = kNever;
    DcSession dc_;
    std::uint64_t handed_over_ = 0;             // to the wire when the deadline was set
    std::unique_ptr<ReadPlacement> placement_;  // where reads are shuffled
};

}  // namespace tagwire::vhca
