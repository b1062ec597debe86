// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/rma_ep.hpp"

#include "ucs/log/log.hpp"
#include "uct/ib/gather.hpp"
#include "uct/ib/message_iface.hpp"

namespace tagwire::ib {

// ---- Put and get

ucs_status_t RmaEp::put_short(const void* buffer, unsigned length, std::uint64_t remote_addr,
                              uct_rkey_t rkey) {
    if (length > owner().limits.inline_max) [[unlikely]]
        return refuse("put_short", length, owner().limits.inline_max);
    const ucs_status_t status = room(1, 0);
    if (status != UCS_OK) [[unlikely]]
        return status;
    ibv_sge sge{address_of(buffer), length, 0};
    ibv_send_wr request = remote(IBV_WR_RDMA_WRITE, &sge, length == 0 ? 0 : 1, remote_addr, rkey);
    request.send_flags = IBV_SEND_INLINE;
    return post(request, false);
}

ssize_t RmaEp::put_bcopy(uct_pack_callback_t pack, void* arg, std::uint64_t remote_addr,
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

ucs_status_t RmaEp::move_zcopy(const char* call, ibv_wr_opcode opcode, const uct_iov_t* iov,
                               std::size_t iovcnt, std::uint64_t remote_addr, uct_rkey_t rkey,
                               uct_completion_t* comp) {
    MessageIface& own = owner();
    Gather gather;
    const ucs_status_t checked =
        gather.add(call, iov, iovcnt, own.limits.sges_max - 1, own.limits.message_max);
    if (checked != UCS_OK) [[unlikely]]
        return checked;
    SendOp* op = nullptr;
    const ucs_status_t status = take(own.small, 0, &op);
    if (status != UCS_OK) [[unlikely]]
        return status;
    ibv_send_wr request = remote(opcode, gather.sges, gather.count, remote_addr, rkey);
    const ucs_status_t posted = post_op(op, SendOp::Kind::kUser, request, comp);
    return posted == UCS_OK ? UCS_INPROGRESS : posted;
}

ucs_status_t RmaEp::put_zcopy(const uct_iov_t* iov, std::size_t iovcnt, std::uint64_t remote_addr,
                              uct_rkey_t rkey, uct_completion_t* comp) {
    return move_zcopy("put_zcopy", IBV_WR_RDMA_WRITE, iov, iovcnt, remote_addr, rkey, comp);
}

ucs_status_t RmaEp::get_zcopy(const uct_iov_t* iov, std::size_t iovcnt, std::uint64_t remote_addr,
                              uct_rkey_t rkey, uct_completion_t* comp) {
    return move_zcopy("get_zcopy", IBV_WR_RDMA_READ, iov, iovcnt, remote_addr, rkey, comp);
}

ucs_status_t RmaEp::get_bcopy(uct_unpack_callback_t unpack, void* arg, std::size_t length,
                              std::uint64_t remote_addr, uct_rkey_t rkey, uct_completion_t* comp) {
    MessageIface& own = owner();
    if (length > own.limits.seg_bytes) [[unlikely]]
        return refuse("get_bcopy", length, own.limits.seg_bytes);
    SendOp* op = nullptr;
    const ucs_status_t status = take(own.buffers, 0, &op);
    if (status != UCS_OK) [[unlikely]]
        return status;
    op->unpack = {unpack, arg, length};
    ibv_sge sge{address_of(op->data()), static_cast<std::uint32_t>(length), op->lkey};
    ibv_send_wr request = remote(IBV_WR_RDMA_READ, &sge, length == 0 ? 0 : 1, remote_addr, rkey);
    const ucs_status_t posted = post_op(op, SendOp::Kind::kUnpack, request, comp);
    return posted == UCS_OK ? UCS_INPROGRESS : posted;
}

// ---- Atomics: fetch-and-add and compare-and-swap of 64 bits is what verbs has

ucs_status_t RmaEp::post_atomic(ibv_wr_opcode opcode, std::uint64_t compare_add, std::uint64_t swap,
                                std::uint64_t remote_addr, uct_rkey_t rkey, std::uint64_t* result,
                                uct_completion_t* comp) {
    MessageIface& own = owner();
    if (!own.limits.has_atomics)
        return UCS_ERR_UNSUPPORTED;
    if (remote_addr % sizeof(std::uint64_t) != 0) [[unlikely]] {
        TW_LOG_ERROR("atomic64: remote address 0x%llx is not a multiple of 8",
                     static_cast<unsigned long long>(remote_addr));
        return UCS_ERR_INVALID_PARAM;
    }
    SendOp* op = nullptr;
    const ucs_status_t status = take(own.small, 0, &op);
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

ucs_status_t RmaEp::atomic_cswap64(std::uint64_t compare, std::uint64_t swap,
                                   std::uint64_t remote_addr, uct_rkey_t rkey,
                                   std::uint64_t* result, uct_completion_t* comp) {
    return post_atomic(IBV_WR_ATOMIC_CMP_AND_SWP, compare, swap, remote_addr, rkey, result, comp);
}

ucs_status_t RmaEp::atomic64_post(unsigned opcode, std::uint64_t value, std::uint64_t remote_addr,
                                  uct_rkey_t rkey) {
    if (opcode != UCT_ATOMIC_OP_ADD)
        return UCS_ERR_UNSUPPORTED;
    return post_atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, value, 0, remote_addr, rkey, nullptr, nullptr);
}

ucs_status_t RmaEp::atomic64_fetch(unsigned opcode, std::uint64_t value, std::uint64_t* result,
                                   std::uint64_t remote_addr, uct_rkey_t rkey,
                                   uct_completion_t* comp) {
    if (opcode != UCT_ATOMIC_OP_ADD)
        return UCS_ERR_UNSUPPORTED;
    return post_atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, value, 0, remote_addr, rkey, result, comp);
}

}  // namespace tagwire::ib
