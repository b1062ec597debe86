// SPDX-License-Identifier: BSD-3-Clause
// Posting to an initiator by the calls of an extended queue pair, inline: they are half of the work
// of a short message.
//
// Threads: owner of the interface.
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "uct/ib/dc/dc_verbs.hpp"
#include "uct/ib/gather.hpp"

namespace tagwire::dc {

namespace detail {

[[gnu::noinline]] inline void begin_other(ibv_qp_ex* qp, const ibv_send_wr& request) {
    const auto& rdma = request.wr.rdma;
    const auto& atomic = request.wr.atomic;
    switch (request.opcode) {
        case IBV_WR_SEND_WITH_IMM:
            return ibv_wr_send_imm(qp, request.imm_data);
        case IBV_WR_RDMA_WRITE:
            return ibv_wr_rdma_write(qp, rdma.rkey, rdma.remote_addr);
        case IBV_WR_RDMA_READ:
            return ibv_wr_rdma_read(qp, rdma.rkey, rdma.remote_addr);
        case IBV_WR_ATOMIC_CMP_AND_SWP:
            return ibv_wr_atomic_cmp_swp(qp, atomic.rkey, atomic.remote_addr, atomic.compare_add,
                                         atomic.swap);
        case IBV_WR_ATOMIC_FETCH_AND_ADD:
            return ibv_wr_atomic_fetch_add(qp, atomic.rkey, atomic.remote_addr, atomic.compare_add);
        default:
            return ibv_wr_send(qp);
    }
}

[[gnu::always_inline]] inline void begin(ibv_qp_ex* qp, const ibv_send_wr& request) {
    qp->wr_id = request.wr_id;
    qp->wr_flags = request.send_flags;
    if (request.opcode == IBV_WR_SEND) [[likely]]
        return ibv_wr_send(qp);
    begin_other(qp, request);
}

[[gnu::noinline]] inline void set_pieces(ibv_qp_ex* qp, const ibv_send_wr& request) {
    const auto count = static_cast<std::size_t>(request.num_sge);
    std::array<ibv_data_buf, ib::kSgesMax> pieces;
    for (std::size_t i = 0; i < count; ++i) {
        pieces[i] = {reinterpret_cast<void*>(request.sg_list[i].addr),  // NOLINT: as verbs has it
                     request.sg_list[i].length};
    }
    ibv_wr_set_inline_data_list(qp, count, pieces.data());
}

[[gnu::always_inline]] inline void set_data(ibv_qp_ex* qp, const ibv_send_wr& request) {
    const auto count = static_cast<std::size_t>(request.num_sge);
    if ((request.send_flags & IBV_SEND_INLINE) == 0)
        return ibv_wr_set_sge_list(qp, count, request.sg_list);
    if (count == 1) [[likely]] {
        // NOLINTNEXTLINE: as verbs has it
        void* const data = reinterpret_cast<void*>(request.sg_list->addr);
        return ibv_wr_set_inline_data(qp, data, request.sg_list->length);
    }
    set_pieces(qp, request);
}

}  // namespace detail

/// A chain of requests as ibv_post_send() takes it, all to one target: none of them is posted, or
/// all. `stream` is ignored where the initiator has none. 0 or an errno value.
[[gnu::always_inline]] inline int post_to(const Initiator& initiator, const ibv_send_wr* first,
                                          const TargetAddress& target, std::uint16_t stream) {
    ibv_qp_ex* const qp = initiator.extended;
    ibv_wr_start(qp);
    for (const ibv_send_wr* request = first; request != nullptr; request = request->next) {
        detail::begin(qp, *request);
        if (initiator.has_streams)
            mlx5dv_wr_set_dc_addr_stream(initiator.mlx5, target.path, target.number, target.key,
                                         stream);
        else
            mlx5dv_wr_set_dc_addr(initiator.mlx5, target.path, target.number, target.key);
        detail::set_data(qp, *request);
    }
    return ibv_wr_complete(qp);
}

}  // namespace tagwire::dc
