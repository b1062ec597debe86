// SPDX-License-Identifier: BSD-3-Clause
// Posted receives, matched by the device or by software.
#include <unistd.h>

#include <cstring>

#include "ucs/debug/check.hpp"
#include "ucs/log/log.hpp"
#include "ucs/sys/process.hpp"
#include "uct/ib/message_receiver.hpp"

namespace tagwire::ib {

// ---- Posting

ucs_status_t MessageReceiver::tag_recv_zcopy(uct_tag_t tag, uct_tag_t mask, const uct_iov_t* iov,
                                             std::size_t iovcnt, uct_tag_context_t* ctx) {
    if (!has_tag_callbacks())
        return UCS_ERR_UNSUPPORTED;
    ibv_sge target{};
    if (iovcnt == 1 && iov->count == 1 && iov->memh != nullptr &&
        iov->length <= limits.rndv_bytes_max) [[likely]] {
        target.length = static_cast<std::uint32_t>(iov->length);
        target.lkey = registration_of(iov->memh).mr->lkey;
    } else {
        Gather gather;
        const ucs_status_t status =
            gather.add("tag_recv_zcopy", iov, iovcnt, 1, limits.rndv_bytes_max);
        if (status != UCS_OK)
            return status;
        if (gather.count > 0)
            target = gather.sges[0];
    }
    const std::size_t capacity = target.length;
    if (capacity < limits.receive_bytes_min) [[unlikely]]
        return refuse_receive(capacity);
    void* buffer = capacity == 0 ? nullptr : iov->buffer;
    const std::uint32_t lkey = target.lkey;
    if (limits.has_device_tags) {
        tags_.disown(*ctx);
        return tag_list.add(tag, mask, buffer, capacity, lkey, ctx);
    }
    SoftReceive* receive = nullptr;
    const ucs_status_t status =
        tags_.create(tag, mask, ctx, static_cast<std::byte*>(buffer), capacity, &receive);
    if (status != UCS_OK) [[unlikely]]
        return status;
    receive->lkey = lkey;
    tags_.post(*receive);
    return UCS_OK;
}

ucs_status_t MessageReceiver::refuse_receive(std::size_t capacity) const {
    TW_LOG_ERROR(
        "tag_recv_zcopy: a buffer of %zu bytes is below cap.tag.recv.min_recv, %zu: a longer eager "
        "message would break the connection (see TAGWIRE_RC_SEG_BYTES)",
        capacity, limits.receive_bytes_min);
    return UCS_ERR_INVALID_PARAM;
}

ucs_status_t MessageReceiver::tag_recv_cancel(uct_tag_context_t* ctx, int force) {
    if (limits.has_device_tags && !tags_.has(*ctx))
        return tag_list.cancel(ctx, force != 0);
    // A forced cancel drops data that software would copy, but waits for the device, which writes
    // to the buffer.
    const ucs_status_t status = tags_.cancel(*ctx, force != 0, [this](SoftReceive& receive) {
        if (receive.is_read)
            return UCS_ERR_BUSY;
        tags_.detach(receive);
        return UCS_OK;
    });
    has_work |= tags_.has_cancelled();
    return status;
}

// The earliest receive that matches, told that it is consumed. A message that comes here although
// the device matches has been looked at already.
SoftReceive* MessageReceiver::match(uct_tag_t tag) {
    return limits.has_device_tags ? nullptr : tags_.consume(tag);
}

void MessageReceiver::complete(SoftReceive& receive, uct_tag_t tag, std::uint64_t imm,
                               std::size_t bytes, ucs_status_t status) {
    count(MessageCounter::kMatched);
    tags_.complete(receive, tag, imm, bytes, status);
}

// ---- Matches of the device

void MessageReceiver::arrived(TagEntry& entry) {
    uct_tag_context_t* const ctx = entry.ctx;
    const uct_tag_t tag = entry.tag;
    const void* const buffer = entry.buffer;
    const std::uint32_t bytes = entry.byte_len;
    const bool has_imm = entry.has_imm;
    const std::uint64_t imm = std::uint64_t{entry.app_ctx} << 32 | entry.imm;
    tag_list.finish(entry);
    count(MessageCounter::kDeviceMatched);
    if (has_imm && imm == 0) [[unlikely]]
        ctx->rndv_cb(ctx, tag, buffer, bytes, UCS_OK, 0);
    else
        ctx->completed_cb(ctx, tag, has_imm ? imm : 0, bytes, nullptr, UCS_OK);
}

void MessageReceiver::tag_event(const Completion& completion) {
    const TagEvent event = tag_list.handle(completion);
    if (event.kind == TagEvent::Kind::kNone && !event.was_consumed_now)
        return;
    MessageEp* ep = peer_of(event.entry == nullptr ? completion.qp_num : event.entry->qp_num);
    if (event.was_consumed_now && ep != nullptr) {
        ep->was_heard = true;
        release_credit(*ep);
    }
    if (event.was_consumed_now && event.entry != nullptr && !event.entry->forced)
        event.entry->ctx->tag_consumed_cb(event.entry->ctx);
    switch (event.kind) {
        case TagEvent::Kind::kArrived:
            arrived(*event.entry);
            break;
        case TagEvent::Kind::kIncomplete:
            go_on(*event.entry, ep);
            break;
        case TagEvent::Kind::kCanceled:
            end_entry(*event.entry, UCS_ERR_CANCELED);
            break;
        case TagEvent::Kind::kFailed:
            end_entry(*event.entry, event.status);
            if (ep != nullptr)
                broke_off(*ep);
            break;
        default:
            break;
    }
}

void MessageReceiver::end_entry(TagEntry& entry, ucs_status_t status) {
    uct_tag_context_t* ctx = entry.ctx;
    const uct_tag_t tag = entry.tag;
    // One that was cancelled has the length that it was posted with, as it has its tag.
    const std::size_t bytes = status == UCS_ERR_CANCELED ? entry.capacity : 0;
    tag_list.finish(entry);
    if (ctx != nullptr)
        ctx->completed_cb(ctx, tag, 0, bytes, nullptr, status);
}

// A rendezvous that does not fit: its headers lie in the buffer, and the rest is ours.
void MessageReceiver::go_on(TagEntry& entry, MessageEp* ep) {
    const TagEntry message = entry;
    tag_list.finish(entry);
    struct {
        ibv_tmh head;
        ibv_rvh from;
        std::byte answer_to[kAnswerBytesMax];
    } request{};
    const std::size_t bytes = sizeof request.head + sizeof request.from + answer_to.size();
    // The capacity of a receive cancelled by force is no longer known; none is smaller.
    bool is_whole = message.byte_len >= bytes && (message.forced || message.capacity >= bytes);
    const auto is_request = [&] {
        return request.head.opcode == IBV_TMH_RNDV && request.head.tag == htobe64(message.tag) &&
               request.head.app_ctx == htobe32(message.app_ctx);
    };
    if (message.forced) {
        // The buffer may be used for something else by now, or be gone; the sender is told all the
        // same, if we know who it is.
        const iovec to{&request, bytes};
        is_whole =
            is_whole &&
            ucs::process_read(::getpid(), &to, 1, address_of(message.buffer), bytes) == UCS_OK &&
            is_request();
        request.head.app_ctx = htobe32(message.app_ctx);
        request.from.len = UINT32_MAX;
    } else if (is_whole) {
        // libmlx5 reports an eager message that was broken off in the same way: then there are
        // data, or nothing, where the headers would be.
        std::memcpy(&request, message.buffer, bytes);
        is_whole = is_request();
    }
    if (ep == nullptr && is_whole)
        ep = way_back(std::span(request.answer_to, answer_to.size()));
    SoftReceive* receive = tags_.adopt(message.tag, message.ctx,
                                       static_cast<std::byte*>(message.buffer), message.capacity);
    TW_CHECK(receive != nullptr);  // the pool has no limit
    receive->lkey = message.lkey;
    receive->is_adopted = true;
    if ((!is_whole && !message.forced) || ep == nullptr)
        return complete(*receive, message.tag, 0, 0, UCS_ERR_IO_ERROR);
    reads.start(*ep, *receive, message.tag, request.head, request.from);
}

}  // namespace tagwire::ib
