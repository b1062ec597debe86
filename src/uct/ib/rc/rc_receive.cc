// SPDX-License-Identifier: BSD-3-Clause
// The receiving half of the data path. Whatever a peer wrote is checked before it is used: its
// length, its kind, its numbers.
#include <endian.h>

#include <algorithm>
#include <cstring>

#include "ucs/log/log.hpp"
#include "uct/completion.hpp"
#include "uct/ib/rc/rc_iface.hpp"

namespace tagwire::rc {

using ib::Completion;
using ib::MessageKind;

void RcIface::receive(const Completion* completions, unsigned count) {
    in_progress_ = true;
    receives_seen_ += count;
    for (unsigned i = 0; i < count; ++i) {
        const Completion& completion = completions[i];
        if (ib::TagList::is_own(completion.wr_id)) {
            if (ib::TagEntry* entry = tag_list_.take_whole(completion); entry != nullptr)
                matched(*entry);
            else
                tag_event(completion);
        } else if (!deliver_common(completion)) [[unlikely]] {
            deliver(completion);
        }
    }
    receives_.refill();
    if (has_device_tags_) {
        ends_.refill();
        tag_list_.sync_if_needed();
    }
    in_progress_ = false;
}

// The device has put a whole message where it belongs.
inline void RcIface::matched(ib::TagEntry& entry) {
    if (RcEp* ep = of_qp(entry.qp_num); ep != nullptr) [[likely]] {
        ep->was_heard_ = true;
        release_credit(*ep);
    }
    entry.ctx->tag_consumed_cb(entry.ctx);
    arrived(entry);
}

void RcIface::arrived(ib::TagEntry& entry) {
    uct_tag_context_t* const ctx = entry.ctx;
    const uct_tag_t tag = entry.tag;
    const void* const buffer = entry.buffer;
    const std::uint32_t bytes = entry.byte_len;
    const bool has_imm = entry.has_imm;
    const std::uint64_t imm = std::uint64_t{entry.app_ctx} << 32 | entry.imm;
    tag_list_.finish(entry);
    count(RcCounter::kDeviceMatched);
    if (has_imm && imm == 0) [[unlikely]]
        ctx->rndv_cb(ctx, tag, buffer, bytes, UCS_OK, 0);
    else
        ctx->completed_cb(ctx, tag, has_imm ? imm : 0, bytes, nullptr, UCS_OK);
}

inline void RcIface::after_callback(RcEp* ep, std::byte* message, ucs_status_t status) {
    if (status == UCS_INPROGRESS) [[unlikely]]
        return keep(ep, message);
    receives_.put_back(message);
    if (ep != nullptr)
        release_credit(*ep);
}

// An active message on the queue pair where it belongs.
inline bool RcIface::deliver_common(const Completion& completion) {
    RcEp* ep = of_qp(completion.qp_num);
    if (ep == nullptr || completion.qp_num != ep->message_qp_num_ ||
        completion.status != IBV_WC_SUCCESS || completion.byte_len < ib::kMessageBytesMin ||
        (completion.flags & IBV_WC_WITH_IMM) != 0)
        return false;
    std::byte* message = receives_.message(completion.wr_id);
    ib::Prefix head;
    std::memcpy(&head, message, sizeof head);
    const std::size_t bytes = completion.byte_len - sizeof head;
    if (head.opcode != IBV_TMH_NO_TAG || head.kind != MessageKind::kAm ||
        head.value >= UCT_AM_ID_MAX || head.padding > bytes)
        return false;
    receives_.consumed();
    ep->was_heard_ = true;
    take_released(*ep, be32toh(head.released));
    count(RcCounter::kDelivered);
    const ucs_status_t status =
        invoke_am(head.value, message + sizeof head, bytes - head.padding, UCT_CB_PARAM_FLAG_DESC);
    after_callback(ep, message, status);
    return true;
}

void RcIface::deliver(const Completion& completion) {
    // A message that lies in a buffer of ours.
    std::byte* message = receives_.message(completion.wr_id);
    ib::ReceiveQueue& queue = queue_of(message);
    queue.consumed();
    RcEp* ep = of_qp(completion.qp_num);
    if (completion.status != IBV_WC_SUCCESS) [[unlikely]] {
        queue.put_back(message);
        if (ep != nullptr && completion.status != IBV_WC_WR_FLUSH_ERR) {
            TW_LOG_DEBUG("a receive of queue pair 0x%x failed: %s", completion.qp_num,
                         verbs().wc_status_str(completion.status));
            fail(*ep, UCS_ERR_IO_ERROR);
        }
        return;
    }
    // The device counts what it hands over unmatched, garbage too, and wants to hear of each.
    if (completion.opcode == IBV_WC_TM_RECV)
        tag_list_.count_unexpected(completion.flags);
    const std::size_t bytes = completion.byte_len;
    // A write with an immediate takes a buffer, too, and the length is that of what went elsewhere.
    if (bytes < ib::kMessageBytesMin || completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM)
        [[unlikely]] {
        queue.put_back(message);
        return garbage("a message shorter than a header, or none at all");
    }
    if (ep != nullptr) [[likely]]
        ep->was_heard_ = true;
    // There the peer's device says that it has read, and nothing else. What goes on lies in
    // receives_.
    if (&queue == &ends_ || static_cast<std::uint8_t>(message[0]) == IBV_TMH_FIN) {
        ibv_tmh head;
        std::memcpy(&head, message, sizeof head);
        queue.put_back(message);
        if (ep == nullptr || head.opcode != IBV_TMH_FIN) [[unlikely]]
            return garbage("a message where only ends of rendezvous come, or the end of nothing");
        return deliver_fin(*ep, be32toh(head.app_ctx));
    }
    if (static_cast<std::uint8_t>(message[0]) == IBV_TMH_NO_TAG) {
        deliver_untagged(ep, message, bytes);
    } else {
        deliver_tagged(ep, message, bytes, (completion.flags & IBV_WC_WITH_IMM) != 0,
                       completion.imm);
    }
}

void RcIface::garbage(const char* what) {
    count(RcCounter::kGarbage);
    if (counters_.value(RcCounter::kGarbage) == 1) {
        TW_LOG_WARN("%s: a peer sent %s, which was dropped; more of the kind is only counted",
                    ib_md().device().name().c_str(), what);
    } else {
        TW_LOG_DEBUG("rc dropped %s", what);
    }
}

// ---- Everything without a tag

void RcIface::deliver_untagged(RcEp* ep, std::byte* message, std::size_t bytes) {
    ib::Prefix head;
    std::memcpy(&head, message, sizeof head);
    if (ep != nullptr) [[likely]]
        take_released(*ep, be32toh(head.released));
    switch (head.kind) {
        case MessageKind::kAm:
            if (head.value < UCT_AM_ID_MAX && head.padding <= bytes - sizeof head) [[likely]]
                return deliver_am(ep, message, head.value, bytes - sizeof head - head.padding);
            break;
        case MessageKind::kCredit:
            receives_.put_back(message);
            return;
        case MessageKind::kTagFragment:
            if (ep != nullptr && ep->has_partial_)
                return deliver_fragment(*ep, message, bytes - ib::kTmhBytes, head.value != 0);
            break;
    }
    receives_.put_back(message);
    garbage("a message of no known kind");
}

void RcIface::deliver_am(RcEp* ep, std::byte* message, std::uint8_t id, std::size_t bytes) {
    count(RcCounter::kDelivered);
    const ucs_status_t status =
        invoke_am(id, message + ib::kPrefixBytes, bytes, UCT_CB_PARAM_FLAG_DESC);
    after_callback(ep, message, status);
}

void RcIface::keep(RcEp* ep, std::byte* message) {
    receives_.keep(message, ep == nullptr ? UINT64_MAX : ep->id_);
    if (ep != nullptr) {
        ++ep->held_;
        tell_released(*ep);
    }
}

// The peer hears of every quarter of the credit that kept descriptors leave it, so that it never
// waits for what we have handled already.
void RcIface::tell_released(RcEp& ep) {
    const auto credits = static_cast<std::uint32_t>(options_.credits);
    const std::uint32_t left = credits > ep.held_ ? credits - ep.held_ : 0;
    if (ep.released_ - ep.told_ < std::max(1U, left / 4) || ep.owes_credit_)
        return;
    ep.owes_credit_ = true;
    owing_.push_back(&ep);
    has_work_ = true;
}

void RcIface::released(void* arg, std::uint64_t ep_id) {
    auto& self = *static_cast<RcIface*>(arg);
    RcEp* ep = ep_id > UINT32_MAX ? nullptr : self.find(static_cast<std::uint32_t>(ep_id));
    if (ep != nullptr) {
        --ep->held_;
        self.release_credit(*ep);
    }
    self.receives_.refill();
}

// ---- Tagged messages that no device matched

void RcIface::deliver_tagged(RcEp* ep, std::byte* message, std::size_t bytes, bool has_imm,
                             std::uint32_t imm_low) {
    ibv_tmh head;
    std::memcpy(&head, message, sizeof head);
    const uct_tag_t tag = be64toh(head.tag);
    const bool is_rndv = head.opcode == IBV_TMH_RNDV;
    if (ep == nullptr || !has_tag_callbacks() || (head.opcode != IBV_TMH_EAGER && !is_rndv) ||
        (is_rndv && bytes < ib::kTmhBytes + sizeof(ibv_rvh))) [[unlikely]] {
        receives_.put_back(message);
        return garbage("a tagged message of no known form");
    }
    if (is_rndv)
        return deliver_rndv(*ep, message, bytes, tag);
    const std::uint64_t imm = std::uint64_t{be32toh(head.app_ctx)} << 32 | imm_low;
    if (has_imm && imm == 0)
        return deliver_request(*ep, message, bytes, tag);
    const bool has_more = head.reserved[0] == ib::kEagerHasMore && !has_device_tags_;
    deliver_eager(*ep, message, bytes - sizeof head, tag, has_imm ? imm : 0, has_more);
}

void RcIface::deliver_eager(RcEp& ep, std::byte* message, std::size_t bytes, uct_tag_t tag,
                            std::uint64_t imm, bool has_more) {
    SoftReceive* receive = match(tag);
    if (has_more) {
        if (ep.has_partial_) {
            // The rest of the one before will not come: a peer that mixes them is broken.
            receives_.put_back(message);
            garbage("an eager message within another");
            if (receive != nullptr)
                complete(*receive, tag, imm, 0, UCS_ERR_IO_ERROR);
            return fail(ep, UCS_ERR_IO_ERROR);
        }
        ep.has_partial_ = true;
        ep.partial_receive_ = receive;
        ep.partial_tag_ = tag;
        ep.partial_imm_ = imm;
        ep.partial_bytes_ = static_cast<std::uint32_t>(bytes);
        ep.partial_context_ = nullptr;
    }
    if (receive == nullptr) {
        void* context = nullptr;
        return give_eager(
            ep, message, bytes, tag, imm,
            UCT_CB_PARAM_FLAG_FIRST | (has_more ? unsigned{UCT_CB_PARAM_FLAG_MORE} : 0U),
            has_more ? &ep.partial_context_ : &context);
    }
    if (bytes > 0 && bytes <= receive->capacity)
        std::memcpy(receive->buffer, message + ib::kTmhBytes, bytes);
    receives_.put_back(message);
    release_credit(ep);
    if (!has_more)
        complete(*receive, tag, imm, bytes, UCS_OK);
}

void RcIface::deliver_fragment(RcEp& ep, std::byte* message, std::size_t bytes, bool is_last) {
    SoftReceive* receive = ep.partial_receive_;
    const std::size_t offset = ep.partial_bytes_;
    if (offset + bytes > kEagerPartsMax * seg_bytes_) [[unlikely]] {
        receives_.put_back(message);
        garbage("an eager message longer than there are");
        return fail(ep, UCS_ERR_IO_ERROR);
    }
    ep.partial_bytes_ += static_cast<std::uint32_t>(bytes);
    if (is_last) {
        ep.has_partial_ = false;
        ep.partial_receive_ = nullptr;
    }
    if (receive == nullptr) {
        return give_eager(ep, message, bytes, ep.partial_tag_, ep.partial_imm_,
                          is_last ? 0U : unsigned{UCT_CB_PARAM_FLAG_MORE}, &ep.partial_context_);
    }
    if (bytes > 0 && offset + bytes <= receive->capacity)
        std::memcpy(receive->buffer + offset, message + ib::kTmhBytes, bytes);
    receives_.put_back(message);
    release_credit(ep);
    if (is_last)
        complete(*receive, ep.partial_tag_, ep.partial_imm_, offset + bytes, UCS_OK);
}

void RcIface::give_eager(RcEp& ep, std::byte* message, std::size_t bytes, uct_tag_t tag,
                         std::uint64_t imm, unsigned flags, void** context) {
    count(RcCounter::kUnexpected);
    const ucs_status_t status = invoke_unexpected_eager(
        message + ib::kTmhBytes, bytes, flags | UCT_CB_PARAM_FLAG_DESC, tag, imm, context);
    after_callback(&ep, message, status);
}

void RcIface::deliver_request(RcEp& ep, std::byte* message, std::size_t bytes, uct_tag_t tag) {
    const auto length = static_cast<unsigned>(bytes - ib::kTmhBytes);
    const std::byte* header = message + ib::kTmhBytes;
    SoftReceive* receive = match(tag);
    if (receive == nullptr) {
        count(RcCounter::kUnexpected);
        invoke_unexpected_rndv(0, tag, header, length, 0, 0, nullptr);
    } else {
        uct_tag_context_t* ctx = receive->ctx;
        soft_receives_.destroy(receive);
        count(RcCounter::kMatched);
        if (ctx != nullptr)
            ctx->rndv_cb(ctx, tag, header, length, UCS_OK, UCT_TAG_RECV_CB_INLINE_DATA);
    }
    receives_.put_back(message);
    release_credit(ep);
}

void RcIface::deliver_rndv(RcEp& ep, std::byte* message, std::size_t bytes, uct_tag_t tag) {
    ibv_tmh head;
    ibv_rvh from;
    std::memcpy(&head, message, sizeof head);
    std::memcpy(&from, message + sizeof head, sizeof from);
    SoftReceive* receive = match(tag);
    if (receive == nullptr) {
        count(RcCounter::kUnexpected);
        const std::size_t length = be32toh(from.len);
        const ib::PackedRkey key{ib::kRkeyMagic, be32toh(from.rkey)};
        invoke_unexpected_rndv(0, tag, message + sizeof head + sizeof from,
                               static_cast<unsigned>(bytes - sizeof head - sizeof from),
                               be64toh(from.va), length, &key);
    }
    receives_.put_back(message);
    release_credit(ep);
    if (receive != nullptr)
        start_read(ep, *receive, tag, head, from);
}

void RcIface::deliver_fin(RcEp& ep, std::uint32_t id) {
    RndvSend* send = rndv_of(id);
    if (send == nullptr || send->ep != &ep)
        return;  // cancelled meanwhile, or never ours
    uct_completion_t* comp = send->comp;
    drop_rndv(*send);
    uct::invoke_completion(comp, UCS_OK);
    settle_flushes(ep);
}

}  // namespace tagwire::rc
