// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/connect/connector.hpp"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "protocols/request/rail.hpp"
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

constinit const WireupCalls Connector::kWireupCalls{
    .make_ep =
        [](void* connector, Rail& rail, const PeerRail& to, uct_ep_h* ep_p) {
            return static_cast<Connector*>(connector)->make_ep(rail, to.device, to.iface, ep_p);
        },
    .destroy_ep = [](void* connector,
                     uct_ep_h ep) { static_cast<Connector*>(connector)->destroy_ep(ep); },
    .queue =
        [](void* connector, WireupOp op, const Offer& offer, std::span<const std::byte> address) {
            static_cast<Connector*>(connector)->queue(op, offer, address);
        },
    .peer_rail = [](const void* connector, std::size_t index) -> const PeerRail& {
        return static_cast<const Connector*>(connector)->peer_rails_[index];
    },
};

Connector::Connector(const ConnectorPorts& ports)
    : to_(ports), wireup_(this, kWireupCalls, ports.worker.refusals) {}

ucs_status_t Connector::make_ep(Rail& rail, std::span<const std::byte> device,
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
        to_.peer.map_lane(*ep_p, true);
    }
    return status;
}

void Connector::destroy_ep(uct_ep_h ep) {
    to_.peer.map_lane(ep, false);
    uct_ep_pending_purge(
        ep, [](uct_pending_req_t*, void*) {}, nullptr);
    uct_ep_destroy(ep);
}

ucs_status_t Connector::contact(Address to, std::string* why) {
    address_ = std::move(to);
    address_.id = to_.peer_id;
    plan(std::nullopt, why);
    return contact_next(why);
}

void Connector::plan(std::optional<std::size_t> known_rail, std::string* why) {
    plan_.make(address_, to_.worker.rails, known_rail, why);
}

/// UCS_ERR_NO_MEMORY: the same wave can be tried later.
ucs_status_t Connector::contact_next(std::string* why) {
    ucs_status_t last = UCS_ERR_UNREACHABLE;
    for (auto wave = plan_.wave(); !wave.empty(); wave = plan_.wave()) {
        bool lacks_memory = false;
        for (const ContactWay& way : wave) {
            const ucs_status_t status = ask(way, why);
            lacks_memory = lacks_memory || status == UCS_ERR_NO_MEMORY;
            if (status != UCS_OK && last == UCS_ERR_UNREACHABLE)
                last = status;
        }
        if (contact_ == nullptr && lacks_memory)
            return UCS_ERR_NO_MEMORY;
        plan_.pass_wave();
        if (contact_ != nullptr)
            return UCS_OK;
    }
    return last;
}

ucs_status_t Connector::ask(const ContactWay& way, std::string* why) {
    const Contact& to = address_.contacts[way.contact];
    uct_ep_h ep = nullptr;
    const ucs_status_t status = make_ep(*way.rail, to.device, to.iface, &ep);
    if (status != UCS_OK) {
        add_reason(why, way.rail->transport(), way.rail->device(),
                   status == UCS_ERR_UNREACHABLE ? "nothing accepts connections there: the peer's "
                                                   "worker or process has gone"
                                                 : ucs_status_string(status));
        return status;
    }
    if (contact_ != nullptr) {
        rivals_.push_back({way, ep, false});
        return UCS_OK;
    }
    number_ = to_.peer.next_connection();
    use({way, ep, false});
    return UCS_OK;
}

/// From now on it is the endpoint of first contact.
void Connector::use(const Rival& rival) {
    contact_ = rival.ep;
    contact_rail_ = rival.way.rail;
    contacted_ = rival.way.contact;
    if (!rival.has_greeted)
        queue(hello_bytes(rival.way));
}

bool Connector::contact_elsewhere(uct_ep_h failed, ucs_status_t status) {
    if (lane().state() != EpState::kConnecting || !peer_rails_.empty())
        return false;
    const auto rival = std::ranges::find(rivals_, failed, &Rival::ep);
    const bool is_rival = rival != rivals_.end();
    if (!is_rival && (contact_ == nullptr || failed != contact_))
        return false;
    const Rail* const before = is_rival ? rival->way.rail : contact_rail_;
    destroy_ep(failed);
    if (is_rival) {
        rivals_.erase(rival);
    } else {
        contact_ = nullptr;
        messages_.clear();  // a hello at most
    }
    if (contact_ == nullptr && !rivals_.empty()) {
        const Rival next = rivals_.front();
        rivals_.erase(rivals_.begin());
        use(next);
    }
    const ucs_status_t next = contact_ == nullptr ? contact_next(nullptr) : UCS_OK;
    owes_contact_ = next == UCS_ERR_NO_MEMORY;
    if (next != UCS_OK && !owes_contact_)
        return false;
    TW_LOG_INFO(
        "endpoint to worker %016lx: first contact over %s:%s has failed (%s); another is "
        "tried",
        to_.names.worker_id, before->transport(), before->device(), ucs_status_string(status));
    if (owes_contact_)
        to_.peer.ask_wireup();
    return true;
}

