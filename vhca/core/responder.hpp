// SPDX-License-Identifier: BSD-3-Clause
// The receiving half of a queue pair: accepts requests in their order, executes them, and leaves
// the replies to its ReplyQueue (RC).
//
// expected_ is the number of the next request packet. One below it is a duplicate: its reply is
// repeated. One above it is refused, once: a packet was lost.
#pragma once

#include <cstdint>
#include <memory>

#include "vhca/core/objects.hpp"
#include "vhca/core/packet.hpp"
#include "vhca/core/receive_queue.hpp"
#include "vhca/core/reply_queue.hpp"
#include "vhca/core/tm_header.hpp"

namespace tagwire::vhca {

class QueuePair;
class CompletionQueue;
struct Cqe;
struct TagEntry;

class Responder {
  public:
    explicit Responder(QueuePair& qp) : qp_(qp), replies_(qp) {}

    [[nodiscard]] ReplyQueue& replies() { return replies_; }

    int allocate();
    void reset();
    /// Ready to receive, from this number on.
    void start(std::uint32_t psn);
    int post(const RecvWork& work) { return receives_->post(work); }
    /// Receives that are posted or being filled complete with WR_FLUSH_ERR.
    void flush();

    void receive(const Packet& packet, Route from);
    /// As receive(), of a reliable transport; the opcode is that of RC.
    void receive_reliable(const Packet& packet, Route from);
    /// DC: the message under way will never be whole. Its receive goes back to the SRQ; a tagged
    /// one fails.
    void abandon();

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
    /// All zeros between messages, and while one without a tag comes.
    struct TagMessage {
        TagEntry* entry = nullptr;  // it matched this one
        std::uint64_t tag = 0;
        std::uint32_t context = 0;
        bool has_tag = false;
        bool is_rendezvous = false;
        QueuePair* reader = nullptr;  // that gets the data
        RendezvousRequest request{};  // of a rendezvous
    };

    // responder.cc
    void receive_duplicate(const Packet& packet);
    void receive_uc(const Packet& packet, Route from);
    void receive_ud(const Packet& packet, Route from);
    [[nodiscard]] Verdict execute(const Packet& packet, Route from);
    [[nodiscard]] bool is_well_formed(const Packet& packet) const;
    [[nodiscard]] Verdict execute_send(const Packet& packet, Route from);
    [[nodiscard]] Verdict fill_receive(const Packet& packet, Route from);
    [[nodiscard]] Verdict execute_write(const Packet& packet, Route from);
    [[nodiscard]] Verdict execute_read(const Packet& packet);
    [[nodiscard]] Verdict execute_atomic(const Packet& packet);
    void refuse(Verdict verdict, Route from);

    // responder_receives.cc
    [[nodiscard]] bool take_receive();
    [[nodiscard]] bool goes_into_cqe(const Packet& packet) const;
    void complete_receive(ibv_wc_status status, const Packet* packet, Route from,
                          std::span<const std::byte> data = {});
    void fail_message(ibv_wc_status status, Route from);
    void describe(Cqe& cqe, const Packet& packet, Route from) const;

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

    QueuePair& qp_;
    ReplyQueue replies_;
    ReceiveQueue* receives_ = nullptr;  // own or of the SRQ
    std::unique_ptr<ReceiveQueue> own_receives_;
    const Pd* receive_pd_ = nullptr;
    CompletionQueue* cq_ = nullptr;

    std::uint64_t expected_ = 0;  // sequence number of the next request packet
    Message message_ = Message::kNone;
    bool is_nak_sent_ = false;  // silent until the expected packet comes

    std::uint32_t receive_ = ReceiveQueue::kNone;  // being filled
    std::uint64_t offset_ = 0;                     // bytes of the message that arrived
    std::uint64_t write_address_ = 0;
    std::uint32_t write_left_ = 0, write_key_ = 0;
    TagMessage tagged_;
};

}  // namespace tagwire::vhca
