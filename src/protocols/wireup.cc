// SPDX-License-Identifier: BSD-3-Clause
// Connects two workers. Each says hello once, over a transport that connects to an interface
// address; a hello carries the addresses of all rails, so connects that cross are one connection.
// Then each chooses the lane of its own messages. Lanes of rc need endpoints on both sides: their
// addresses are exchanged in offers, and a side sends when the other has said that it is connected.
#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "protocols/device_tags.hpp"
#include "protocols/endpoint.hpp"
#include "protocols/peer_table.hpp"
#include "protocols/rail.hpp"
#include "protocols/stripe.hpp"
#include "protocols/worker_core.hpp"
#include "ucs/log/log.hpp"

namespace tagwire::proto {

namespace {

template <class T>
void append(ReserveBytes* bytes, const T& value) {
    const auto* from = reinterpret_cast<const std::byte*>(&value);
    bytes->insert(bytes->end(), from, from + sizeof value);
}

void append(ReserveBytes* bytes, std::span<const std::byte> more) {
    bytes->insert(bytes->end(), more.begin(), more.end());
}

std::size_t pack_bytes(void* to, void* arg) {
    const auto& bytes = *static_cast<const ReserveBytes*>(arg);
    std::memcpy(to, bytes.data(), bytes.size());
    return bytes.size();
}

}  // namespace

ucs_status_t Endpoint::make_ep(Rail& rail, std::span<const std::byte> device,
                               std::span<const std::byte> iface, uct_ep_h* ep_p) {
    uct_ep_params_t params{};
    params.field_mask = UCT_EP_PARAM_FIELD_IFACE;
    params.iface = rail.iface();
    if (rail.connects_to_iface()) {
        params.field_mask |= UCT_EP_PARAM_FIELD_DEV_ADDR | UCT_EP_PARAM_FIELD_IFACE_ADDR;
        params.dev_addr = reinterpret_cast<const uct_device_addr_t*>(device.data());
        params.iface_addr = reinterpret_cast<const uct_iface_addr_t*>(iface.data());
    }
    const ucs_status_t status = uct_ep_create(&params, ep_p);
    if (status == UCS_OK) {
        rail.enable();
        worker.peers().map_lane(*ep_p, this);
    }
    return status;
}

ucs_status_t Endpoint::contact(const Address& to, std::string* why) {
    std::string reason;
    const auto tell = [&](const Rail& rail) {
        if (why != nullptr)
            *why += fmt::format("{}over {}:{}: {}", why->empty() ? "" : "; ", rail.transport(),
                                rail.device(), reason);
    };
    for (const auto& rail : worker.rails()) {
        if (to.transport != rail->transport())
            continue;
        if (!rail->reaches(to.device, to.iface, why == nullptr ? nullptr : &reason)) {
            tell(*rail);
            continue;
        }
        const ucs_status_t status = make_ep(*rail, to.device, to.iface, &contact_);
        if (status != UCS_OK) {
            if (why != nullptr) {
                reason = status == UCS_ERR_UNREACHABLE
                             ? "nobody takes connections there, the peer's worker or process has "
                               "gone"
                             : ucs_status_string(status);
                tell(*rail);
            }
            return status;
        }
        address_ = {worker_id, to.transport, to.device, to.iface};
        contact_rail_ = rail.get();
        number_ = worker.peers().next_connection();
        queue_wireup(hello_bytes());
        return UCS_OK;
    }
    if (why != nullptr && why->empty()) {
        *why = fmt::format("over {}: this worker has no such transport (TAGWIRE_TRANSPORTS)",
                           to.transport);
    }
    return UCS_ERR_UNREACHABLE;
}

/// Operations that wait to be sent go over a new connection.
void Endpoint::begin_anew() {
    disconnect();
    stripes_.reset();
    state_ = EpState::kGreeting;
    peer_names = 0;
    peer_is_closed = peer_may_go = false;
    has_said_bye_ = has_asked_ = has_left_ = false;
    farewell = UCS_OK;
    eager_is_paused_ = is_paused_ = false;
    told_to_pause_eager = told_to_pause = false;
    peer_rails_.clear();
    refused_.clear();
    controls_.clear();
    first_announced = placeholders_ = 0;
    update_direct();
    contact_again();
}

/// At a later progress if there is no memory now.
void Endpoint::contact_again() {
    const Address to = address_;
    const ucs_status_t status = contact(to, nullptr);
    owes_contact_ = status == UCS_ERR_NO_MEMORY;
    if (owes_contact_)
        return worker.peers().ask_wireup(*this);
    if (status != UCS_OK)
        fail(status);
}

ReserveBytes Endpoint::hello_bytes() const {
    ReserveBytes bytes;
    append(&bytes, Wireup{static_cast<std::uint32_t>(WireupOp::kHello), kWireVersion, worker.id(),
                          worker_id});
    append(&bytes, Hello{id, static_cast<std::uint32_t>(worker.rails().size()), peer_names, number_,
                         worker.peers().retired_id_of(worker_id)});
    for (const auto& rail : worker.rails()) {
        RailHead head{};
        std::string_view(rail->transport()).copy(head.transport, sizeof head.transport);
        head.domain = static_cast<std::uint8_t>(rail->domain_index());
        head.device_bytes = static_cast<std::uint8_t>(rail->device_address().size());
        head.iface_bytes = static_cast<std::uint8_t>(rail->iface_address().size());
        head.flags = rail->matches_tags() ? kRailMatchesTags : 0;
        append(&bytes, head);
        append(&bytes, rail->device_address());
        append(&bytes, rail->iface_address());
    }
    return bytes;
}

void Endpoint::queue_wireup(WireupOp op, const Offer& offer, std::span<const std::byte> address) {
    ReserveBytes bytes;
    append(&bytes, Wireup{static_cast<std::uint32_t>(op), kWireVersion, worker.id(), worker_id});
    append(&bytes, offer);
    append(&bytes, address);
    queue_wireup(std::move(bytes));
}

void Endpoint::queue_wireup(ReserveBytes bytes) {
    if (wireup_.size() >= kWireupMax) {
        TW_LOG_WARN("endpoint to worker %016lx ends: its peer takes no answers to its wire-up",
                    worker_id);
        return fail(UCS_ERR_EXCEEDS_LIMIT);
    }
    wireup_.push_back(std::move(bytes));
    worker.peers().ask_wireup(*this);
}

bool Endpoint::work_slowly() {
    if (std::exchange(is_stalled_, false)) {
        drain_and_arm();
        if (stripes_ != nullptr)
            stripes_->drain();
    }
    if (std::exchange(owes_contact_, false) && state_ != EpState::kFailed)
        peer_rails_.empty() ? contact_again() : answer_contact();
    return send_wireup() && !is_stalled_ && !owes_contact_;
}

/// Sends what of wire-up waits. False: it waits still.
bool Endpoint::send_wireup() {
    // A peer that has our hello may send, and by another lane than the device, which may hold
    // receives that match any peer.
    if (DeviceTags* tags = worker.device_tags(); tags != nullptr && !tags->may_greet())
        return false;
    while (!wireup_.empty() && contact_ != nullptr) {
        const ssize_t sent = uct_ep_am_bcopy(contact_, static_cast<std::uint8_t>(AmId::kWireup),
                                             pack_bytes, &wireup_.front(), 0);
        if (sent == UCS_ERR_NO_RESOURCE || sent == UCS_ERR_NO_MEMORY)
            return false;
        if (sent < 0) {
            fail(static_cast<ucs_status_t>(sent));
            return true;
        }
        wireup_.pop_front();
    }
    return true;
}

void Endpoint::on_hello(const Hello& hello, ucs::ReserveVector<PeerRail> rails) {
    const bool is_new = peer_names != hello.id;
    peer_names = hello.id;
    // Our hello went to an endpoint that this one has replaced, or it crosses theirs.
    if (contact_ != nullptr && hello.known != id)
        queue_wireup(hello_bytes());
    if (!is_new || state_ == EpState::kFailed)
        return;
    peer_rails_ = std::move(rails);
    answer_contact();
}

/// The peer has said hello: it hears from us, at a later progress if there is no memory now.
void Endpoint::answer_contact() {
    bool lacks_memory = false;
    for (const auto& [transport, rank] : first_contacts()) {
        for (const PeerRail& rail : peer_rails_) {
            if (contact_ != nullptr || rail.transport != transport)
                continue;
            const ucs_status_t status =
                contact({worker_id, rail.transport, rail.device, rail.iface}, nullptr);
            lacks_memory |= status == UCS_ERR_NO_MEMORY;
        }
    }
    owes_contact_ = contact_ == nullptr && lacks_memory;
    if (owes_contact_)
        return worker.peers().ask_wireup(*this);
    if (contact_ == nullptr)
        fail(UCS_ERR_UNREACHABLE);
    else if (state_ == EpState::kGreeting)
        choose_lane();
}

/// The pair of rails that promises the lowest latency and was not refused.
void Endpoint::choose_lane() {
    ucs::ReserveVector<std::pair<double, std::pair<std::size_t, std::size_t>>> pairs;
    for (std::size_t i = 0; i < worker.rails().size(); ++i) {
        const Rail& rail = *worker.rails()[i];
        // An endpoint of rc cannot be its own peer.
        if (rail.is_auxiliary || (worker_id == worker.id() && !rail.connects_to_iface()))
            continue;
        for (std::size_t j = 0; j < peer_rails_.size(); ++j)
            if (peer_rails_[j].transport == rail.transport() &&
                rail.reaches(peer_rails_[j].device, peer_rails_[j].iface) &&
                std::ranges::find(refused_, std::pair{i, j}) == refused_.end())
                pairs.push_back({rail.latency(), {i, j}});
    }
    std::ranges::sort(pairs);
    for (const auto& [latency, pair] : pairs)
        if (try_lane(pair.first, pair.second))
            return;
    // The endpoint of the first contact serves for the messages too.
    for (std::size_t j = 0; j < peer_rails_.size(); ++j)
        if (peer_rails_[j].device == address_.device && peer_rails_[j].iface == address_.iface)
            peer_rail_ = static_cast<std::uint8_t>(j);
    lane_ = contact_;
    rail_ = contact_rail_;
    set_ready();
}

bool Endpoint::try_lane(std::size_t rail_index, std::size_t peer_rail) {
    Rail& rail = *worker.rails()[rail_index];
    const PeerRail& peer = peer_rails_[peer_rail];
    if (rail.connects_to_iface()) {
        if (&rail == contact_rail_)
            lane_ = contact_;
        else if (make_ep(rail, peer.device, peer.iface, &lane_) != UCS_OK)
            return false;
        rail_ = &rail;
        peer_rail_ = static_cast<std::uint8_t>(peer_rail);
        set_ready();
        return true;
    }
    state_ = EpState::kOffering;
    if (offered_ != nullptr)
        return true;  // the peer's offer came first, and was answered
    if (make_ep(rail, {}, {}, &offered_) != UCS_OK)
        return false;
    offered_rail_ = &rail;
    offered_to_ = static_cast<std::uint8_t>(peer_rail);
    send_offer();
    return true;
}

void Endpoint::send_offer() {
    ReserveBytes address(offered_rail_->attr().ep_addr_len);
    const ucs_status_t status =
        uct_ep_get_address(offered_, reinterpret_cast<uct_ep_addr_t*>(address.data()));
    if (status != UCS_OK)
        return fail(status);
    queue_wireup(WireupOp::kOffer,
                 {peer_names, offered_rail_->index(), offered_to_, offered_is_connected_,
                  static_cast<std::uint8_t>(address.size())},
                 address);
}

/// The peer cannot be reached as it offered: both sides choose another lane.
void Endpoint::refuse(const Offer& offer) {
    drop_offered();
    add_refused(offer);
    queue_wireup(WireupOp::kRefuse, {peer_names, offer.peer_rail, offer.rail, 0, 0}, {});
    if (state_ == EpState::kOffering)
        choose_lane();
}

void Endpoint::add_refused(const Offer& offer) {
    const std::pair<std::size_t, std::size_t> pair{offer.peer_rail, offer.rail};
    if (std::ranges::find(refused_, pair) == refused_.end())
        refused_.push_back(pair);
}

/// The offer is the one of ours that an answer or a refusal is still to come to.
bool Endpoint::is_about_ours(const Offer& offer) const {
    return offered_ != nullptr && offered_rail_->index() == offer.peer_rail &&
           offered_to_ == offer.rail;
}

void Endpoint::on_offer(const OfferMessage& message) {
    const Offer& offer = message.offer;
    if (offer.rail >= peer_rails_.size() || offer.peer_rail >= worker.rails().size())
        return worker.count(WorkerCounter::kGarbage);
    const bool is_answer = is_about_ours(offer);
    if (offered_is_connected_) {
        // It comes twice, or when there is a lane already.
        return is_answer ? void() : worker.count(WorkerCounter::kGarbage);
    }
    // Offers of different rails crossed: that of the lower id counts.
    if (!is_answer && offered_ != nullptr && worker.id() < worker_id)
        return;
    Rail& rail = *worker.rails()[offer.peer_rail];
    const PeerRail& peer = peer_rails_[offer.rail];
    if (!is_answer)
        drop_offered();
    if (rail.connects_to_iface() || peer.transport != rail.transport() ||
        message.address.size() != rail.attr().ep_addr_len ||
        !rail.reaches(peer.device, peer.iface) ||
        (!is_answer && make_ep(rail, {}, {}, &offered_) != UCS_OK))
        return refuse(offer);
    offered_rail_ = &rail;
    offered_to_ = offer.rail;
    const ucs_status_t status = uct_ep_connect_to_ep(
        offered_, reinterpret_cast<const uct_device_addr_t*>(peer.device.data()),
        reinterpret_cast<const uct_ep_addr_t*>(message.address.data()));
    if (status != UCS_OK) {
        TW_LOG_ERROR("endpoint of %s: the peer's offer cannot be used: %s", rail.transport(),
                     ucs_status_string(status));
        return refuse(offer);
    }
    offered_is_connected_ = true;
    if (is_answer)
        queue_wireup(WireupOp::kReady, {peer_names, rail.index(), offered_to_, 1, 0}, {});
    else
        send_offer();
    if (offer.is_connected != 0)
        on_ready(offer);
}

void Endpoint::on_ready(const Offer& offer) {
    if (state_ != EpState::kOffering || !offered_is_connected_ || !is_about_ours(offer))
        return;
    lane_ = offered_;
    rail_ = offered_rail_;
    peer_rail_ = offered_to_;
    set_ready();
}

void Endpoint::on_refuse(const Offer& offer) {
    if (!is_about_ours(offer) || lane_ == offered_)
        return worker.count(WorkerCounter::kGarbage);
    add_refused(offer);
    drop_offered();
    if (state_ == EpState::kOffering)
        choose_lane();
}

void Endpoint::drop_offered() {
    if (offered_ == nullptr)
        return;
    worker.peers().map_lane(offered_, nullptr);
    uct_ep_destroy(offered_);
    offered_ = nullptr;
    offered_is_connected_ = false;
}

void Endpoint::set_ready() {
    state_ = EpState::kReady;
    const std::size_t most = rail_->short_max;
    // The fast path does not check whether a message is injected.
    short_data_max_ = std::min<std::size_t>(most > sizeof(Header) ? most - sizeof(Header) : 0,
                                            worker.options().inject_bytes);
    const auto matches = [](const PeerRail& rail) { return (rail.flags & kRailMatchesTags) != 0; };
    if (std::ranges::any_of(peer_rails_, matches))
        control(Lane{peer_rail_});
    worker.peers().tell_up(*this);
    drain_and_arm();
}

}  // namespace tagwire::proto
