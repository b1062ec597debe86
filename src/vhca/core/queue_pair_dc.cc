// SPDX-License-Identifier: BSD-3-Clause
// A queue pair as DCI, as DCT, or as part of one.
#include <cerrno>

#include "vhca/core/device_impl.hpp"
#include "vhca/core/queue_pair.hpp"

namespace tagwire::vhca {

void QueuePair::set_number(std::uint32_t number) {
    table_number_ = number;
    number_ = is_dct() ? 0 : number;
}

void QueuePair::set_peer(Route route, std::uint32_t qpn, const DcPeer& peer) {
    route_ = route;
    attr_.dest_qp_num = qpn;
    peer_ = peer;
}

void QueuePair::adopt(std::uint32_t number, ibv_qp_state state, const ibv_qp_attr& attr) {
    number_ = number;
    state_ = state;
    attr_ = attr;
    mtu_bytes_ = 128U << attr.path_mtu;
}

void QueuePair::receive_dc(Route from, Packet& packet) {
    const bool receives = state_ >= IBV_QPS_RTR && state_ <= IBV_QPS_SQE;
    const bool is_sound = packet.pkey == kDefaultPkey;
    if (is_dct() && receives && is_sound) {
        target_->receive(from, packet);
        return;
    }
    QueuePair* stream = has_streams() ? initiator_->find(packet.stream) : this;
    if (is_dci() && is_sound && stream != nullptr && packet.has(kIsResponse))
        stream->receive_as_initiator(from, packet);
    else
        ++device.counters.misaddressed;
}

void QueuePair::receive_as_initiator(Route from, Packet& packet) {
    const bool is_current = packet.qkey == peer_.session &&
                            packet.source_qpn == attr_.dest_qp_num && from == route_ &&
                            state_ == IBV_QPS_RTS;
    if (packet.opcode == Opcode::kDcInquire) {
        from.service = route_.service;
        requester_.receive_inquiry(from, packet, is_current);
    } else if (!is_current) {
        ++device.counters.misaddressed;
    } else if (packet.opcode == Opcode::kDcRefuse) {
        requester_.receive_refusal(packet);
    } else {
        packet.opcode = static_cast<Opcode>(static_cast<unsigned>(packet.opcode) & ~kTransportMask);
        requester_.session().note_answered();
        requester_.receive(packet);
    }
}

void QueuePair::enter_dc_error() {
    if (has_streams()) {
        initiator_->enter_error();
    } else if (target_ != nullptr) {
        target_->enter_error();
    } else if (is_dci()) {
        requester_.session().close();
        if (owner_->has_streams())
            owner_->initiator_->note_failed();
    }
}

void QueuePair::cancel_enqueued() {
    if (has_streams())
        initiator_->cancel_enqueued();
    else
        requester_.queue().cancel_enqueued();
}

void QueuePair::note_stream_polled(std::uint32_t place) {
    if (owner_->has_streams())
        owner_->initiator_->note_polled(requester_.queue().at(place - 1).ring_place);
}

int QueuePair::reset_stream(std::uint16_t stream) {
    return has_streams() && state_ == IBV_QPS_RTS ? initiator_->reset_stream(stream) : EINVAL;
}

void QueuePair::close_session() {
    device.unschedule(*this);
    responder_.abandon();
    responder_.reset();
    state_ = IBV_QPS_RESET;
}

QueuePair* QueuePair::find_reader(std::uint32_t dctn) {
    if (owner_ == this)
        return requester_.queue().has_room_for_rendezvous() ? this : nullptr;
    return owner_->target_->find_reader(route_, dctn);
}

}  // namespace tagwire::vhca
