// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/connect/lane_connection.hpp"

#include <utility>

#include "protocols/request/rail.hpp"
#include "ucs/log/log.hpp"

namespace tagwire::proto {

bool LaneConnection::is_about(const Offer& offer) const {
    return rail_->index() == offer.peer_rail && peer_rail_ == offer.rail;
}

ucs_status_t LaneConnection::make() {
    const PeerRail& peer = wireup_->peer_rail(peer_rail_);
    const ucs_status_t status = wireup_->make_ep(*rail_, peer, &ep_);
    if (status == UCS_OK && rail_->connects_to_iface()) {
        is_connected_ = true;
        if (ops_ == &kStripeOps && rail_->goes_through_kernel())
            probe();
        else
            is_ready_ = true;
    }
    return status;
}

void LaneConnection::probe() {
    probe_ = std::make_unique<Probe>();
    probe_->func = [](uct_completion_t* self) {
        static_cast<Probe*>(self)->has_left = self->status == UCS_OK;
    };
    probe_->count = 1;
    probe_->status = UCS_OK;
    uct_ep_check(ep_, 0, nullptr);
    // Refused for want of room, the lane is not used. A failure is reported as that of the lane.
    if (uct_ep_flush(ep_, 0, probe_.get()) == UCS_OK)
        probe_->has_left = true;
}

ucs_status_t LaneConnection::send_offer() {
    ReserveBytes address(rail_->attr().ep_addr_len);
    const ucs_status_t status =
        uct_ep_get_address(ep_, reinterpret_cast<uct_ep_addr_t*>(address.data()));
    if (status != UCS_OK)
        return status;
    has_offered_ = true;
    wireup_->queue(
        ops_->offer,
        {0, rail_->index(), peer_rail_, is_connected_, static_cast<std::uint8_t>(address.size())},
        address);
    return UCS_OK;
}

bool LaneConnection::fits(const OfferMessage& message) const {
    const PeerRail& peer = wireup_->peer_rail(peer_rail_);
    return !rail_->connects_to_iface() && peer.transport == rail_->transport() &&
           message.address.size() == rail_->attr().ep_addr_len &&
           rail_->reaches(peer.device, peer.iface);
}

bool LaneConnection::on_offer(const OfferMessage& message) {
    if (!fits(message) || (ep_ == nullptr && make() != UCS_OK))
        return false;
    if (!is_connected_) {
        const PeerRail& peer = wireup_->peer_rail(peer_rail_);
        const ucs_status_t status = uct_ep_connect_to_ep(
            ep_, reinterpret_cast<const uct_device_addr_t*>(peer.device.data()),
            reinterpret_cast<const uct_ep_addr_t*>(message.address.data()));
        if (status != UCS_OK) {
            TW_LOG_REPEATED(ucs::LogLevel::kError, wireup_->refusals().due("offer"),
                            "endpoint of %s: the peer's offer cannot be used: %s",
                            rail_->transport(), ucs_status_string(status));
            return false;
        }
        is_connected_ = true;
    }
    is_ready_ = is_ready_ || message.offer.is_connected != 0;
    if (has_offered_)
        wireup_->queue(ops_->ready, {0, rail_->index(), peer_rail_, 1, 0}, {});
    else if (send_offer() != UCS_OK)
        return false;
    return true;
}

bool LaneConnection::on_ready() {
    is_ready_ = is_ready_ || is_connected_;
    return is_connected_;
}

void LaneConnection::refuse() {
    wireup_->queue(ops_->refuse, {0, rail_->index(), peer_rail_, 0, 0}, {});
}

void LaneConnection::drop() {
    has_offered_ = is_connected_ = is_ready_ = false;
    if (const uct_ep_h old = std::exchange(ep_, nullptr))
        wireup_->destroy_ep(old);  // and what the probe waits for
    probe_.reset();
}

}  // namespace tagwire::proto
