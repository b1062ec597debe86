// SPDX-License-Identifier: BSD-3-Clause
// ibv_wr_*(): requests are put together by calls, then posted at once by ibv_wr_complete().
#include <algorithm>
#include <cerrno>
#include <span>

#include "vhca/face/context.hpp"

namespace tagwire::vhca {
namespace {

SendBuilder& builder_of(ibv_qp_ex* qp) {
    return *face(qp).builder;
}

SendBuilder::Entry& begin(ibv_qp_ex* qp, ibv_wr_opcode opcode) {
    SendBuilder& builder = builder_of(qp);
    SendBuilder::Entry& entry = builder.entries.emplace_back();
    entry.work.wr_id = qp->wr_id;
    entry.work.opcode = opcode;
    // Data is inline because of its setter, not because of a flag.
    entry.work.flags = qp->wr_flags & ~static_cast<unsigned>(IBV_SEND_INLINE);
    entry.sge_first = builder.sges.size();
    return entry;
}

void begin_remote(ibv_qp_ex* qp, ibv_wr_opcode opcode, std::uint32_t rkey, std::uint64_t addr) {
    SendBuilder::Entry& entry = begin(qp, opcode);
    entry.work.rkey = rkey;
    entry.work.remote_addr = addr;
}

void wr_send(ibv_qp_ex* qp) {
    begin(qp, IBV_WR_SEND);
}
void wr_send_imm(ibv_qp_ex* qp, __be32 imm) {
    begin(qp, IBV_WR_SEND_WITH_IMM).work.imm = imm;
}
void wr_send_inv(ibv_qp_ex* qp, std::uint32_t rkey) {
    begin(qp, IBV_WR_SEND_WITH_INV).work.imm = rkey;
}
void wr_rdma_read(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t addr) {
    begin_remote(qp, IBV_WR_RDMA_READ, rkey, addr);
}
void wr_rdma_write(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t addr) {
    begin_remote(qp, IBV_WR_RDMA_WRITE, rkey, addr);
}
void wr_rdma_write_imm(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t addr, __be32 imm) {
    begin_remote(qp, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, addr);
    builder_of(qp).entries.back().work.imm = imm;
}
void wr_atomic_cmp_swp(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t addr, std::uint64_t compare,
                       std::uint64_t swap) {
    begin_remote(qp, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, addr);
    builder_of(qp).entries.back().work.compare_add = compare;
    builder_of(qp).entries.back().work.swap = swap;
}
void wr_atomic_fetch_add(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t addr, std::uint64_t add) {
    begin_remote(qp, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, addr);
    builder_of(qp).entries.back().work.compare_add = add;
}

// A setter without a request before it is the program's mistake; it is reported, not followed.
SendBuilder::Entry* current(SendBuilder& builder) {
    if (builder.entries.empty()) {
        builder.error = EINVAL;
        return nullptr;
    }
    return &builder.entries.back();
}

void wr_set_ud_addr(ibv_qp_ex* qp, ibv_ah* ah, std::uint32_t remote_qpn, std::uint32_t qkey) {
    if (SendBuilder::Entry* entry = current(builder_of(qp))) {
        entry->work.route = face(ah).route;
        entry->work.remote_qpn = remote_qpn;
        entry->work.remote_qkey = qkey;
    }
}

void wr_set_dc_addr_stream(mlx5dv_qp_ex* dv, ibv_ah* ah, std::uint32_t dctn, std::uint64_t key,
                           std::uint16_t stream) {
    if (SendBuilder::Entry* entry = current(*face(dv).builder)) {
        entry->work.route = face(ah).route;
        entry->work.remote_qpn = dctn;
        entry->work.dc_key = key;
        entry->work.stream = stream;
    }
}

void wr_set_dc_addr(mlx5dv_qp_ex* dv, ibv_ah* ah, std::uint32_t dctn, std::uint64_t key) {
    wr_set_dc_addr_stream(dv, ah, dctn, key, 0);
}

void wr_set_sge_list(ibv_qp_ex* qp, std::size_t count, const ibv_sge* sges) {
    SendBuilder& builder = builder_of(qp);
    if (SendBuilder::Entry* entry = current(builder)) {
        if (count > face(qp).core->cap().max_send_sge) {
            builder.error = EINVAL;
            return;
        }
        builder.sges.resize(entry->sge_first);
        builder.sges.insert(builder.sges.end(), sges, sges + count);
        entry->sge_count = count;
    }
}

void wr_set_sge(ibv_qp_ex* qp, std::uint32_t lkey, std::uint64_t addr, std::uint32_t bytes) {
    const ibv_sge sge{addr, bytes, lkey};
    wr_set_sge_list(qp, 1, &sge);
}

// The data of the newest request, `bytes` that copy(to) writes. Their address is known when they no
// longer move: in wr_complete().
template <typename Copy>
void set_inline_data(ibv_qp_ex* qp, std::size_t bytes, Copy&& copy) {
    SendBuilder& builder = builder_of(qp);
    SendBuilder::Entry* entry = current(builder);
    if (entry == nullptr)
        return;
    if (bytes > face(qp).core->cap().max_inline_data) {
        builder.error = ENOMEM;
        return;
    }
    entry->inline_first = builder.inline_used;
    builder.inline_used += bytes;
    if (builder.inline_used > builder.inline_bytes.size()) [[unlikely]]
        builder.inline_bytes.resize(2 * builder.inline_used);
    copy(builder.inline_bytes.data() + entry->inline_first);
    builder.sges.resize(entry->sge_first);
    builder.sges.push_back({0, static_cast<std::uint32_t>(bytes), 0});
    entry->sge_count = 1;
    entry->work.flags |= IBV_SEND_INLINE;
}

void wr_set_inline_data_list(ibv_qp_ex* qp, std::size_t count, const ibv_data_buf* pieces) {
    const std::span list(pieces, count);
    std::size_t bytes = 0;
    for (const ibv_data_buf& piece : list)
        bytes += piece.length;
    set_inline_data(qp, bytes, [list](std::byte* to) {
        for (const ibv_data_buf& piece : list) {
            std::copy_n(static_cast<const std::byte*>(piece.addr), piece.length, to);
            to += piece.length;
        }
    });
}

void wr_set_inline_data(ibv_qp_ex* qp, void* data, std::size_t bytes) {
    set_inline_data(qp, bytes, [data, bytes](std::byte* to) {
        std::copy_n(static_cast<const std::byte*>(data), bytes, to);
    });
}

void wr_start(ibv_qp_ex* qp) {
    SendBuilder& builder = builder_of(qp);
    builder.mutex.lock();
    builder.error = 0;
}

int finish(SendBuilder& builder, int error) {
    builder.entries.clear();
    builder.sges.clear();
    builder.inline_used = 0;
    builder.mutex.unlock();
    return error;
}

int wr_complete(ibv_qp_ex* qp) {
    FaceQp& pair = face(qp);
    SendBuilder& builder = *pair.builder;
    int error = builder.error;
    if (error != 0)
        return finish(builder, error);
    {
        const auto guard = pair.engine->lock();
        for (SendBuilder::Entry& entry : builder.entries) {
            if ((entry.work.flags & IBV_SEND_INLINE) != 0) {
                builder.sges[entry.sge_first].addr = reinterpret_cast<std::uintptr_t>(
                    builder.inline_bytes.data() + entry.inline_first);
            }
            entry.work.sges = {builder.sges.data() + entry.sge_first, entry.sge_count};
            error = pair.core->enqueue_send(entry.work);
            if (error != 0) {
                pair.core->cancel_enqueued();
                break;
            }
        }
        pair.core->ring(pair.engine->now());
    }
    return finish(builder, error);
}

void wr_abort(ibv_qp_ex* qp) {
    finish(builder_of(qp), 0);
}

}  // namespace

void fill_qp_ex(ibv_qp_ex* qp) {
    qp->wr_send = wr_send;
    qp->wr_send_imm = wr_send_imm;
    qp->wr_send_inv = wr_send_inv;
    qp->wr_rdma_read = wr_rdma_read;
    qp->wr_rdma_write = wr_rdma_write;
    qp->wr_rdma_write_imm = wr_rdma_write_imm;
    qp->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
    qp->wr_atomic_fetch_add = wr_atomic_fetch_add;
    qp->wr_set_ud_addr = wr_set_ud_addr;
    qp->wr_set_sge = wr_set_sge;
    qp->wr_set_sge_list = wr_set_sge_list;
    qp->wr_set_inline_data = wr_set_inline_data;
    qp->wr_set_inline_data_list = wr_set_inline_data_list;
    qp->wr_start = wr_start;
    qp->wr_complete = wr_complete;
    qp->wr_abort = wr_abort;
}

void fill_dv_qp_ex(mlx5dv_qp_ex* qp) {
    qp->wr_set_dc_addr = wr_set_dc_addr;
    qp->wr_set_dc_addr_stream = wr_set_dc_addr_stream;
}

}  // namespace tagwire::vhca
