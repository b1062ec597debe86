// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/tag_receives.hpp"

#include <algorithm>

#include "ucs/log/log.hpp"
#include "uct/tcp/tcp_iface.hpp"

namespace tagwire::tcp {

ucs_status_t TagReceives::open(std::size_t depth) {
    const ucs_status_t status = tags_.open(depth, "tcp posted receives");
    return status == UCS_OK ? iovs_.init({.name = "tcp iov", .elements_per_chunk = 16}) : status;
}

ucs_status_t TagReceives::post(uct_tag_t tag, uct_tag_t mask, const uct_iov_t* iov,
                               std::size_t iovcnt, uct_tag_context_t* ctx) {
    if (!iface_.has_tag_callbacks()) {
        TW_LOG_ERROR("tag_recv_zcopy: the interface was opened without tag callbacks");
        return UCS_ERR_UNSUPPORTED;
    }
    if (iovcnt > uct::kIovMax) {
        TW_LOG_ERROR("tag_recv_zcopy: %zu iov elements exceed the limit of %zu", iovcnt,
                     uct::kIovMax);
        return UCS_ERR_INVALID_PARAM;
    }
    Posted* posted = nullptr;
    const ucs_status_t status = tags_.create(tag, mask, ctx, uct::first_piece(iov, iovcnt),
                                             uct::iov_bytes(iov, iovcnt), &posted);
    if (status != UCS_OK)
        return status;
    if (iovcnt > 1 || (iovcnt == 1 && iov->count != 1)) {
        uct::IovCopy* copy = iovs_.create();
        if (copy == nullptr) {
            tags_.destroy(*posted);
            return UCS_ERR_NO_MEMORY;
        }
        copy->assign(iov, iovcnt);
        posted->scatter(copy, iovs_);
    }
    tags_.post(*posted);
    return UCS_OK;
}

ucs_status_t TagReceives::cancel(uct_tag_context_t& ctx, bool forced) {
    return tags_.cancel(ctx, forced, [this](Posted& posted) { return abandon(posted); });
}

// Matched already, and the program wants the buffer back at once. Data still to come is dropped,
// without a callback.
ucs_status_t TagReceives::abandon(Posted& posted) {
    posted.ctx = nullptr;
    if (iface_.rendezvous.abandon(posted))
        return UCS_OK;
    for (const auto& connection : iface_.connections.all())
        StreamReader::let_go(*connection, posted);
    tags_.destroy(posted);
    return UCS_OK;
}

bool TagReceives::takes_tags(Connection& connection) {
    if (iface_.has_tag_callbacks()) [[likely]]
        return true;
    iface_.failures.violation(
        connection, "tagged message to an interface that was opened without tag callbacks");
    return false;
}

bool TagReceives::deliver(Connection& connection, const Message& message) {
    if (!takes_tags(connection))
        return false;
    const auto body = message.as<TagEagerBody>();
    if (Posted* posted = tags_.match(body.tag)) {
        posted->ctx->tag_consumed_cb(posted->ctx);
        posted->copy_from(message.data, std::min(message.bytes, posted->capacity()));
        complete(*posted, body.tag, body.imm, message.bytes, UCS_OK);
        return false;
    }
    iface_.count(TcpCounter::kUnexpected);
    const unsigned flags =
        UCT_CB_PARAM_FLAG_FIRST | (message.is_desc ? unsigned{UCT_CB_PARAM_FLAG_DESC} : 0U);
    void* context = nullptr;
    const ucs_status_t status = iface_.invoke_unexpected_eager(message.data, message.bytes, flags,
                                                               body.tag, body.imm, &context);
    if (status == UCS_INPROGRESS && !message.is_desc) [[unlikely]] {
        TW_LOG_ERROR(
            "the eager callback returned UCS_INPROGRESS for a message without "
            "UCT_CB_PARAM_FLAG_DESC, which cannot be kept");
    }
    return status == UCS_INPROGRESS && message.is_desc;
}

Posted* TagReceives::begin_eager(Connection& connection, const TagEagerBody& body, Incoming* in,
                                 std::uint64_t* room_p) {
    if (!takes_tags(connection))
        return nullptr;
    Posted* posted = tags_.consume(body.tag);
    if (posted == nullptr)
        return nullptr;
    *room_p = posted->capacity();
    in->cursor = posted->cursor(&in->iov);
    return posted;
}

void TagReceives::complete(Posted& posted, uct_tag_t tag, std::uint64_t imm, std::size_t bytes,
                           ucs_status_t status) {
    iface_.count(TcpCounter::kMatched);
    tags_.complete(posted, tag, imm, bytes, status);
}

bool TagReceives::give_rndv(uct_tag_t tag, const void* header, unsigned bytes) {
    const bool is_matched = tags_.give_rndv(tag, header, bytes);
    iface_.count(TcpCounter::kMatched, is_matched ? 1 : 0);
    return is_matched;
}

}  // namespace tagwire::tcp
