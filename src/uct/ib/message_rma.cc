// SPDX-License-Identifier: BSD-3-Clause
// One-sided operations, and operations that wait: pending requests, flush, fence, check.
#include <cstring>

#include "ucs/log/log.hpp"
#include "uct/completion.hpp"
#include "uct/ib/gather.hpp"
#include "uct/ib/message_iface.hpp"

namespace tagwire::ib {

namespace {

ibv_send_wr remote(ibv_wr_opcode opcode, ibv_sge* sges, unsigned count, std::uint64_t remote_addr,
                   uct_rkey_t rkey) {
    ibv_send_wr request{};
    request.sg_list = sges;
    request.num_sge = static_cast<int>(count);
    request.opcode = opcode;
    request.wr.rdma.remote_addr = remote_addr;
    request.wr.rdma.rkey = static_cast<std::uint32_t>(rkey);
    return request;
}

}  // namespace

// ---- Put and get

ucs_status_t MessageEp::put_short(const void* buffer, unsigned length, std::uint64_t remote_addr,
                                  uct_rkey_t rkey) {
    if (length > owner().inline_max_) [[unlikely]]
        return refuse("put_short", length, owner().inline_max_);
    const ucs_status_t status = room(1, 0);
    if (status != UCS_OK) [[unlikely]]
        return status;
    ibv_sge sge{address_of(buffer), length, 0};
    ibv_send_wr request = remote(IBV_WR_RDMA_WRITE, &sge, length == 0 ? 0 : 1, remote_addr, rkey);
    request.send_flags = IBV_SEND_INLINE;
    return post(request, false);
}

ssize_t MessageEp::put_bcopy(uct_pack_callback_t pack, void* arg, std::uint64_t remote_addr,
                             uct_rkey_t rkey) {
    SendOp* op = nullptr;
    const ssize_t bytes = take_packed("put_bcopy: packed bytes", 0, 0, pack, arg, &op);
    if (bytes < 0) [[unlikely]]
        return bytes;
    ibv_sge sge{address_of(op->data()), static_cast<std::uint32_t>(bytes), op->lkey};
    ibv_send_wr request = remote(IBV_WR_RDMA_WRITE, &sge, bytes == 0 ? 0 : 1, remote_addr, rkey);
    const ucs_status_t posted = post_op(op, SendOp::Kind::kBuffer, request, nullptr);
    return posted == UCS_OK ? bytes : ssize_t{posted};
}

ucs_status_t MessageEp::move_zcopy(const char* call, ibv_wr_opcode opcode, const uct_iov_t* iov,
                                   std::size_t iovcnt, std::uint64_t remote_addr, uct_rkey_t rkey,
                                   uct_completion_t* comp) {
    MessageIface& own = owner();
    Gather gather;
    const ucs_status_t checked = gather.add(call, iov, iovcnt, own.sges_max_ - 1, own.message_max_);
    if (checked != UCS_OK) [[unlikely]]
        return checked;
    SendOp* op = nullptr;
    const ucs_status_t status = take(own.small_, 0, &op);
    if (status != UCS_OK) [[unlikely]]
        return status;
    ibv_send_wr request = remote(opcode, gather.sges, gather.count, remote_addr, rkey);
    const ucs_status_t posted = post_op(op, SendOp::Kind::kUser, request, comp);
    return posted == UCS_OK ? UCS_INPROGRESS : posted;
}

ucs_status_t MessageEp::put_zcopy(const uct_iov_t* iov, std::size_t iovcnt,
                                  std::uint64_t remote_addr, uct_rkey_t rkey,
                                  uct_completion_t* comp) {
    return move_zcopy("put_zcopy", IBV_WR_RDMA_WRITE, iov, iovcnt, remote_addr, rkey, comp);
}

ucs_status_t MessageEp::get_zcopy(const uct_iov_t* iov, std::size_t iovcnt,
                                  std::uint64_t remote_addr, uct_rkey_t rkey,
                                  uct_completion_t* comp) {
    return move_zcopy("get_zcopy", IBV_WR_RDMA_READ, iov, iovcnt, remote_addr, rkey, comp);
}

ucs_status_t MessageEp::get_bcopy(uct_unpack_callback_t unpack, void* arg, std::size_t length,
                                  std::uint64_t remote_addr, uct_rkey_t rkey,
                                  uct_completion_t* comp) {
    MessageIface& own = owner();
    if (length > own.seg_bytes_) [[unlikely]]
        return refuse("get_bcopy", length, own.seg_bytes_);
    SendOp* op = nullptr;
    const ucs_status_t status = take(own.buffers_, 0, &op);
    if (status != UCS_OK) [[unlikely]]
        return status;
    op->unpack = {unpack, arg, length};
    ibv_sge sge{address_of(op->data()), static_cast<std::uint32_t>(length), op->lkey};
    ibv_send_wr request = remote(IBV_WR_RDMA_READ, &sge, length == 0 ? 0 : 1, remote_addr, rkey);
    const ucs_status_t posted = post_op(op, SendOp::Kind::kUnpack, request, comp);
    return posted == UCS_OK ? UCS_INPROGRESS : posted;
}

// ---- Atomics: fetch-and-add and compare-and-swap of 64 bits is what verbs has

ucs_status_t MessageEp::post_atomic(ibv_wr_opcode opcode, std::uint64_t compare_add,
                                    std::uint64_t swap, std::uint64_t remote_addr, uct_rkey_t rkey,
                                    std::uint64_t* result, uct_completion_t* comp) {
    MessageIface& own = owner();
    if (!own.has_atomics())
        return UCS_ERR_UNSUPPORTED;
    if (remote_addr % sizeof(std::uint64_t) != 0) [[unlikely]] {
        TW_LOG_ERROR("atomic64 on address 0x%llx, which is no multiple of 8",
                     static_cast<unsigned long long>(remote_addr));
        return UCS_ERR_INVALID_PARAM;
    }
    SendOp* op = nullptr;
    const ucs_status_t status = take(own.small_, 0, &op);
    if (status != UCS_OK) [[unlikely]]
        return status;
    op->result = {result, sizeof *result};
    ibv_sge sge{address_of(op->data()), sizeof(std::uint64_t), op->lkey};
    ibv_send_wr request{};
    request.sg_list = &sge;
    request.num_sge = 1;
    request.opcode = opcode;
    request.wr.atomic.remote_addr = remote_addr;
    request.wr.atomic.compare_add = compare_add;
    request.wr.atomic.swap = swap;
    request.wr.atomic.rkey = static_cast<std::uint32_t>(rkey);
    if (result == nullptr)
        return post_op(op, SendOp::Kind::kBuffer, request, nullptr);
    const ucs_status_t posted = post_op(op, SendOp::Kind::kFetch, request, comp);
    return posted == UCS_OK ? UCS_INPROGRESS : posted;
}

ucs_status_t MessageEp::atomic_cswap64(std::uint64_t compare, std::uint64_t swap,
                                       std::uint64_t remote_addr, uct_rkey_t rkey,
                                       std::uint64_t* result, uct_completion_t* comp) {
    return post_atomic(IBV_WR_ATOMIC_CMP_AND_SWP, compare, swap, remote_addr, rkey, result, comp);
}

ucs_status_t MessageEp::atomic64_post(unsigned opcode, std::uint64_t value,
                                      std::uint64_t remote_addr, uct_rkey_t rkey) {
    if (opcode != UCT_ATOMIC_OP_ADD)
        return UCS_ERR_UNSUPPORTED;
    return post_atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, value, 0, remote_addr, rkey, nullptr, nullptr);
}

