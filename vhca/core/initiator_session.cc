// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/core/initiator_session.hpp"

#include "vhca/core/device_impl.hpp"

namespace tagwire::vhca {

bool InitiatorSession::is_with(const SendRequest& request) const {
    return is_open_ && request.route == qp_.context().route() &&
           request.remote_qpn == qp_.context().attr().dest_qp_num && request.dc_key == key_;
}

void InitiatorSession::open(const SendRequest& request) {
    close();
    const DcPeer peer{qp_.device.new_session(), qp_.context().peer().stream};
    qp_.context().set_peer(request.route, request.remote_qpn, peer);
    key_ = request.dc_key;
    began_ = qp_.device.now;
    is_open_ = is_connect_due_ = true;
    is_answered_ = false;  // a late answer may have come to the session before
}

bool InitiatorSession::connect(std::uint64_t psn) {
    Packet packet;
    packet.opcode = Opcode::kDcConnect;
    qp_.context().address(packet);
    packet.psn = static_cast<std::uint32_t>(psn & kPsnMask);
    packet.address = key_;
    packet.length = connect_word(qp_.context().attr().path_mtu, qp_.context().attr().max_rd_atomic);
    if (!qp_.device.send_short(qp_.context().route(), packet))
        return false;
    is_connect_due_ = false;
    return true;
}

void InitiatorSession::close() {
    if (!is_open_)
        return;
    key_ = 0;
    began_ = 0;
    is_open_ = is_answered_ = false;
    Packet packet;
    packet.opcode = Opcode::kDcDisconnect;
    qp_.context().address(packet);
    qp_.device.send_short(qp_.context().route(),
                          packet);  // lost: the target asks when it needs the room
}

/// A target that gave our place away would take a request for a new one: not after it may have.
bool InitiatorSession::may_connect_again() const {
    return is_open_ && !is_answered_ && qp_.device.now - began_ < DcTarget::kSilence / 2;
}

void InitiatorSession::note_no_room() {
    if (may_connect_again())
        began_ = qp_.device.now;
}

}  // namespace tagwire::vhca