/// The peer is heard: of the ways by which it was asked that one stays by which its hello came.
/// Where it came by another one, that is known to lead there, and none of them.
void Connector::settle_contact(const Hello& hello, std::span<const PeerRail> rails) {
    if (rivals_.empty() || is_by(contact_way(), hello, rails)) {
        for (const Rival& rival : std::exchange(rivals_, {}))
            destroy_ep(rival.ep);
        return;
    }
    const auto answered = std::ranges::find_if(
        rivals_, [&](const Rival& rival) { return is_by(rival.way, hello, rails); });
    std::optional<Rival> stays;
    if (answered != rivals_.end()) {
        stays = *answered;
        rivals_.erase(answered);
    }
    drop_contacts();
    messages_.clear();
    if (stays)
        use(*stays);
}

bool Connector::is_by(const ContactWay& way, const Hello& hello,
                      std::span<const PeerRail> rails) const {
    const Contact& to = address_.contacts[way.contact];
    const std::size_t from = hello.from_rail - std::size_t{1};
    return from < rails.size() && rails[from].device == to.device &&
           rails[from].iface == to.iface &&
           check_of(way.rail->device_address(), way.rail->iface_address()) == hello.to_check;
}

void Connector::drop_contacts() {
    for (const Rival& rival : std::exchange(rivals_, {}))
        destroy_ep(rival.ep);
    if (const uct_ep_h old = std::exchange(contact_, nullptr))
        destroy_ep(old);
}

void Connector::begin(Address to) {
    address_ = std::move(to);
    plan(std::nullopt, nullptr);
    contact_again();
}

void Connector::begin_anew() {
    to_.names.peer_names = 0;
    disconnect();
    peer_rails_.clear();
    refused_.clear();
    plan(known_rail_, nullptr);
    contact_again();
}

void Connector::forget(uct_ep_h ep) {
    if (contact_ == ep)
        contact_ = nullptr;
    std::erase_if(rivals_, [ep](const Rival& rival) { return rival.ep == ep; });
    if (offered_ && offered_->ep() == ep)
        offered_.reset();
}

void Connector::disconnect() {
    is_offering_ = false;
    drop_contacts();
    if (auto old = std::exchange(offered_, std::nullopt))
        old->drop();
}

/// At a later progress if there is no memory now.
void Connector::contact_again() {
    const ucs_status_t status = contact_next(nullptr);
    owes_contact_ = status == UCS_ERR_NO_MEMORY;
    if (owes_contact_)
        return to_.peer.ask_wireup();
    if (status != UCS_OK)
        lane().fail(status);
}

