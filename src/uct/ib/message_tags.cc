// SPDX-License-Identifier: BSD-3-Clause
// Posted receives, matched by the device or by software.
#include <unistd.h>

#include <cstring>

#include "ucs/debug/check.hpp"
#include "ucs/log/log.hpp"
#include "ucs/sys/process.hpp"
#include "uct/ib/message_receiver.hpp"

namespace tagwire::ib {

namespace {

/// The private data of a posted receive's context while software has it. While the device has it,
/// TagList's ticket lies there: an index of at most 24 bits where the magic has its lower half.
struct SoftPriv {
    std::uint64_t magic;
    SoftReceive* receive;
};
static_assert(sizeof(SoftPriv) <= UCT_TAG_PRIV_LEN);
constexpr std::uint64_t kSoftMagic = 0x7477'7263'736f'6674;
static_assert((kSoftMagic & UINT32_MAX) > 1 << 24, "RC_TAG_DEPTH at most");

SoftReceive* soft_of(const uct_tag_context_t* ctx) {
    SoftPriv priv;
    std::memcpy(&priv, ctx->priv, sizeof priv);
    return priv.magic == kSoftMagic ? priv.receive : nullptr;
}

void set_soft(uct_tag_context_t* ctx, SoftReceive* receive) {
    const SoftPriv priv{receive == nullptr ? 0 : kSoftMagic, receive};
    std::memcpy(ctx->priv, &priv, sizeof priv);
}

}  // namespace

// ---- Posting

ucs_status_t MessageReceiver::init_tags() {
    constexpr unsigned kReceivesAtFirst = 256;
    if (!limits.has_device_tags && !in_use_.reserve(kReceivesAtFirst))
        return UCS_ERR_NO_MEMORY;
    return soft_receives_.init(
        {.name = "message receives", .elements_per_chunk = kReceivesAtFirst});
}

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
    if (limits.has_device_tags)
        return tag_list.add(tag, mask, buffer, capacity, lkey, ctx);
    if (posted_.size() >= limits.options.tag_depth) [[unlikely]]
        return UCS_ERR_EXCEEDS_LIMIT;
    if (capacity != 0) {
        if (const ucs_status_t status = in_use_.insert(buffer); status != UCS_OK) [[unlikely]]
            return status;
    }
    SoftReceive* receive = new_receive(ctx, buffer, capacity, lkey);
    if (receive == nullptr) [[unlikely]] {
        if (capacity != 0)
            in_use_.erase(buffer);
        return UCS_ERR_NO_MEMORY;
    }
    receive->tag = tag;
    receive->mask = mask;
    posted_.post(*receive);
    return UCS_OK;
}

ucs_status_t MessageReceiver::refuse_receive(std::size_t capacity) const {
    TW_LOG_ERROR(
        "tag_recv_zcopy: a buffer of %zu bytes is below cap.tag.recv.min_recv, %zu: a longer eager "
        "message would break the connection (see TAGWIRE_RC_SEG_BYTES)",
        capacity, limits.receive_bytes_min);
    return UCS_ERR_INVALID_PARAM;
}

SoftReceive* MessageReceiver::new_receive(uct_tag_context_t* ctx, void* buffer,
                                          std::size_t capacity, std::uint32_t lkey) {
    SoftReceive* receive = soft_receives_.create();
    if (receive == nullptr)
        return nullptr;
    receive->ctx = ctx;
    receive->buffer = static_cast<std::byte*>(buffer);
    receive->capacity = capacity;
    receive->lkey = lkey;
    receive->is_matched = receive->is_read = false;
    if (ctx != nullptr)
        set_soft(ctx, receive);
    return receive;
}

// It may be posted again.
void MessageReceiver::free_buffer(SoftReceive& receive) {
    if (std::exchange(receive.capacity, 0) != 0 && !limits.has_device_tags)
        in_use_.erase(receive.buffer);
}

void MessageReceiver::free_receive(SoftReceive& receive) {
    free_buffer(receive);
    soft_receives_.destroy(&receive);
}

ucs_status_t MessageReceiver::tag_recv_cancel(uct_tag_context_t* ctx, int force) {
    SoftReceive* receive = soft_of(ctx);
    if (receive == nullptr)
        return limits.has_device_tags ? tag_list.cancel(ctx, force != 0) : UCS_ERR_NO_ELEM;
    if (receive->is_matched) {
        // Its message is on the way, and its real end answers a cancel without force, and one with
        // force while the device writes to the buffer. A forced cancel drops data that software
        // would copy.
        if (force != 0 && receive->is_read)
            return UCS_ERR_BUSY;
        if (force != 0) {
            set_soft(ctx, nullptr);
            receive->ctx = nullptr;
            free_buffer(*receive);
        }
        return UCS_OK;
    }
    posted_.cancel(*receive);
    if (force != 0) {
        set_soft(ctx, nullptr);
        free_receive(*receive);
        return UCS_OK;
    }
    receive->is_matched = true;
    cancelled_.push_back(receive);
    has_work = true;
    return UCS_OK;
}

unsigned MessageReceiver::report_cancelled() {
    unsigned reported = 0;
    while (!cancelled_.empty()) {
        SoftReceive* receive = cancelled_.back();
        cancelled_.pop_back();
        complete(*receive, receive->tag, 0, receive->capacity, UCS_ERR_CANCELED);
        ++reported;
    }
    return reported;
}

// The earliest receive that matches, told that it is consumed. Where the device matches, what comes
// here has been looked at already.
SoftReceive* MessageReceiver::match(uct_tag_t tag) {
    if (limits.has_device_tags)
        return nullptr;
    auto* receive = static_cast<SoftReceive*>(posted_.match(tag));
    if (receive == nullptr)
        return nullptr;
    receive->is_matched = true;
    receive->ctx->tag_consumed_cb(receive->ctx);
    return receive;
}

void MessageReceiver::complete(SoftReceive& receive, uct_tag_t tag, std::uint64_t imm,
                               std::size_t bytes, ucs_status_t status) {
    uct_tag_context_t* ctx = receive.ctx;
    if (status == UCS_OK && bytes > receive.capacity)
        status = UCS_ERR_MESSAGE_TRUNCATED;
    free_receive(receive);
    count(MessageCounter::kMatched);
    if (ctx == nullptr)
        return;
    set_soft(ctx, nullptr);
    ctx->completed_cb(ctx, tag, imm, bytes, nullptr, status);
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
    SoftReceive* receive = new_receive(message.ctx, message.buffer, message.capacity, message.lkey);
    TW_CHECK(receive != nullptr);  // the pool has no limit
    receive->is_matched = true;
    if ((!is_whole && !message.forced) || ep == nullptr)
        return complete(*receive, message.tag, 0, 0, UCS_ERR_IO_ERROR);
    reads.start(*ep, *receive, message.tag, request.head, request.from);
}

}  // namespace tagwire::ib
