// SPDX-License-Identifier: BSD-3-Clause
// Delivery of a message from a receive buffer. Its length and kind have been checked; all other
// fields from the peer are checked here before use.
#include <endian.h>

#include <cstring>

#include "ucs/log/log.hpp"
#include "uct/ib/message_iface.hpp"

namespace tagwire::ib {

void MessageIface::end_receiving() {
    receives_.refill();
    if (has_device_tags_) {
        if (has_ends_queue_)
            ends_.refill();
        tag_list_.sync_if_needed();
    }
}

void MessageIface::garbage(const char* what) {
    count(MessageCounter::kGarbage);
    if (counters_.value(MessageCounter::kGarbage) == 1) {
        TW_LOG_WARN("%s: a peer sent %s, which was dropped; more of the kind is only counted",
                    ib_md().device().name().c_str(), what);
    } else {
        TW_LOG_DEBUG("dropped %s", what);
    }
}

void MessageIface::deliver_eager(MessageEp* ep, std::byte* message, std::size_t bytes,
                                 uct_tag_t tag, std::uint64_t imm) {
    SoftReceive* receive = match(tag);
    if (receive == nullptr) {
        void* context = nullptr;
        return give_eager(ep, message, bytes, tag, imm, UCT_CB_PARAM_FLAG_FIRST, &context);
    }
    if (bytes > 0 && bytes <= receive->capacity)
        std::memcpy(receive->buffer, message + kTmhBytes, bytes);
    put_back(ep, message);
    complete(*receive, tag, imm, bytes, UCS_OK);
}

void MessageIface::give_eager(MessageEp* ep, std::byte* message, std::size_t bytes, uct_tag_t tag,
                              std::uint64_t imm, unsigned flags, void** context) {
    count(MessageCounter::kUnexpected);
    const ucs_status_t status = invoke_unexpected_eager(
        message + kTmhBytes, bytes, flags | UCT_CB_PARAM_FLAG_DESC, tag, imm, context);
    after_callback(ep, message, status);
}

void MessageIface::deliver_request(MessageEp* ep, std::byte* message, std::size_t bytes,
                                   uct_tag_t tag) {
    const auto length = static_cast<unsigned>(bytes - kTmhBytes);
    const std::byte* header = message + kTmhBytes;
    SoftReceive* receive = match(tag);
    if (receive == nullptr) {
        count(MessageCounter::kUnexpected);
        invoke_unexpected_rndv(0, tag, header, length, 0, 0, nullptr);
    } else {
        uct_tag_context_t* ctx = receive->ctx;
        free_receive(*receive);
        count(MessageCounter::kMatched);
        if (ctx != nullptr)
            ctx->rndv_cb(ctx, tag, header, length, UCS_OK, UCT_TAG_RECV_CB_INLINE_DATA);
    }
    put_back(ep, message);
}

void MessageIface::deliver_rndv(MessageEp& ep, std::byte* message, std::size_t bytes,
                                uct_tag_t tag) {
    ibv_tmh head;
    ibv_rvh from;
    std::memcpy(&head, message, sizeof head);
    std::memcpy(&from, message + sizeof head, sizeof from);
    const std::size_t tail = head.reserved[0];
    if (tail > kRndvTailBytes || bytes + tail > kTmhBytes + seg_bytes_) [[unlikely]] {
        put_back(&ep, message);
        return garbage("a rendezvous with a header of no known form");
    }
    SoftReceive* receive = match(tag);
    if (receive == nullptr) {
        count(MessageCounter::kUnexpected);
        const std::size_t length = be32toh(from.len);
        const PackedRkey key{kRkeyMagic, be32toh(from.rkey)};
        const std::size_t headers = sizeof head + sizeof from + answer_to_.size();
        std::memcpy(message + bytes, &head.reserved[1], tail);
        invoke_unexpected_rndv(0, tag, message + headers,
                               static_cast<unsigned>(bytes + tail - headers), be64toh(from.va),
                               length, &key);
    }
    put_back(&ep, message);
    if (receive != nullptr)
        start_read(ep, *receive, tag, head, from);
}

}  // namespace tagwire::ib
