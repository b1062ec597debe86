// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/core/dc_role.hpp"

#include <cerrno>
#include <new>

#include "vhca/core/device_impl.hpp"

namespace tagwire::vhca {

DcRole::DcRole(QueuePair& qp, QueuePair* owner) : qp_(qp), owner_(owner == nullptr ? &qp : owner) {}
DcRole::~DcRole() = default;

int DcRole::allocate() {
    const DcConfig& dc = qp_.config.dc;
    if (dc.kind == DcKind::kTarget) {
        target_.reset(new (std::nothrow) DcTarget(qp_));
        return target_ == nullptr ? ENOMEM : 0;
    }
    if (dc.has_streams) {
        initiator_.reset(new (std::nothrow) DcInitiator(qp_));
        return initiator_ == nullptr ? ENOMEM : 0;
    }
    return 0;
}

void DcRole::receive(Route from, Packet& packet) {
    const ibv_qp_state state = qp_.state();
    const bool receives = state >= IBV_QPS_RTR && state <= IBV_QPS_SQE;
    const bool is_sound = packet.pkey == kDefaultPkey;
    if (target_ != nullptr && receives && is_sound) {
        target_->receive(from, packet);
        return;
    }
    QueuePair* stream = initiator_ != nullptr ? initiator_->find(packet.stream) : &qp_;
    const bool is_response = packet.has(kIsResponse);
    if (qp_.config.dc.kind == DcKind::kInitiator && is_sound && stream != nullptr && is_response)
        stream->dc().receive_as_initiator(from, packet);
    else
        ++qp_.device.counters.misaddressed;
}

void DcRole::receive_as_initiator(Route from, Packet& packet) {
    const QpContext& context = qp_.context();
    Requester& requester = qp_.requester();
    const bool is_current = packet.qkey == context.peer().session &&
                            packet.source_qpn == context.attr().dest_qp_num &&
                            from == context.route() && qp_.state() == IBV_QPS_RTS;
    if (packet.opcode == Opcode::kDcInquire) {
        from.service = context.route().service;
        requester.receive_inquiry(from, packet, is_current);
    } else if (!is_current) {
        ++qp_.device.counters.misaddressed;
    } else if (packet.opcode == Opcode::kDcRefuse) {
        requester.receive_refusal(packet);
    } else {
        packet.opcode = static_cast<Opcode>(static_cast<unsigned>(packet.opcode) & ~kTransportMask);
        requester.session().note_answered();
        requester.receive(packet);
    }
}

void DcRole::enter_error() {
    if (initiator_ != nullptr) {
        initiator_->enter_error();
    } else if (target_ != nullptr) {
        target_->enter_error();
    } else if (qp_.config.dc.kind == DcKind::kInitiator) {
        qp_.requester().session().close();
        if (DcInitiator* streams = owner_->dc().streams(); streams != nullptr)
            streams->note_failed();
    }
}

void DcRole::retire() {
    if (initiator_ != nullptr)
        initiator_->reset();
    if (target_ != nullptr)
        target_->close_all();
}

void DcRole::note_polled(std::uint32_t slot) {
    if (DcInitiator* streams = owner_->dc().streams(); streams != nullptr)
        streams->note_polled(qp_.requester().queue().at(slot - 1).ring_place);
}

QueuePair* DcRole::find_reader(std::uint32_t dctn) {
    if (!is_owned())
        return qp_.requester().queue().has_room_for_rendezvous() ? &qp_ : nullptr;
    return owner_->dc().target_->find_reader(qp_.context().route(), dctn);
}

}  // namespace tagwire::vhca
