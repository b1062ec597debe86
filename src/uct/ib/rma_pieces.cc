// SPDX-License-Identifier: BSD-3-Clause
// Many puts or gets in one call: chains of requests, each given to the device by one call, with one
// completion, which is that of all before it.
#include <algorithm>
#include <array>

#include "uct/ib/gather.hpp"
#include "uct/ib/message_iface.hpp"
#include "uct/ib/rma_ep.hpp"
#include "uct/pieces.hpp"

namespace tagwire::ib {

namespace {

constexpr std::size_t kChainMax = 64;

}  // namespace

/// Posts a chain of the next pieces: as many as there is room for, up to kChainMax.
ucs_status_t RmaEp::post_chain(const uct::Pieces& pieces, std::size_t* begun_p) {
    MessageIface& own = owner();
    const char* const call = pieces.is_put ? "put_pieces" : "get_pieces";
    const ibv_wr_opcode opcode = pieces.is_put ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
    SendOp* op = nullptr;
    ucs_status_t status = take(own.small, 0, &op);
    if (status != UCS_OK) [[unlikely]]
        return status;
    std::size_t most = std::min(pieces.count - *begun_p, kChainMax);
    while (most > 1 && !has_room(static_cast<unsigned>(most)))
        most /= 2;
    std::array<ibv_send_wr, kChainMax> requests;
    std::array<Gather, kChainMax> gathers;
    std::size_t count = 0;
    for (; count < most; ++count) {
        const tagwire_uct_piece_t& piece = pieces.first[*begun_p + count];
        const uct_iov_t iov{piece.buffer, piece.length, piece.memh, 0, 1};
        status = gathers[count].add(call, &iov, 1, 1, own.limits.message_max);
        if (status != UCS_OK) [[unlikely]]
            break;
        requests[count] = remote(opcode, gathers[count].sges, gathers[count].count,
                                 piece.remote_addr, piece.rkey);
        if (count > 0)
            requests[count - 1].next = &requests[count];
    }
    if (count == 0) {
        op->pool->put(op);
        own.source->gave_up(*this);
        return status;
    }
    op->kind = SendOp::Kind::kUser;
    op->ep = this;
    op->comp = pieces.comp;
    ++pieces.comp->count;
    const ucs_status_t posted =
        post(requests[0], requests[count - 1], static_cast<unsigned>(count), true);
    if (posted != UCS_OK) [[unlikely]] {
        --pieces.comp->count;
        op->pool->put(op);
        return posted;
    }
    queue->append(op);
    *begun_p += count;
    return status;
}

ucs_status_t RmaEp::move_pieces(uct_ep_h handle, const uct::Pieces& pieces, std::size_t* begun_p) {
    RmaEp& ep = *static_cast<RmaEp*>(handle);
    while (*begun_p < pieces.count) {
        const ucs_status_t status = ep.post_chain(pieces, begun_p);
        if (status == UCS_ERR_NO_RESOURCE && *begun_p > 0)
            return UCS_OK;
        if (status != UCS_OK)
            return status;
    }
    return UCS_OK;
}

}  // namespace tagwire::ib
