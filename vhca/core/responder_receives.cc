// SPDX-License-Identifier: BSD-3-Clause
// Receives that the messages of the peer fill: taken, completed, failed.
#include "vhca/core/device_impl.hpp"
#include "vhca/core/responder.hpp"

namespace tagwire::vhca {

/// One that an earlier message left is used first.
bool Responder::take_receive() {
    if (receive_ == ReceiveQueue::kNone) {
        auto* srq = static_cast<SharedReceiveQueue*>(qp_.config.srq);
        receive_ = srq != nullptr ? srq->take() : receives_->take();
    }
    return receive_ != ReceiveQueue::kNone;
}

bool Responder::goes_into_cqe(const Packet& packet) const {
    const std::size_t most = qp_.config.data_in_cqe.received;
    return most != 0 && packet.payload.size() <= most && packet.has(kIsStart) &&
           packet.has(kIsEnd) && qp_.matching() == nullptr;
}

void Responder::complete_receive(ibv_wc_status status, const Packet* packet, Route from,
                                 std::span<const std::byte> data) {
    const std::uint32_t place = receive_;
    receive_ = ReceiveQueue::kNone;
    Cqe* cqe = cq_->claim();
    if (cqe == nullptr) [[unlikely]] {
        receives_->release(place);
        tagged_ = {};
        return;
    }
    *cqe = {};
    cqe->wc.wr_id = receives_->at(place).wr_id;
    cqe->wc.status = status;
    cqe->wc.opcode = IBV_WC_RECV;
    cqe->wc.qp_num = qp_.number();
    cqe->time = qp_.device.now;
    cqe->from = from;
    cqe->qp = &qp_.dc().owner();
    cqe->from_queue = receives_;
    cqe->place = place;
    cqe->is_solicited = status != IBV_WC_SUCCESS || packet->solicited;
    cqe->data = data;
    if (packet != nullptr) {
        describe(*cqe, *packet, from);
        cqe->wc.opcode = packet->has(kIsWrite) ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
        cqe->wc.byte_len = static_cast<std::uint32_t>(offset_);
    }
    if (qp_.matching() != nullptr) [[unlikely]]
        complete_untagged(*cqe);
    cq_->publish(*cqe);
}

void Responder::describe(Cqe& cqe, const Packet& packet, Route from) const {
    const bool is_ud = qp_.config.type == IBV_QPT_UD;
    cqe.wc.imm_data = packet.imm;  // or invalidated_rkey, which is in the same place
    cqe.wc.wc_flags = (packet.has(kHasImm) ? unsigned{IBV_WC_WITH_IMM} : 0U) |
                      (packet.has(kHasIeth) ? unsigned{IBV_WC_WITH_INV} : 0U);
    if (is_ud && qp_.device.grh != nullptr)
        cqe.wc.wc_flags |= unsigned{IBV_WC_GRH};
    cqe.wc.src_qp = is_ud ? packet.source_qpn : qp_.context().attr().dest_qp_num;
    cqe.wc.slid = static_cast<std::uint16_t>(from.node);
}

/// The message under way has a receive, tagged or not, and that ends here.
void Responder::fail_message(ibv_wc_status status, Route from) {
    if (tagged_.entry != nullptr)
        fail_tagged(status, from);
    else
        complete_receive(status, nullptr, from);
}

}  // namespace tagwire::vhca
