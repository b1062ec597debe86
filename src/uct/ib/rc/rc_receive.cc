// SPDX-License-Identifier: BSD-3-Clause
// The receiving half of the data path: finds the sender and the kind of a message. All that a peer
// wrote is checked before it is used: length, kind, numbers.
#include <endian.h>

#include <cstring>

#include "ucs/log/log.hpp"
#include "uct/ib/rc/rc_iface.hpp"

namespace tagwire::rc {

using ib::Completion;
using ib::MessageKind;

unsigned RcIface::progress() {
    return progress_by([this](std::uint32_t qp_num) { return of_qp(qp_num); },
                       [this](const Completion& completion) { return deliver_common(completion); },
                       [this](const Completion& completion) { deliver(completion); });
}

// An active message on the queue pair where it belongs.
[[gnu::always_inline]] inline bool RcIface::deliver_common(const Completion& completion) {
    RcEp* ep = heard_last_;
    if (ep == nullptr || completion.qp_num != ep->message_qp_num_) [[unlikely]] {
        ep = of_qp(completion.qp_num);
        if (ep == nullptr || completion.qp_num != ep->message_qp_num_)
            return false;
        heard_last_ = ep;
    }
    ib::Prefix head;
    if (!is_plain_am(completion, &head)) [[unlikely]]
        return false;
    std::byte* const message = receives.message(completion.wr_id);
    receives.consumed();
    ep->was_heard = true;
    credits_.take(*ep, be32toh(head.released));
    deliver_am(ep, message, head.value, completion.byte_len - sizeof head);
    return true;
}

[[gnu::noinline]] void RcIface::deliver(const Completion& completion) {
    // A message that lies in a buffer of ours.
    std::byte* message = receives.message(completion.wr_id);
    ib::ReceiveQueue& queue = limits.has_device_tags && fins.owns(message) ? fins : receives;
    queue.consumed();
    RcEp* ep = of_qp(completion.qp_num);
    if (completion.status != IBV_WC_SUCCESS) [[unlikely]] {
        queue.put_back(message);
        if (ep != nullptr && completion.status != IBV_WC_WR_FLUSH_ERR)
            fail(*ep, UCS_ERR_IO_ERROR, verbs().wc_status_str(completion.status));
        return;
    }
    // The device counts what it hands over unmatched, garbage too, and wants to hear of each.
    if (completion.opcode == IBV_WC_TM_RECV)
        tag_list.count_unexpected(completion.flags);
    const std::size_t bytes = completion.byte_len;
    // A write with an immediate takes a buffer, too, and the length is that of what went elsewhere.
    if (bytes < ib::kMessageBytesMin || completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM)
        [[unlikely]] {
        queue.put_back(message);
        return garbage("a message shorter than its header, or a write with an immediate");
    }
    if (ep != nullptr) [[likely]]
        ep->was_heard = true;
    // On fins the peer's device only reports that it has read. Messages handled further below lie
    // in receives.
    if (&queue == &fins || static_cast<std::uint8_t>(message[0]) == IBV_TMH_FIN) {
        ibv_tmh head;
        std::memcpy(&head, message, sizeof head);
        queue.put_back(message);
        if (ep == nullptr || head.opcode != IBV_TMH_FIN) [[unlikely]]
            return garbage("a malformed end of a rendezvous, or one from an unknown endpoint");
        return deliver_fin(ep, be32toh(head.app_ctx));
    }
    if (static_cast<std::uint8_t>(message[0]) != IBV_TMH_NO_TAG)
        deliver_tagged(ep, message, bytes, completion);
    else if ((completion.flags & IBV_WC_WITH_IMM) != 0)
        deliver_bare_am(ep, message, completion);
    else
        deliver_untagged(ep, message, bytes);
}

// ---- Everything without a tag

void RcIface::deliver_untagged(RcEp* ep, std::byte* message, std::size_t bytes) {
    ib::Prefix head;
    std::memcpy(&head, message, sizeof head);
    if (ep != nullptr) [[likely]]
        credits_.take(*ep, be32toh(head.released));
    switch (head.kind) {
        case MessageKind::kAm:
            if (head.value < UCT_AM_ID_MAX && head.padding <= bytes - sizeof head) [[likely]]
                return deliver_am(ep, message, head.value, bytes - sizeof head - head.padding);
            break;
        case MessageKind::kCredit:
            receives.put_back(message);
            return;
        case MessageKind::kTagFragment:
            if (ep != nullptr && ep->has_partial_)
                return deliver_part(*ep, message, bytes - ib::kTmhBytes, head.value != 0);
            break;
        default:
            break;
    }
    receives.put_back(message);
    garbage("a message of an unknown kind");
}

void RcIface::deliver_bare_am(RcEp* ep, std::byte* message, const Completion& completion) {
    if (!ib::BareHead::is_valid(completion.imm)) [[unlikely]] {
        receives.put_back(message);
        return garbage("a message of an unknown kind");
    }
    const ib::BareHead head = ib::BareHead::of(completion.imm);
    if (ep != nullptr) [[likely]]
        credits_.take(*ep, head.released_after(ep->peer_released));
    deliver_bare(ep, message, head, completion.byte_len);
}

// ---- Tagged messages that no device matched

void RcIface::deliver_tagged(RcEp* ep, std::byte* message, std::size_t bytes,
                             const Completion& completion) {
    ibv_tmh head;
    std::memcpy(&head, message, sizeof head);
    const uct_tag_t tag = be64toh(head.tag);
    const bool is_rndv = head.opcode == IBV_TMH_RNDV;
    if (ep == nullptr || !has_tag_callbacks() || (head.opcode != IBV_TMH_EAGER && !is_rndv) ||
        (is_rndv && bytes < ib::kTmhBytes + sizeof(ibv_rvh))) [[unlikely]] {
        receives.put_back(message);
        return garbage("a tagged message of an unknown kind");
    }
    if (is_rndv)
        return deliver_rndv(*ep, message, bytes, tag);
    std::uint64_t imm = 0;
    if ((completion.flags & IBV_WC_WITH_IMM) != 0) {
        imm = std::uint64_t{be32toh(head.app_ctx)} << 32 | completion.imm;
        if (imm == 0)
            return deliver_request(ep, message, bytes, tag);
    }
    const std::size_t data_bytes = bytes - sizeof head;
    if (head.reserved[0] == ib::kEagerHasMore && !limits.has_device_tags)
        deliver_first_part(*ep, message, data_bytes, tag, imm);
    else
        deliver_eager(ep, message, data_bytes, tag, imm);
}

void RcIface::deliver_first_part(RcEp& ep, std::byte* message, std::size_t bytes, uct_tag_t tag,
                                 std::uint64_t imm) {
    ib::SoftReceive* receive = match(tag);
    if (ep.has_partial_) {
        // The rest of the one before will not come: a peer that mixes them is broken.
        receives.put_back(message);
        garbage("an eager message inside another");
        if (receive != nullptr)
            complete(*receive, tag, imm, 0, UCS_ERR_IO_ERROR);
        return fail(ep, UCS_ERR_IO_ERROR,
                    "the peer began an eager message before it had finished the last one");
    }
    ep.has_partial_ = true;
    ep.partial_ = {.receive = receive, .context = nullptr, .tag = tag, .imm = imm, .bytes = 0};
    take_part(ep, message, bytes, UCT_CB_PARAM_FLAG_FIRST | UCT_CB_PARAM_FLAG_MORE);
}

void RcIface::deliver_part(RcEp& ep, std::byte* message, std::size_t bytes, bool is_last) {
    if (ep.partial_.bytes + bytes > ib::kEagerPartsMax * limits.seg_bytes) [[unlikely]] {
        receives.put_back(message);
        garbage("an eager message above the limit");
        return fail(ep, UCS_ERR_IO_ERROR, "the peer sent an eager message that is too long");
    }
    if (!is_last)
        return take_part(ep, message, bytes, UCT_CB_PARAM_FLAG_MORE);
    ep.has_partial_ = false;  // the callbacks may send, and fail the endpoint
    take_part(ep, message, bytes, 0);
    const RcEp::Partial whole = ep.partial_;
    if (whole.receive != nullptr)
        complete(*whole.receive, whole.tag, whole.imm, whole.bytes, UCS_OK);
}

void RcIface::take_part(RcEp& ep, std::byte* message, std::size_t bytes, unsigned flags) {
    RcEp::Partial& partial = ep.partial_;
    const std::size_t offset = partial.bytes;
    partial.bytes += static_cast<std::uint32_t>(bytes);
    if (partial.receive == nullptr)
        return give_eager(&ep, message, bytes, partial.tag, partial.imm, flags, &partial.context);
    // Nobody wants what was cancelled by force meanwhile.
    if (bytes > 0 && offset + bytes <= partial.receive->capacity() &&
        partial.receive->ctx != nullptr) {
        std::memcpy(partial.receive->buffer + offset, message + ib::kTmhBytes, bytes);
    }
    put_back(&ep, message);
}

}  // namespace tagwire::rc
