// SPDX-License-Identifier: BSD-3-Clause
// A reply queue holds the replies of a responder to its peer (RC).
//
// Replies leave in the order of the requests: first the data of reads and atomics, then one
// acknowledgement for everything else. Receiving only notes what is to be replied, so a burst is
// acknowledged once.
//
// Reads and atomics stand in a ring of as many entries as the peer may have outstanding:
//
//   added (active) ---> packets are sent ---> replied, kept for a peer that asks again
//                            ^---- repeat() --------'
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "vhca/core/packet.hpp"

namespace tagwire::vhca {

class QueuePair;

class ReplyQueue {
  public:
    explicit ReplyQueue(QueuePair& qp) : qp_(qp) {}

    /// Number of reads and atomics that the peer may have outstanding. ENOMEM is possible.
    int set_requests_max(std::uint32_t count);
    void reset();
    /// Nothing that waits is sent.
    void drop();

    /// The acknowledgements count the messages that were completed.
    void count_message() { msn_ = (msn_ + 1) & kPsnMask; }
    /// One acknowledgement waits at a time: the youngest.
    void acknowledge(std::uint8_t syndrome, std::uint64_t psn);
    [[nodiscard]] bool has_acknowledgement() const { return has_ack_; }
    [[nodiscard]] bool has_nak() const { return has_ack_ && syndrome_ != kAckSyndrome; }

    /// A read or atomic that was checked, with its sequence numbers. False: the peer has more
    /// outstanding than it may.
    [[nodiscard]] bool add(const Packet& packet, std::uint64_t psn, std::uint32_t packets);
    /// The peer asks again for the data from `psn` on.
    void repeat(const Packet& packet, std::uint64_t psn);

    /// Sends replies. False: stopped by the wire or the budget.
    bool transmit();

  private:
    /// A read or atomic that was asked for.
    struct DataRequest {
        std::uint64_t psn;
        std::uint64_t address;
        std::uint64_t swap_add, compare;
        std::uint64_t original;  // atomic: the result
        std::uint32_t packets;
        std::uint32_t first;  // packet that this reply begins with
        std::uint32_t next;   // packet to be sent next
        std::uint32_t length;
        std::uint32_t rkey;
        Opcode opcode;
        bool is_active;    // has packets to be sent
        bool is_executed;  // atomic
        bool was_replied;  // once, in full
    };

    [[nodiscard]] DataRequest* oldest_active();
    [[nodiscard]] bool execute(DataRequest& atomic);
    void fail(const DataRequest& request);
    void note_replied(DataRequest& request);
    bool transmit_read(DataRequest& request);
    bool transmit_atomic(DataRequest& request);
    bool transmit_acknowledgement();
    void commit(const std::byte* start, const std::byte* end);

    QueuePair& qp_;
    std::unique_ptr<DataRequest[]> ring_;
    std::uint32_t size_ = 0, head_ = 0, active_ = 0;
    std::uint32_t msn_ = 0;  // messages completed
    bool has_ack_ = false;
    std::uint8_t syndrome_ = kAckSyndrome;
    std::uint64_t ack_psn_ = 0;
};

}  // namespace tagwire::vhca
