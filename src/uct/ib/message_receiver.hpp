// SPDX-License-Identifier: BSD-3-Clause
// The receiving half of an interface of messages: receive buffers, posted receives that the device
// or software matches, delivery to the program, rendezvous whose data software reads.
//
//   receive completion -> transport's receive() -> deliver_x()  --> callback -> buffer and credit
//                                               '> tag_event()  --> callback    go back
//
// Threads: owner of the interface.
// Invariant: each buffer that was taken from a receive queue is put back, or is the user's until
// FlowControl::released().
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "uct/ib/ib_iface.hpp"
#include "uct/ib/message_parts.hpp"
#include "uct/ib/rndv_reads.hpp"
#include "uct/soft_tags.hpp"

namespace tagwire::ib {

/// A posted receive that software matches, or one that software goes on with.
struct SoftReceive : uct::SoftReceive {
    using uct::SoftReceive::SoftReceive;

    [[nodiscard]] bool holds_buffer() const { return capacity() != 0 && !is_adopted; }

    std::uint32_t lkey = 0;
    bool is_read = false;     // the device reads its data
    bool is_adopted = false;  // the device matched it
};

class MessageReceiver : public IbIface, public MessageParts {
  public:
    // ---- UCT operations (make_ops)
    ucs_status_t tag_recv_zcopy(uct_tag_t tag, uct_tag_t mask, const uct_iov_t* iov,
                                std::size_t iovcnt, uct_tag_context_t* ctx);
    ucs_status_t tag_recv_cancel(uct_tag_context_t* ctx, int force);

    /// A message that no peer of ours sends was dropped.
    void garbage(const char* what);
    void release_credit(MessageEp& ep) {
        ++ep.released;
        if (ep.released - ep.told >= limits.credit_step || receives.kept() > 0) [[unlikely]]
            flow->tell_released(ep);
    }
    /// The data of a matched receive are there, or will not come.
    void complete(SoftReceive& receive, uct_tag_t tag, std::uint64_t imm, std::size_t bytes,
                  ucs_status_t status);

    RndvReads reads{*this};

  protected:
    MessageReceiver(IbMd& md, uct::Worker& worker, const uct_iface_ops_t& table,
                    ucs_callback_t progress_call, const char* option_prefix,
                    const MessageOptions& options)
        : IbIface(md, worker, table, progress_call), MessageParts(option_prefix, options) {}

    // ---- Properties of a transport
    /// The endpoint of the local queue pair `qp_num`; null: none, or the queue pair serves any
    /// peer.
    [[nodiscard]] virtual MessageEp* peer_of(std::uint32_t qp_num) const = 0;
    /// The endpoint for answers to a sender that gives these bytes as its return address; null:
    /// they lead nowhere.
    virtual MessageEp* way_back(std::span<const std::byte>) { return nullptr; }
    /// A matched message of the peer did not arrive whole.
    virtual void broke_off(MessageEp& ep) = 0;

    // ---- Receive queues
    /// Falls back to matching by software where the device cannot match after all.
    ucs_status_t open_receiving();
    ucs_status_t open_receives(unsigned tags, unsigned tag_ops, std::string* refusal_p);
    /// Polls: the completions, and how many.
    [[gnu::always_inline]] unsigned poll_receives(const Completion** completions_p) {
        const unsigned found = receive_cq.poll(completions_p);
        receives_empty_ = found == 0;
        return found;
    }
    /// Behind completions other than messages in `receives` and tags matched at once, which need
    /// receives.refill() alone.
    void end_receiving() {
        receives.refill();
        if (limits.has_device_tags) {
            if (has_fins_queue)
                fins.refill();
            tag_list.sync_if_needed();
        }
    }
    /// All that had arrived when so many receive completions had been seen has been looked at.
    [[nodiscard]] bool has_heard_all(std::uint64_t mark) const {
        return receives_empty_ || receives_seen_ - mark > receive_cq.entries();
    }
    /// Frees what the user left posted. The queue pairs are gone.
    void drop_receives();

    // ---- Delivery of a message
    /// The completion is that of an active message behind a valid prefix, without padding:
    /// `*head_p` is a copy of it.
    [[gnu::always_inline]] bool is_plain_am(const Completion& completion, Prefix* head_p) const {
        if (completion.status != IBV_WC_SUCCESS || completion.byte_len < kMessageBytesMin ||
            (completion.flags & IBV_WC_WITH_IMM) != 0)
            return false;
        std::memcpy(head_p, receives.message(completion.wr_id), sizeof *head_p);
        return head_p->is_plain_am();
    }
    // Length and kind have been checked from here on.
    void deliver_am(MessageEp* ep, std::byte* message, std::uint8_t id, std::size_t bytes) {
        count(MessageCounter::kDelivered);
        after_callback(ep, message,
                       invoke_am(id, message + kPrefixBytes, bytes, UCT_CB_PARAM_FLAG_DESC));
    }
    /// A bare one; `head` is what its immediate says.
    void deliver_bare(MessageEp* ep, std::byte* message, const BareHead& head, std::size_t bytes);
    /// A whole message with a TMH.
    void deliver_eager(MessageEp* ep, std::byte* message, std::size_t bytes, uct_tag_t tag,
                       std::uint64_t imm);
    void deliver_request(MessageEp* ep, std::byte* message, std::size_t bytes, uct_tag_t tag);
    /// `bytes` end where the user's header does.
    void deliver_rndv(MessageEp& ep, std::byte* message, std::size_t bytes, uct_tag_t tag);
    /// `from` null: whoever sent it.
    void deliver_fin(const MessageEp* from, std::uint32_t id);
    void give_eager(MessageEp* ep, std::byte* message, std::size_t bytes, uct_tag_t tag,
                    std::uint64_t imm, unsigned flags, void** context);
    /// The user has `message` or it is free; the credit follows.
    void after_callback(MessageEp* ep, std::byte* message, ucs_status_t status) {
        if (status == UCS_INPROGRESS) [[unlikely]]
            return flow->keep(ep, message);
        put_back(ep, message);
    }
    void put_back(MessageEp* ep, std::byte* message) {
        receives.put_back(message);
        if (ep != nullptr)
            release_credit(*ep);
    }

    // ---- Posted receives (message_tags.cc)
    /// The device has put a whole message where it belongs.
    void matched(TagEntry& entry, MessageEp* ep, const Completion& message) {
        if (ep != nullptr) [[likely]] {
            ep->was_heard = true;
            release_credit(*ep);
        }
        entry.ctx->tag_consumed_cb(entry.ctx);
        if ((message.flags & IBV_WC_WITH_IMM) != 0) [[unlikely]] {
            TagList::fill(entry, message);
            return arrived(entry);
        }
        uct_tag_context_t* const ctx = entry.ctx;
        tag_list.finish(entry);
        count(MessageCounter::kDeviceMatched);
        ctx->completed_cb(ctx, message.tag, 0, message.byte_len, nullptr, UCS_OK);
    }
    void arrived(TagEntry& entry);
    void tag_event(const Completion& completion);
    void end_entry(TagEntry& entry, ucs_status_t status);
    void go_on(TagEntry& entry, MessageEp* ep);
    SoftReceive* match(uct_tag_t tag);
    [[gnu::cold]] ucs_status_t refuse_receive(std::size_t capacity) const;

    bool receives_empty_ = false;  // at the last poll
    std::uint64_t receives_seen_ = 0;
    uct::SoftTags<SoftReceive> tags_;
};

}  // namespace tagwire::ib
