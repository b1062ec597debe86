// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/core/send_queue.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>

#include "vhca/core/device_impl.hpp"
#include "vhca/core/sequence.hpp"

namespace tagwire::vhca {

namespace {

constexpr unsigned kSends = 1U << IBV_WR_SEND | 1U << IBV_WR_SEND_WITH_IMM;
constexpr unsigned kWrites = 1U << IBV_WR_RDMA_WRITE | 1U << IBV_WR_RDMA_WRITE_WITH_IMM;
constexpr unsigned kAtomics = 1U << IBV_WR_ATOMIC_CMP_AND_SWP | 1U << IBV_WR_ATOMIC_FETCH_AND_ADD;

unsigned opcodes_of(const QueuePair& qp) {
    switch (qp.config.type) {
        case IBV_QPT_RC:
        case IBV_QPT_DRIVER:
            return kSends | kWrites | 1U << IBV_WR_SEND_WITH_INV | 1U << IBV_WR_RDMA_READ |
                   (qp.device.config.has_atomics ? kAtomics : 0);
        case IBV_QPT_UC:
            return kSends | kWrites;
        default:
            return kSends;
    }
}

ibv_wc_opcode completion_opcode(ibv_wr_opcode opcode) {
    switch (opcode) {
        case IBV_WR_RDMA_WRITE:
        case IBV_WR_RDMA_WRITE_WITH_IMM:
            return IBV_WC_RDMA_WRITE;
        case IBV_WR_RDMA_READ:
            return IBV_WC_RDMA_READ;
        case IBV_WR_ATOMIC_CMP_AND_SWP:
            return IBV_WC_COMP_SWAP;
        case IBV_WR_ATOMIC_FETCH_AND_ADD:
            return IBV_WC_FETCH_ADD;
        default:
            return IBV_WC_SEND;
    }
}

}  // namespace

int SendQueue::allocate() {
    const ibv_qp_cap& cap = qp_.config.cap;
    // The device's own requests for a tag-matching SRQ access memory of the SRQ's domain.
    pd_ = owned_pd_ = qp_.config.pd;
    if (qp_.matching() != nullptr)
        owned_pd_ = static_cast<SharedReceiveQueue*>(qp_.config.srq)->pd;
    const std::size_t data =
        std::max<std::size_t>(cap.max_send_sge * sizeof(ibv_sge), cap.max_inline_data);
    stride_ = sizeof(SendRequest) + ((data + 15) & ~std::size_t{15});
    const std::uint32_t slots = std::bit_ceil(std::max(cap.max_send_wr, 1U));
    mask_ = slots - 1;
    memory_.reset(new (std::nothrow) std::byte[slots * stride_]);
    return memory_ == nullptr ? ENOMEM : 0;
}

int SendQueue::check(const SendWork& work) const {
    const ibv_qp_cap& cap = qp_.config.cap;
    if (head_ - free_ == cap.max_send_wr) [[unlikely]]
        return ENOMEM;
    const auto opcode = static_cast<unsigned>(work.opcode);
    if (opcode >= 32 || (opcodes_of(qp_) >> opcode & 1) == 0 || work.sges.size() > cap.max_send_sge)
        [[unlikely]] {
        return EINVAL;
    }
    if ((work.flags & IBV_SEND_INLINE) != 0) {
        constexpr unsigned kNoInline = kAtomics | 1U << IBV_WR_RDMA_READ;
        if ((kNoInline >> opcode & 1) != 0)
            return EINVAL;
        return total_bytes(work.sges) > cap.max_inline_data ? ENOMEM : 0;
    }
    return 0;
}

ibv_wc_status SendQueue::find_fault(const SendRequest& request) const {
    if (request.wants_data()) {
        if (qp_.context().attr().max_rd_atomic == 0)
            return IBV_WC_LOC_QP_OP_ERR;
        if (request.is_atomic() && request.length != sizeof(std::uint64_t))
            return IBV_WC_LOC_LEN_ERR;
    }
    if (qp_.config.type == IBV_QPT_UD && request.length > qp_.context().mtu())
        return IBV_WC_LOC_LEN_ERR;
    return IBV_WC_SUCCESS;
}

void SendQueue::fill(SendRequest& request, const SendWork& work) {
    const std::uint64_t length = total_bytes(work.sges);
    request.wr_id = work.wr_id;
    request.first_psn = next_psn_;
    request.remote_addr = work.remote_addr;
    request.compare_add = work.compare_add;
    request.swap = work.swap;
    request.route = work.route;
    request.imm = work.imm;
    request.rkey = work.rkey;
    request.remote_qpn = work.remote_qpn;
    request.remote_qkey = work.remote_qkey;
    request.opcode = work.opcode;
    request.flags = work.flags;
    const std::uint64_t length_max = qp_.device.config.message_bytes_max;
    request.length = static_cast<std::uint32_t>(std::min(length, length_max));
    request.dc_key = work.dc_key;
    request.is_nop = work.is_nop;
    request.is_owned = false;
    request.refused = work.refused != IBV_WC_SUCCESS ? work.refused
                      : length > length_max          ? IBV_WC_LOC_LEN_ERR
                                                     : find_fault(request);
    request.needs_care =
        request.refused != IBV_WC_SUCCESS || qp_.config.dc.kind == DcKind::kInitiator;
    const bool is_single = request.is_atomic() || request.refused != IBV_WC_SUCCESS;
    request.packets = work.is_nop ? 0
                      : is_single || request.length <= qp_.context().mtu()
                          ? 1
                          : packets_of(request.length, qp_.context().mtu());
    next_psn_ += request.packets;
    request.sge_count = static_cast<std::uint16_t>(work.sges.size());
    if (!request.is_inline()) {
        std::copy(work.sges.begin(), work.sges.end(), request.sges().begin());
        return;
    }
    std::byte* to = request.data();
    for (const ibv_sge& sge : work.sges) {
        if (sge.length != 0) {
            std::memcpy(to, reinterpret_cast<const void*>(sge.addr), sge.length);
            to += sge.length;
        }
    }
}

int SendQueue::enqueue(const SendWork& work) {
    if (const int error = check(work); error != 0) [[unlikely]]
        return error;
    fill(*new (&at(head_)) SendRequest, work);
    ++head_;
    return 0;
}

void SendQueue::cancel_enqueued() {
    if (head_ != rung_) {
        next_psn_ = at(rung_).first_psn;
        head_ = rung_;
    }
}

bool SendQueue::is_signaled(const SendRequest& request) const {
    return qp_.config.signals_all || (request.flags & IBV_SEND_SIGNALED) != 0;
}

bool SendQueue::goes_into_cqe(const SendRequest& request) const {
    return request.length <= qp_.config.data_in_cqe.read && request.packets == 1 &&
           !request.is_owned && is_signaled(request);
}

void SendQueue::complete_oldest(ibv_wc_status status, std::span<const std::byte> data) {
    const SendRequest& request = at(done_++);
    if (qp_.device.config.frees_when_completed || qp_.config.keeps_places)
        free_ = done_;
    if (request.is_owned) [[unlikely]] {
        complete_owned(request, status);
        return;
    }
    if (status == IBV_WC_SUCCESS && !is_signaled(request))
        return;
    auto& cq = static_cast<CompletionQueue&>(*qp_.config.send_cq);
    Cqe* cqe = cq.claim();
    if (cqe == nullptr) [[unlikely]]
        return;
    *cqe = {};
    cqe->wc.wr_id = request.wr_id;
    cqe->wc.status = status;
    cqe->wc.opcode = completion_opcode(request.opcode);
    cqe->wc.byte_len = request.length;
    cqe->wc.qp_num = qp_.number();
    cqe->time = qp_.device.now;
    cqe->qp = &qp_;
    cqe->place = done_;
    cqe->is_solicited = status != IBV_WC_SUCCESS;
    cqe->data = data;
    cq.publish(*cqe);
}

void SendQueue::reset() {
    if (qp_.matching() != nullptr)
        drop_owned();
    free_ = done_ = rung_ = head_ = 0;
}

}  // namespace tagwire::vhca
