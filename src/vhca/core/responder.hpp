// SPDX-License-Identifier: BSD-3-Clause
// The receiving half of a queue pair: executes requests and answers them (RC).
//
// Answers leave in the order of the requests: first the data of reads and atomics (data_, a ring as
// long as the peer may have outstanding; entries stay after they were sent, for a peer that asks
// again), then one acknowledgement for everything else. Receiving only notes what is to be
// answered, so a burst is acknowledged once.
#pragma once

#include <cstdint>
#include <memory>

#include "vhca/core/objects.hpp"
#include "vhca/core/packet.hpp"
#include "vhca/core/receive_queue.hpp"
#include "vhca/core/tm_header.hpp"

namespace tagwire::vhca {

class QueuePair;
class CompletionQueue;
struct Cqe;
struct TagEntry;

class Responder {
  public:
    explicit Responder(QueuePair& qp) : qp_(qp) {}

    int allocate();
    void reset();
    /// Ready to receive, from this number on.
    void start(std::uint32_t psn);
    /// Number of reads and atomics that the peer may have outstanding. ENOMEM is possible.
    int set_data_requests_max(std::uint32_t count);
    int post(const RecvWork& work) { return receives_->post(work); }
    /// Receives that are posted or being filled complete with WR_FLUSH_ERR.
    void flush();
    void drop_answers();

    void receive(const Packet& packet, Route from);
    /// As receive(), of a reliable transport; the opcode is that of RC.
    void receive_reliable(const Packet& packet, Route from);
    /// DC: the message under way will never be whole. Its receive goes back to the SRQ; a tagged
    /// one fails.
    void abandon();
    /// Sends answers. False: stopped by the wire or the budget.
    bool transmit();

  private:
    enum class Message : std::uint8_t { kNone, kSend, kWrite };
    enum class Verdict : std::uint8_t {
        kDone,
        kNotReady,  // no receive is posted
        kInvalid,   // the peer asked for what is not possible
        kAccess,    // a key does not open
        kReceiveTooShort,
        kReceiveFault,  // a key of the receive does not open
    };
    /// The message to a tag-matching SRQ that is under way, and where it goes.
    struct TagMessage {
        TagEntry* entry = nullptr;  // it matched this one
        std::uint64_t tag = 0;
        std::uint32_t context = 0;
        bool has_tag = false;
        bool is_rendezvous = false;
        QueuePair* reader = nullptr;  // that gets the data
        RendezvousRequest request{};  // of a rendezvous
    };
    /// A read or atomic that was asked for.
    struct DataRequest {
        std::uint64_t psn;
        std::uint64_t address;
        std::uint64_t swap_add, compare;
        std::uint64_t original;  // atomic: the result
        std::uint32_t packets;
        std::uint32_t first;  // packet that this answer begins with
        std::uint32_t next;   // packet to be sent next
        std::uint32_t length;
        std::uint32_t rkey;
        Opcode opcode;
        bool is_active;     // has packets to be sent
        bool is_executed;   // atomic
        bool was_answered;  // once, in full
    };

    // responder.cc
    void receive_uc(const Packet& packet, Route from);
    void receive_ud(const Packet& packet, Route from);
    [[nodiscard]] Verdict execute(const Packet& packet, Route from);
    [[nodiscard]] bool is_well_formed(const Packet& packet) const;
    [[nodiscard]] Verdict execute_send(const Packet& packet, Route from);
    [[nodiscard]] Verdict fill_receive(const Packet& packet, Route from);
    [[nodiscard]] Verdict execute_write(const Packet& packet, Route from);
    [[nodiscard]] bool take_receive();
    [[nodiscard]] bool goes_into_cqe(const Packet& packet) const;
    void complete_receive(ibv_wc_status status, const Packet* packet, Route from,
                          std::span<const std::byte> data = {});
    void fail_message(ibv_wc_status status, Route from);
    void describe(Cqe& cqe, const Packet& packet, Route from) const;
    void refuse(Verdict verdict, Route from);

    // responder_tags.cc
    [[nodiscard]] Verdict execute_tagged(const Packet& packet, Route from);
    [[nodiscard]] Verdict start_tagged(const Packet& packet);
    [[nodiscard]] Verdict match(const Packet& packet);
    [[nodiscard]] Verdict fill_entry(const Packet& packet, Route from);
    [[nodiscard]] Verdict start_rendezvous(const Packet& packet, Route from);
    [[nodiscard]] Verdict leave_to_software(const Packet& packet, Route from);
    void complete_match(const Packet& packet, Route from, unsigned flags, ibv_wc_status status);
    void fail_tagged(ibv_wc_status status, Route from);
    void complete_untagged(Cqe& cqe);
    void drop_tagged();

    // responder_data.cc
    void receive_duplicate(const Packet& packet);
    [[nodiscard]] Verdict execute_read(const Packet& packet);
    [[nodiscard]] Verdict execute_atomic(const Packet& packet);
    [[nodiscard]] bool perform(DataRequest& request);
    [[nodiscard]] DataRequest* new_data_request(const Packet& packet, std::uint32_t packets);
    [[nodiscard]] DataRequest* oldest_active();
    void fail_data(const DataRequest& request);
    void note_answered(DataRequest& request);
    bool transmit_data(DataRequest& request);
    bool transmit_read(DataRequest& request);
    bool transmit_atomic(DataRequest& request);
    bool transmit_answer();
    void answer(std::uint8_t syndrome, std::uint64_t psn);
    void commit(const std::byte* start, const std::byte* end);

    QueuePair& qp_;
    ReceiveQueue* receives_ = nullptr;  // own or of the SRQ
    std::unique_ptr<ReceiveQueue> own_receives_;
    const Pd* receive_pd_ = nullptr;
    CompletionQueue* cq_ = nullptr;

    std::uint64_t expected_ = 0;  // sequence number of the next request packet
    std::uint32_t msn_ = 0;       // messages completed
    Message message_ = Message::kNone;
    bool is_nak_sent_ = false;  // silent until the expected packet comes
    bool has_answer_ = false;
    std::uint8_t syndrome_ = kAckSyndrome;
    std::uint64_t answer_psn_ = 0;

    std::uint32_t receive_ = ReceiveQueue::kNone;  // being filled
    std::uint64_t offset_ = 0;                     // bytes of the message that arrived
    std::uint64_t write_address_ = 0;
    std::uint32_t write_left_ = 0, write_key_ = 0;
    TagMessage tagged_;

    std::unique_ptr<DataRequest[]> data_;
    std::uint32_t data_max_ = 0, data_head_ = 0, data_active_ = 0;
};

}  // namespace tagwire::vhca
