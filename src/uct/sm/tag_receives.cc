// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/tag_receives.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "ucs/log/log.hpp"
#include "ucs/memory/copy.hpp"
#include "uct/sm/sm_iface.hpp"

namespace tagwire::sm {

// ---- Posted receives

ucs_status_t TagReceives::refuse_receive(ucs_status_t status) const {
    if (iface_.has_tag_callbacks())
        return status;
    TW_LOG_ERROR("tag_recv_zcopy: the interface was opened without tag callbacks");
    return UCS_ERR_UNSUPPORTED;
}

// No element, several, or one that repeats.
ucs_status_t TagReceives::post_scattered(uct_tag_t tag, uct_tag_t mask, const uct_iov_t* iov,
                                         std::size_t iovcnt, uct_tag_context_t* ctx) {
    if (iovcnt > kIovMax) {
        TW_LOG_ERROR("tag_recv_zcopy: %zu iov elements exceed the limit of %zu", iovcnt, kIovMax);
        return UCS_ERR_INVALID_PARAM;
    }
    PostedEntry* entry = nullptr;
    const ucs_status_t status =
        tags_.create(tag, mask, ctx, first_piece(iov, iovcnt), iov_bytes(iov, iovcnt), &entry);
    if (status != UCS_OK)
        return refuse_receive(status);
    if (iovcnt != 0) {
        IovCopy* copy = iovs_.create();
        if (copy == nullptr) {
            tags_.destroy(*entry);
            return UCS_ERR_NO_MEMORY;
        }
        copy->assign(iov, iovcnt);
        entry->scatter(copy, iovs_);
    }
    tags_.post(*entry);
    return UCS_OK;
}

ucs_status_t TagReceives::cancel(uct_tag_context_t& ctx, bool forced) {
    return tags_.cancel(ctx, forced, [this](PostedEntry& entry) { return abandon(entry); });
}

// Matched already, by a rendezvous or by the first of several fragments, and the user wants the
// buffer back at once. Data still to come is dropped, without a callback.
ucs_status_t TagReceives::abandon(PostedEntry& entry) {
    Op* op = entry.op();
    uct_tag_context_t* ctx = std::exchange(entry.ctx, nullptr);
    if (op != nullptr && (op->mode == ReceiveMode::kBoth || op->mode == ReceiveMode::kLeaving)) {
        if (iface_.both.abandon(*op))
            return UCS_OK;
        entry.ctx = ctx;
        return UCS_ERR_BUSY;
    }
    if (op != nullptr) {
        iface_.rndv.finish_receive(*op, UCS_ERR_CANCELED);
        return UCS_OK;
    }
    for (const auto& link : iface_.connections.links())
        if (link != nullptr && link->message_entry == &entry)
            link->message_cursor = IovCursor();
    tags_.detach(entry);
    return UCS_OK;
}

// ---- Messages

bool TagReceives::takes_tags(Link& link) {
    if (tags_.depth() > 0) [[likely]]
        return true;
    iface_.ends.violation(link,
                          "tagged message to an interface that was opened without tag callbacks");
    return false;
}

bool TagReceives::give_rndv(uct_tag_t tag, const void* header, unsigned bytes) {
    const bool is_matched = tags_.give_rndv(tag, header, bytes);
    iface_.count(SmCounter::kMatched, is_matched ? 1 : 0);
    return is_matched;
}

void TagReceives::complete(PostedEntry& entry, uct_tag_t tag, std::uint64_t imm, std::size_t bytes,
                           ucs_status_t status) {
    iface_.count(SmCounter::kMatched);
    tags_.complete(entry, tag, imm, bytes, status);
}

void TagReceives::deliver(uct_tag_t tag, std::uint64_t imm, const std::byte* data,
                          std::size_t bytes) {
    PostedEntry* entry = tags_.match(tag);
    if (entry == nullptr) {
        if (tags_.depth() == 0) [[unlikely]]
            return refuse_tagged(data);
        iface_.count(SmCounter::kUnexpected);
        void* context = nullptr;
        // The callee may not write: the pointer is not const because UCT's is not.
        const ucs_status_t status = iface_.invoke_unexpected_eager(
            const_cast<std::byte*>(data), bytes, UCT_CB_PARAM_FLAG_FIRST, tag, imm, &context);
        if (status == UCS_INPROGRESS) [[unlikely]] {
            TW_LOG_ERROR(
                "the eager callback returned UCS_INPROGRESS for a message without "
                "UCT_CB_PARAM_FLAG_DESC, which cannot be kept");
        }
        return;
    }
    entry->ctx->tag_consumed_cb(entry->ctx);
    if (!entry->is_scattered()) [[likely]]
        copy_short(entry->buffer, data, std::min(bytes, entry->capacity()));
    else
        entry->scattered()->cursor().scatter(data, std::min(bytes, entry->capacity()));
    // Not by complete(), a call of which costs more than the rest.
    iface_.count(SmCounter::kMatched);
    tags_.complete(*entry, tag, imm, bytes, UCS_OK);
}

// Only the way to here is short: whose ring the message lies in is looked up.
[[gnu::noinline, gnu::cold]] void TagReceives::refuse_tagged(const std::byte* data) {
    for (const auto& link : iface_.connections.links())
        if (link != nullptr && link->rx_segment != nullptr && link->rx_segment->has(data))
            static_cast<void>(takes_tags(*link));
}

bool TagReceives::deliver_seg(Link& link, Control control) {
    if (!takes_tags(link))
        return false;
    TagSegBody body;
    std::memcpy(&body, link.rx.body(), sizeof body);
    const RingGeometry& geometry = link.rx_segment->geometry;
    const std::uint32_t bytes = control.length();
    const bool first = (control.id() & kFirst) != 0;
    const bool more = (control.id() & kMore) != 0;
    const std::uint64_t left = first ? body.total : link.message_left;
    if (!geometry.has_buffer(body.seg, bytes) || bytes > left || more != (bytes < left) ||
        first != (link.message_left == 0) ||
        body.total > std::uint64_t{kFragmentCountMax} * geometry.seg_bytes) {
        iface_.ends.violation(link, "tagged fragment that does not fit its message");
        return false;
    }
    if (first) {
        // Before anything is matched: without memory the message stays where it is.
        IovCopy* copy = more ? iovs_.create() : nullptr;
        if (more && copy == nullptr)
            return false;
        PostedEntry* entry = tags_.consume(body.tag);
        link.message_entry = entry;
        link.message_total = body.total;
        if (entry != nullptr) {
            const uct_iov_t one{entry->buffer, entry->capacity(), nullptr, 0, 1};
            if (!more && !entry->is_scattered()) {
                ucs::copy_plain(entry->buffer, link.rx_segment->buffer(body.seg),
                                std::min<std::size_t>(bytes, one.length));
                link.rx_segment->returns.give_back(body.seg);
                link.message_entry =
                    nullptr;  // no fragment follows, so closing must not free it again
                complete(*entry, body.tag, body.imm, bytes, UCS_OK);
                return true;
            }
            if (!entry->is_scattered()) {
                copy->assign(&one, 1);
                entry->scatter(std::exchange(copy, nullptr), iovs_);
            }
            link.message_cursor = entry->scattered()->cursor();
        } else {
            link.message_context = nullptr;
        }
        if (copy != nullptr)
            iovs_.destroy(copy);
    }
    if (!deliver_fragment(link, body, bytes, more))
        return false;
    return true;
}

bool TagReceives::deliver_fragment(Link& link, const TagSegBody& body, std::uint32_t bytes,
                                   bool more) {
    const bool first = link.message_left == 0;
    const std::uint64_t left = (first ? link.message_total : link.message_left) - bytes;
    if (PostedEntry* entry = link.message_entry) {
        link.message_cursor.scatter(link.rx_segment->buffer(body.seg),
                                    bytes);  // stops at the buffer's end
        link.rx_segment->returns.give_back(body.seg);
        link.message_left = left;
        if (!more) {
            link.message_entry = nullptr;
            complete(*entry, body.tag, body.imm, link.message_total, UCS_OK);
        }
        return true;
    }
    void* data = nullptr;
    unsigned flags = 0;
    if (!iface_.hand_over(link, body.seg, bytes, &data, &flags))
        return false;
    link.message_left = left;
    if (first)
        iface_.count(SmCounter::kUnexpected);
    const unsigned all = flags | (first ? unsigned{UCT_CB_PARAM_FLAG_FIRST} : 0U) |
                         (more ? unsigned{UCT_CB_PARAM_FLAG_MORE} : 0U);
    iface_.descs.settle(*link.rx_segment, body.seg, data,
                        iface_.invoke_unexpected_eager(data, bytes, all, body.tag, body.imm,
                                                       &link.message_context));
    return true;
}

}  // namespace tagwire::sm