ReserveBytes Connector::hello_bytes(const ContactWay& way) const {
    ReserveBytes bytes;
    append(&bytes, Wireup{static_cast<std::uint32_t>(WireupOp::kHello), kWireVersion, to_.worker.id,
                          to_.peer_id});
    const TxName tx = to_.worker.tx;
    const Contact& to = address_.contacts[way.contact];
    append(&bytes, Hello{to_.names.id, static_cast<std::uint32_t>(to_.worker.rails.size()),
                         to_.names.peer_names, number_, to_.peer.retired_id(), tx.number, tx.worker,
                         way.rail->index() + 1U, check_of(to.device, to.iface),
                         to_.worker.options.unexpected_bytes});
    for (const auto& rail : to_.worker.rails) {
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

void Connector::queue(WireupOp op, Offer offer, std::span<const std::byte> address) {
    offer.id = to_.names.peer_names;
    ReserveBytes bytes;
    append(&bytes,
           Wireup{static_cast<std::uint32_t>(op), kWireVersion, to_.worker.id, to_.peer_id});
    append(&bytes, offer);
    append(&bytes, address);
    queue(std::move(bytes));
}

void Connector::queue(ReserveBytes bytes) {
    is_flooded_ = messages_.size() >= kMessagesMax;
    if (!is_flooded_)
        messages_.push_back(std::move(bytes));
    to_.peer.ask_wireup();
}

bool Connector::work() {
    if (std::exchange(is_flooded_, false)) {
        TW_LOG_WARN(
            "endpoint to worker %016lx fails: its peer does not receive replies to its wire-up",
            to_.names.worker_id);
        lane().fail(UCS_ERR_EXCEEDS_LIMIT);
        return true;
    }
    if (std::exchange(owes_contact_, false) && lane().state() != EpState::kFailed)
        peer_rails_.empty() ? contact_again() : answer_contact();
    return send() && !owes_contact_;
}

bool Connector::send() {
    // A peer that has our hello may send, and by another lane than the device, which may hold
    // receives that match any peer.
    if (!to_.worker.may_greet(to_.worker.owner))
        return false;
    while (!messages_.empty() && contact_ != nullptr) {
        const ssize_t sent = uct_ep_am_bcopy(contact_, static_cast<std::uint8_t>(AmId::kWireup),
                                             pack_bytes, &messages_.front(), 0);
        if (sent == UCS_ERR_NO_RESOURCE || sent == UCS_ERR_NO_MEMORY)
            return false;
        if (sent < 0) {
            const auto status = static_cast<ucs_status_t>(sent);
            if (!contact_elsewhere(contact_, status))
                lane().fail(status);
            return true;
        }
        messages_.pop_front();
    }
    return greet_rivals();
}

bool Connector::greet_rivals() {
    for (std::size_t i = 0; i < rivals_.size(); ++i) {
        Rival& rival = rivals_[i];
        if (rival.has_greeted)
            continue;
        ReserveBytes hello = hello_bytes(rival.way);
        const ssize_t sent = uct_ep_am_bcopy(rival.ep, static_cast<std::uint8_t>(AmId::kWireup),
                                             pack_bytes, &hello, 0);
        if (sent == UCS_ERR_NO_RESOURCE || sent == UCS_ERR_NO_MEMORY)
            return false;
        // One that has failed is reported, and leaves the list, in progress of its transport.
        rival.has_greeted = true;
    }
    return true;
}

void Connector::on_hello(const Hello& hello, ucs::ReserveVector<PeerRail> rails) {
    const bool is_new = to_.names.peer_names != hello.id;
    to_.names.peer_names = hello.id;
    settle_contact(hello, {rails.data(), rails.size()});
    // Our hello went to an endpoint that this one has replaced, or it crosses theirs.
    if (contact_ != nullptr && hello.known != to_.names.id)
        queue(hello_bytes(contact_way()));
    if (!is_new || lane().state() == EpState::kFailed)
        return;
    learn_rails(hello, std::move(rails));
    answer_contact();
}

void Connector::greet(const Hello& hello, ucs::ReserveVector<PeerRail> rails) {
    learn_rails(hello, std::move(rails));
    answer_contact();
}

void Connector::learn_rails(const Hello& hello, ucs::ReserveVector<PeerRail> rails) {
    peer_rails_ = std::move(rails);
    heard_by_ = hello.from_rail;
    lane().set_eager_max(hello.eager_max);
    if (contact_ != nullptr)
        return;
    known_rail_.reset();
    for (const auto& rail : to_.worker.rails)
        if (check_of(rail->device_address(), rail->iface_address()) == hello.to_check)
            known_rail_ = rail->index();
}

/// The interfaces of the peer that take first contact: that which its hello came by, which is known
/// to lead here, then the nearest.
Address Connector::address_of_peer() const {
    Address address{to_.peer_id, {}};
    const auto add = [&](const PeerRail& rail) {
        address.contacts.push_back({rail.transport, rail.device, rail.iface});
    };
    const std::size_t first = heard_by_ - std::size_t{1};
    if (first < peer_rails_.size() && first_contact_rank(peer_rails_[first].transport) != 0)
        add(peer_rails_[first]);
    for (const auto& [transport, rank] : first_contacts())
        for (std::size_t i = 0; i < peer_rails_.size(); ++i)
            if (i != first && peer_rails_[i].transport == transport)
                add(peer_rails_[i]);
    return address;
}

/// The peer has said hello: it hears from us, at a later progress if there is no memory now.
void Connector::answer_contact() {
    bool lacks_memory = false;
    if (contact_ == nullptr) {
        address_ = address_of_peer();
        plan(known_rail_, nullptr);
        lacks_memory = contact_next(nullptr) == UCS_ERR_NO_MEMORY;
    }
    owes_contact_ = lacks_memory;
    if (owes_contact_)
        return to_.peer.ask_wireup();
    if (contact_ == nullptr)
        lane().fail(UCS_ERR_UNREACHABLE);
    else if (lane().state() == EpState::kConnecting && to_.names.peer_names != 0 && !is_offering_)
        choose_lane();
}

/// The rail of the peer that the endpoint of first contact leads to.
std::uint8_t Connector::contacted_rail() const {
    const Contact& contacted = address_.contacts[contacted_];
    for (std::size_t j = 0; j < peer_rails_.size(); ++j)
        if (peer_rails_[j].device == contacted.device && peer_rails_[j].iface == contacted.iface)
            return static_cast<std::uint8_t>(j);
    return 0;
}

/// The pair of rails that promises the lowest latency and was not refused; of equal ones that of
/// the transport that the library lists first, whichever took first contact; of pairs of one
/// transport that of first contact, which is known to lead there.
void Connector::choose_lane() {
    using RailPair = std::pair<std::size_t, std::size_t>;
    ucs::ReserveVector<std::tuple<double, std::size_t, bool, RailPair>> pairs;
    const RailPair contact_pair{contact_rail_->index(), contacted_rail()};
    const auto& rails = to_.worker.rails;
    for (std::size_t i = 0; i < rails.size(); ++i) {
        const Rail& rail = *rails[i];
        // An endpoint of rc cannot be its own peer.
        if (rail.is_auxiliary || (to_.peer_id == to_.worker.id && !rail.connects_to_iface()))
            continue;
        const auto first = static_cast<std::size_t>(
            std::ranges::find(rails, std::string_view(rail.transport()), &Rail::transport) -
            rails.begin());
        for (std::size_t j = 0; j < peer_rails_.size(); ++j)
            if (peer_rails_[j].transport == rail.transport() &&
                rail.reaches(peer_rails_[j].device, peer_rails_[j].iface) &&
                std::ranges::find(refused_, std::pair{i, j}) == refused_.end())
                pairs.push_back({rail.latency(), first, RailPair{i, j} != contact_pair, {i, j}});
    }
    std::ranges::sort(pairs);
    for (const auto& [latency, transport, is_other, pair] : pairs)
        if (try_lane(pair.first, pair.second))
            return;
    // The endpoint of the first contact serves for the messages too.
    choose(contact_, *contact_rail_, contacted_rail());
}

bool Connector::try_lane(std::size_t rail_index, std::size_t peer_rail) {
    Rail& rail = *to_.worker.rails[rail_index];
    const auto to = static_cast<std::uint8_t>(peer_rail);
    if (rail.connects_to_iface()) {
        uct_ep_h lane = contact_;
        const PeerRail& peer = peer_rails_[peer_rail];
        if (&rail != contact_rail_ && make_ep(rail, peer.device, peer.iface, &lane) != UCS_OK)
            return false;
        choose(lane, rail, to);
        return true;
    }
    is_offering_ = true;
    if (offered_) {  // the peer's offer came first, and was answered
        if (offered_->is_ready())
            use_offered();
        return true;
    }
    offered_.emplace(wireup_, rail, to, kLaneOps);
    if (offered_->make() != UCS_OK) {
        offered_.reset();
        return false;
    }
    const ucs_status_t status = offered_->send_offer();
    if (status != UCS_OK)
        lane().fail(status);
    return true;
}

/// Both sides have connected it.
void Connector::use_offered() {
    choose(offered_->ep(), offered_->rail(), offered_->peer_rail());
}

void Connector::choose(uct_ep_h lane, Rail& rail, std::uint8_t peer_rail) {
    is_offering_ = false;
    plan_ = {};
    to_.names.lane.set_ready(lane, rail, peer_rail);
}

/// The peer cannot be reached as it offered: both sides choose another lane.
void Connector::refuse(const Offer& offer) {
    auto old = std::exchange(offered_, std::nullopt);
    old->drop();
    add_refused(offer);
    old->refuse();
    if (is_offering_)
        choose_lane();
}

void Connector::add_refused(const Offer& offer) {
    const std::pair<std::size_t, std::size_t> pair{offer.peer_rail, offer.rail};
    if (std::ranges::find(refused_, pair) == refused_.end())
        refused_.push_back(pair);
}

void Connector::on_offer(const OfferMessage& message) {
    const Offer& offer = message.offer;
    if (offer.rail >= peer_rails_.size() || offer.peer_rail >= to_.worker.rails.size())
        return to_.worker.counters.add(WorkerCounter::kGarbage);
    const bool is_answer = offered_ && offered_->is_about(offer);
    if (offered_ && offered_->is_connected()) {
        // It comes twice, or when there is a lane already.
        return is_answer ? void() : to_.worker.counters.add(WorkerCounter::kGarbage);
    }
    // Offers of different rails crossed: that of the lower id counts.
    if (!is_answer && offered_ && to_.worker.id < to_.peer_id)
        return;
    if (!is_answer) {
        if (offered_)
            offered_->drop();
        offered_.emplace(wireup_, *to_.worker.rails[offer.peer_rail], offer.rail, kLaneOps);
    }
    if (!offered_->on_offer(message))
        refuse(offer);
    else if (is_offering_ && offered_->is_ready())
        use_offered();
}

void Connector::on_ready(const Offer& offer) {
    if (offered_ && offered_->is_about(offer) && offered_->on_ready() && is_offering_)
        use_offered();
}

void Connector::on_refuse(const Offer& offer) {
    if (!offered_ || !offered_->is_about(offer) || lane().lane() == offered_->ep())
        return to_.worker.counters.add(WorkerCounter::kGarbage);
    add_refused(offer);
    offered_->drop();
    offered_.reset();
    if (is_offering_)
        choose_lane();
}

}  // namespace tagwire::proto