ucs_status_t MessageEp::atomic64_fetch(unsigned opcode, std::uint64_t value, std::uint64_t* result,
                                       std::uint64_t remote_addr, uct_rkey_t rkey,
                                       uct_completion_t* comp) {
    if (opcode != UCT_ATOMIC_OP_ADD)
        return UCS_ERR_UNSUPPORTED;
    return post_atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, value, 0, remote_addr, rkey, result, comp);
}

// ---- Pending requests

ucs_status_t MessageEp::pending_add(uct_pending_req_t* request, unsigned) {
    if (failure_ != UCS_OK)
        return failure_;
    MessageIface& own = owner();
    // As much room as any operation may need: whoever is told BUSY must not find that it was not
    // enough.
    const unsigned parts = static_cast<unsigned>(own.eager_parts_max_);
    if ((group_ == nullptr || group_->empty()) && state_ == State::kConnected && has_room(parts) &&
        has_credit(parts) && own.buffers_.has_one() && own.small_.has_one() && own.rndv_room())
        return UCS_ERR_BUSY;
    if (group_ == nullptr) {
        group_ = own.groups_.create();
        if (group_ == nullptr)
            return UCS_ERR_NO_MEMORY;
        own.grouped_.push_back(id_);
    }
    own.pending_.add(*group_, request);
    own.has_work_ = true;
    return UCS_OK;
}

