// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/message_ep.hpp"

#include <endian.h>

#include <cstring>

#include "ucs/log/log.hpp"
#include "uct/ib/message_iface.hpp"

namespace tagwire::ib {

// ---- Room

MessageEp::MessageEp(MessageIface& owner, WorkQueue& own_queue)
    : BaseEp(&owner), queue(&own_queue) {}

ucs_status_t MessageEp::make_room(unsigned requests, unsigned messages) {
    if (failure == UCS_OK && !blocks_sends() &&
        owner().source->make_room(*this, requests, messages))
        return UCS_OK;
    return no_room();
}

bool MessageEp::make_own_room(unsigned requests) {
    MessageIface& own = owner();
    if (own.source->make_room(*this, requests, 0))
        return true;
    if (!own.sends.has_places(requests))
        own.sends.ask_for_completions();
    return false;
}

ucs_status_t MessageEp::no_room() {
    if (failure != UCS_OK)
        return failure;
    MessageIface& own = owner();
    if (state == State::kCreated) {
        TW_LOG_ERROR("endpoint used before uct_ep_connect_to_ep()");
        return UCS_ERR_NOT_CONNECTED;
    }
    if (!has_credit(1))
        own.count(MessageCounter::kNoCredit);
    if (!own.sends.has_places(static_cast<unsigned>(own.limits.eager_parts_max)) ||
        own.buffers.is_exhausted() || own.small.is_exhausted())
        own.sends.ask_for_completions();  // those of others may be what it takes
    own.count(MessageCounter::kNoResource);
    own.source->gave_up(*this);
    return UCS_ERR_NO_RESOURCE;
}

ucs_status_t MessageEp::take(SendPool& pool, unsigned messages, SendOp** op_p) {
    const ucs_status_t status = room(1, messages);
    if (status != UCS_OK) [[unlikely]]
        return status;
    *op_p = pool.get();
    return *op_p != nullptr ? UCS_OK : no_room();
}

ssize_t MessageEp::take_packed(const char* what, unsigned messages, std::size_t offset,
                               uct_pack_callback_t pack, void* arg, SendOp** op_p) {
    MessageIface& own = owner();
    const ucs_status_t status = take(own.buffers, messages, op_p);
    if (status != UCS_OK) [[unlikely]]
        return status;
    const std::size_t bytes = pack((*op_p)->data() + offset, arg);
    if (bytes > own.limits.seg_bytes) [[unlikely]] {
        own.buffers.put(*op_p);
        own.source->gave_up(*this);
        return refuse(what, bytes, own.limits.seg_bytes);
    }
    return static_cast<ssize_t>(bytes);
}

// ---- Posting

ucs_status_t MessageEp::post(ibv_send_wr& first, ibv_send_wr& last, unsigned count, bool signal) {
    // Each has a number of its own, because one that fails is told though it asked for nothing.
    for (ibv_send_wr* request = &first; request != nullptr; request = request->next)
        request->wr_id = queue->next_wr_id();
    const unsigned flags = owner().sends.take_places(*queue, count, signal);
    first.send_flags |= flags & IBV_SEND_FENCE;
    last.send_flags |= flags & IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    const int error = queue->post(*this, &first, &bad);
    return error == 0 ? UCS_OK : post_failed(bad, error);
}

// Nothing that we post may be refused: what was taken of the chain ends with the queue pair.
ucs_status_t MessageEp::post_failed(const ibv_send_wr* bad, int error) {
    MessageIface& own = owner();
    TW_LOG_ERROR("ibv_post_send failed: %s", std::strerror(error));
    own.sends.refused(*queue, bad);
    own.fail(*this, UCS_ERR_IO_ERROR, "ibv_post_send failed");
    return UCS_ERR_IO_ERROR;
}

ucs_status_t MessageEp::post_op(SendOp* op, SendOp::Kind kind, ibv_send_wr& request,
                                uct_completion_t* comp) {
    op->kind = kind;
    op->ep = this;
    op->comp = comp;
    const ucs_status_t status = post(request, kind != SendOp::Kind::kBuffer);
    if (status != UCS_OK) [[unlikely]] {
        op->pool->put(op);
        return status;
    }
    queue->append(op);
    return UCS_OK;
}

ucs_status_t MessageEp::post_inline(const void* message, std::uint32_t bytes) {
    ibv_sge sge{address_of(message), bytes, 0};
    ibv_send_wr request{};
    request.sg_list = &sge;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    request.send_flags = IBV_SEND_INLINE;
    return post(request, false);
}

ucs_status_t MessageEp::post_empty_write(SendOp* op, SendOp::Kind kind, uct_completion_t* comp) {
    ibv_send_wr request{};
    request.opcode = IBV_WR_RDMA_WRITE;
    return post_op(op, kind, request, comp);
}

ucs_status_t MessageEp::post_signal() {
    ibv_send_wr request{};
    request.opcode = IBV_WR_RDMA_WRITE;
    return post(request, true);
}

}  // namespace tagwire::ib
