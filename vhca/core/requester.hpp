// SPDX-License-Identifier: BSD-3-Clause
// The sending half of a queue pair: requests go out as packets; acknowledgements, read data and
// atomic results come back.
//
// Requests of the queue (send_queue.hpp), by index:
//     done <= cursor_ <= rung
//     [done, cursor_)  sent (RC: not all acknowledged)
//     [cursor_, rung)  to be sent, from packet cursor_packet_ of cursor_ on
// Packets, by sequence number in 64 bits (the wire has the lower 24):
//     una_ <= the cursor's packet <= sent_ <= next number of the queue
//     una_ is the oldest that is not acknowledged, and belongs to the queue's oldest request; sent_
//     is one past the highest that was ever sent. Going back sets the cursor to una_.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "vhca/core/initiator_session.hpp"
#include "vhca/core/objects.hpp"
#include "vhca/core/packet.hpp"
#include "vhca/core/read_placement.hpp"
#include "vhca/core/retry_timer.hpp"
#include "vhca/core/send_queue.hpp"

namespace tagwire::vhca {

class QueuePair;

class Requester {
  public:
    explicit Requester(QueuePair& qp) : qp_(qp), queue_(qp), timer_(qp), session_(qp) {}

    [[nodiscard]] SendQueue& queue() { return queue_; }
    /// The session of a DCI with a target.
    [[nodiscard]] InitiatorSession& session() { return session_; }

    void reset();
    /// The first packet gets this number.
    void start(std::uint32_t psn);
    /// Completes everything that is left with WR_FLUSH_ERR, in order.
    void flush();

    /// Sends what order, window and peer allow. False: stopped by the wire or the budget.
    bool transmit();
    /// A response of the peer (RC).
    void receive(const Packet& packet);
    Time run_timer();
    [[nodiscard]] bool is_idle() const { return queue_.done() == cursor_ && cursor_packet_ == 0; }

    // ---- DC
    void receive_refusal(const Packet& packet);
    /// A target asks whether a session is still of use; `is_current`: it is ours.
    void receive_inquiry(Route from, const Packet& packet, bool is_current);
    /// The newest request is for this target; of one without requests: the last one was.
    [[nodiscard]] bool goes_to(Route route, std::uint32_t qpn);
    /// The oldest request of a stream was overwritten: it fails.
    void fail_overwritten();

  private:
    enum class Step : std::uint8_t { kSent, kWaits, kRefused };

    // requester.cc: the way out
    Step step();
    Step pass_nop();
    void end_nops();
    [[nodiscard]] bool may_start(SendRequest& request);
    [[nodiscard]] bool takes_care(const SendRequest& request);
    [[nodiscard]] bool is_window_open(const SendRequest& request, std::uint64_t psn) const;
    [[nodiscard]] bool is_data_accessible(SendRequest& request) const;
    Step send_data(SendRequest& request, std::uint64_t psn);
    Step ask_for_data(SendRequest& request, std::uint64_t psn);
    [[nodiscard]] std::uint8_t outstanding_with(std::uint64_t psn) const;
    void commit(Route to, const std::byte* start, const std::byte* end);
    void note_sent(SendRequest& request, std::uint64_t psn, std::uint32_t packets);
    void fault(ibv_wc_status status);

    // requester_responses.cc: the way back
    bool acknowledge(std::uint64_t end);
    void receive_ack(const Packet& packet, std::uint64_t psn);
    void receive_data(const Packet& packet, std::uint64_t psn);
    [[nodiscard]] ibv_wc_status take_data(SendRequest& request, const Packet& packet,
                                          std::span<const std::byte> data);
    [[nodiscard]] bool place(SendRequest& request, std::uint64_t offset, const Packet& packet);
    void receive_nak(std::uint8_t code);
    void receive_rnr(std::uint8_t timer_code);
    void note_progress();
    void go_back();
    void retry();
    void fail_oldest(ibv_wc_status status);

    QueuePair& qp_;
    SendQueue queue_;
    RetryTimer timer_;
    InitiatorSession session_;

    std::uint32_t cursor_ = 0, cursor_packet_ = 0;
    std::uint64_t una_ = 0, sent_ = 0;
    std::uint64_t implied_ = 0;             // una_ at which a missing response was asked for again
    std::uint32_t data_requests_ = 0;       // reads and atomics on their way
    std::uint64_t data_packets_ = 0;        // their sequence numbers that are not answered
    ibv_wc_status fault_ = IBV_WC_SUCCESS;  // of the request at the cursor; it is not sent
    std::unique_ptr<ReadPlacement> placement_;  // where reads are shuffled
};

}  // namespace tagwire::vhca
