// SPDX-License-Identifier: BSD-3-Clause
// The requester of a DCI: it talks to one target at a time.
//
// The request at the cursor says to whom it goes. If that is not who the session is with, all that
// is under way has to be acknowledged first; then the old target is told that the session is over,
// and a connect packet goes ahead of the first request to the new one. Nobody waits for an answer:
// a target that did not get it refuses the request, or is silent, and both come again.
//
// Sequence numbers go on from one session to the next, so what comes late is never mistaken.
#include "vhca/core/device_impl.hpp"
#include "vhca/core/sequence.hpp"

namespace tagwire::vhca {

/// False: the request does not start now.
bool Requester::takes_care(const SendRequest& request) {
    if (request.refused != IBV_WC_SUCCESS) {
        fault(request.refused);
        return false;
    }
    return is_connected(request);
}

bool Requester::is_connected(const SendRequest& request) {
    const bool is_same = dc_.is_open && request.route == qp_.route() &&
                         request.remote_qpn == qp_.attr().dest_qp_num && request.dc_key == dc_.key;
    if (is_same)
        return true;
    if (cursor_ == done_) {
        disconnect();
        const DcPeer peer{qp_.device.new_session(), qp_.peer().stream};
        qp_.set_peer(request.route, request.remote_qpn, peer);
        dc_ = {.key = request.dc_key, .began = qp_.device.now, .is_open = true};
        hold_ |= kConnects;
    }
    return false;
}

// A session begins when its first request goes, not when that is enqueued.
bool Requester::goes_to(Route route, std::uint32_t qpn) {
    if (done_ == head_)
        return qp_.route() == route && qp_.attr().dest_qp_num == qpn;
    const SendRequest& newest = at(head_ - 1);
    return newest.route == route && newest.remote_qpn == qpn;
}

bool Requester::send_connect() {
    Packet packet;
    packet.opcode = Opcode::kDcConnect;
    qp_.address(packet);
    packet.psn = static_cast<std::uint32_t>(una_ & kPsnMask);
    packet.address = dc_.key;
    packet.length = connect_word(qp_.attr().path_mtu, qp_.attr().max_rd_atomic);
    if (!qp_.device.send_short(qp_.route(), packet))
        return false;
    hold_ &= static_cast<std::uint8_t>(~kConnects);
    return true;
}

void Requester::disconnect() {
    if (!dc_.is_open)
        return;
    dc_ = {};
    Packet packet;
    packet.opcode = Opcode::kDcDisconnect;
    qp_.address(packet);
    qp_.device.send_short(qp_.route(), packet);  // lost: the target asks when it needs the room
}

/// A target that gave our place away would take a request for a new one: not after it may have.
bool Requester::may_connect_again() const {
    return dc_.is_open && !dc_.is_answered && qp_.device.now - dc_.began < DcTarget::kSilence / 2;
}

void Requester::receive_refusal(const Packet& packet) {
    if (una_ == sent_ || distance(packet.psn, una_) != 0)
        return;
    const auto value = static_cast<std::uint8_t>(packet.syndrome & ~kSyndromeKindMask);
    if ((packet.syndrome & kSyndromeKindMask) == kRnrSyndrome) {
        ++qp_.device.counters.rnr_naks;
        retries_left_ = qp_.attr().retry_cnt;  // it is there, and the wait may be long
        if (may_connect_again())
            dc_.began = qp_.device.now;  // nothing of this session was taken
        receive_rnr(value);
    } else {
        receive_nak(value);
    }
}

void Requester::receive_inquiry(Route from, const Packet& packet, bool is_current) {
    if (!is_current || !dc_.is_open)
        qp_.device.answer_inquiry(from, packet);  // again: the disconnect was lost
    else if (done_ != rung_ || una_ != sent_)
        static_cast<void>(send_connect());  // still in use
    else
        disconnect();
}

}  // namespace tagwire::vhca