void MessageEp::pending_purge(uct_pending_purge_callback_t callback, void* arg) {
    purge([&](uct_pending_req_t* request) {
        if (callback != nullptr)
            callback(request, arg);
    });
}

// ---- Flush, fence, check

// A write of nothing: keys are not looked at, and its acknowledgement is that of all before it.
ucs_status_t MessageEp::post_empty_write(SendOp* op, SendOp::Kind kind, uct_completion_t* comp) {
    ibv_send_wr request = remote(IBV_WR_RDMA_WRITE, nullptr, 0, 0, 0);
    return post_op(op, kind, request, comp);
}

ucs_status_t MessageEp::post_signal() {
    ibv_send_wr request = remote(IBV_WR_RDMA_WRITE, nullptr, 0, 0, 0);
    return post(request, true);
}

ucs_status_t MessageEp::flush(unsigned flags, uct_completion_t* comp) {
    MessageIface& own = owner();
    if ((flags & UCT_FLUSH_FLAG_CANCEL) != 0)
        return flush_cancel(comp);
    if (failure_ != UCS_OK)
        return failure_;
    if (blocks_sends())
        return UCS_ERR_NO_RESOURCE;
    if (is_idle())
        return UCS_OK;
    if (comp == nullptr) {
        // Something signalled must be behind the last request, or it would never be acknowledged.
        if (queue_->has_unsignaled() && queue_->free > 0 && own.cq_free_ > 0)
            return post_signal() == UCS_OK ? UCS_INPROGRESS : failure_;
        return UCS_INPROGRESS;
    }
    if (queue_->free == 0)
        own.gets_room(*this, 1);  // it may have no queue yet
    SendOp* op = queue_->free > 0 && own.cq_free_ > 0 ? own.small_.get() : nullptr;
    if (op == nullptr)
        return no_room();
    op->serial = own.rndv_serial_;
    const ucs_status_t posted = post_empty_write(op, SendOp::Kind::kFlush, comp);
    return posted == UCS_OK ? UCS_INPROGRESS : posted;
}

// The queue pairs go to error: each request then ends, and the peer can read no more.
ucs_status_t MessageEp::flush_cancel(uct_completion_t* comp) {
    MessageIface& own = owner();
    if (failure_ != UCS_OK && state_ == State::kFailed)
        return UCS_OK;
    if (failure_ == UCS_OK)
        own.cancel(*this);
    if (is_idle())
        return UCS_OK;
    if (comp != nullptr) {
        SendOp* op = own.small_.get();
        if (op == nullptr)
            return UCS_ERR_NO_RESOURCE;
        op->kind = SendOp::Kind::kFlush;
        op->ep = this;
        op->comp = comp;
        op->serial = own.rndv_serial_;
        // It ends with the last request before it, which may be under way no more.
        if (has_ended())
            own.finish_later(*op, UCS_ERR_CANCELED);
        else
            queue_->append(op);
    }
    return UCS_INPROGRESS;
}

ucs_status_t MessageEp::fence(unsigned) {
    if (!queue_->is_drained())
        queue_->fence_flag = IBV_SEND_FENCE;
    return UCS_OK;
}

ucs_status_t MessageEp::check(unsigned, uct_completion_t* comp) {
    if (comp == nullptr) {
        const ucs_status_t status = room(1, 0);
        return status == UCS_OK ? post_signal() : status;
    }
    SendOp* op = nullptr;
    const ucs_status_t status = take(owner().small_, 0, &op);
    if (status != UCS_OK)
        return status;
    const ucs_status_t posted = post_empty_write(op, SendOp::Kind::kUser, comp);
    return posted == UCS_OK ? UCS_INPROGRESS : posted;
}

}  // namespace tagwire::ib
