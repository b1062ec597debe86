// SPDX-License-Identifier: BSD-3-Clause
// Which rails a message's data is divided over, and how they are connected and lost.
#include <algorithm>
#include <limits>
#include <tuple>

#include "protocols/request/rail.hpp"
#include "protocols/transfer/stripe.hpp"
#include "ucs/log/log.hpp"

namespace tagwire::proto {

// ---- Which

StripeMember member_of(const Rail& rail) {
    return {&rail.costs(), rail.mover()};
}

StripeRules rules_of(const Options& options) {
    return {options.rndv_rail_min, options.rndv_rails > 1};
}

void plan_stripes(Rail& rail, std::span<const std::unique_ptr<Rail>> rails) {
    if (!rail.can_stripe())
        return;
    const StripeRules rules = rules_of(rail.options());
    ucs::ReserveVector<StripeMember> members{member_of(rail)};
    for (const std::size_t i :
         companions_of(rails, rail.index(), rail.options(), [](const Rail&) { return true; }))
        members.push_back(member_of(*rails[i]));
    rail.set_stripe_plans(StripePlan(members, Protocol::kRndvGet, rules),
                          StripePlan(members, Protocol::kRndvPut, rules));
}

ucs::ReserveVector<std::size_t> companions_of(std::span<const std::unique_ptr<Rail>> rails,
                                              std::size_t lane, const Options& options,
                                              const std::function<bool(const Rail&)>& reaches) {
    const std::size_t rails_max =
        options.rndv_rails == 0 ? kStripeRailsMax : static_cast<std::size_t>(options.rndv_rails);
    const bool is_forced = rules_of(options).is_forced;
    ucs::ReserveVector<std::size_t> taken{lane};
    while (taken.size() < rails_max) {
        std::size_t best = rails.size();
        auto best_rank = std::tuple(true, true, std::numeric_limits<double>::infinity());
        for (std::size_t i = 0; i < rails.size(); ++i) {
            const Rail& rail = *rails[i];
            const auto has = [&](auto same) {
                return std::ranges::any_of(taken, [&](std::size_t j) { return same(*rails[j]); });
            };
            if (std::ranges::find(taken, i) != taken.end() || !rail.can_stripe() || !reaches(rail))
                continue;
            const auto rank = std::tuple(
                has([&](const Rail& other) { return other.mover() == rail.mover(); }),
                has([&](const Rail& other) { return other.domain_index() == rail.domain_index(); }),
                rail.costs().direct_ns_per_byte);
            // Two that wait for each other are not faster than one, and the processors that the
            // kernel takes for one are not spent where the lane needs none.
            const bool is_fit = !std::get<0>(rank) &&
                                rail.goes_through_kernel() == rails[lane]->goes_through_kernel();
            if ((is_fit || is_forced) && rank < best_rank) {
                best = i;
                best_rank = rank;
            }
        }
        if (best == rails.size())
            break;
        taken.push_back(best);
    }
    taken.erase(taken.begin());
    return taken;
}

/// For each rail one of the peer's, of another domain than those before if there is one.
ucs::ReserveVector<Stripes::Pair> Stripes::choose() const {
    const auto& rails = to_.rails.rails;
    const auto peers = to_.connector.peer_rails();
    const bool is_self = to_.peer_id == to_.rails.id;
    ucs::ReserveVector<std::size_t> used{to_.lane.peer_rail};
    const auto find_peer = [&](const Rail& rail) {
        std::size_t found = peers.size();
        for (std::size_t j = 0; j < peers.size(); ++j) {
            if (peers[j].transport != rail.transport() || std::ranges::count(used, j) > 0 ||
                (is_self && !rail.connects_to_iface()) ||
                !rail.reaches(peers[j].device, peers[j].iface))
                continue;
            const bool is_new = std::ranges::none_of(used, [&](std::size_t k) {
                return to_.connector.domain_of_peer(k) == peers[j].domain;
            });
            if (is_new)
                return j;
            found = std::min(found, j);
        }
        return found;
    };
    const auto companions =
        companions_of(rails, to_.lane.rail().index(), to_.worker.options,
                      [&](const Rail& rail) { return find_peer(rail) < peers.size(); });
    ucs::ReserveVector<Pair> pairs;
    for (const std::size_t i : companions) {
        const std::size_t j = find_peer(*rails[i]);
        if (j == peers.size())
            continue;
        pairs.push_back({i, j});
        used.push_back(j);
    }
    return pairs;
}

void Stripes::make_lanes() {
    members_ = {nullptr};
    ucs::ReserveVector<StripeMember> members{member_of(to_.lane.rail())};
    for (const auto& [i, j] : choose()) {
        Rail& rail = *to_.rails.rails[i];
        StripeLane* lane = find(i, j);
        if (lane == nullptr)
            lane = &add(rail, static_cast<std::uint8_t>(j));
        if (!connect(*lane))
            continue;
        members_.push_back(lane);
        members.push_back(member_of(rail));
    }
    const StripeRules rules = rules_of(to_.worker.options);
    get_plan_ = StripePlan(members, Protocol::kRndvGet, rules);
    put_plan_ = StripePlan(members, Protocol::kRndvPut, rules);
}

StripeLane* Stripes::find(std::size_t rail, std::size_t peer_rail) const {
    for (const auto& lane : lanes_)
        if (lane->rail.index() == rail && lane->connection.peer_rail() == peer_rail)
            return lane.get();
    return nullptr;
}

StripeLane& Stripes::add(Rail& rail, std::uint8_t peer_rail) {
    lanes_.push_back(std::make_unique<StripeLane>(*this, rail, peer_rail));
    return *lanes_.back();
}

std::size_t Stripes::ready() const {
    return static_cast<std::size_t>(
        std::ranges::count(lanes_, true, [](const auto& lane) { return lane->is_usable(); }));
}

// ---- Connecting

/// False: it cannot be used, now or later.
bool Stripes::connect(StripeLane& lane) {
    if (lane.has_failed || lane.connection.ep() != nullptr)
        return !lane.has_failed;
    lane.has_failed = lane.connection.make() != UCS_OK ||
                      (!lane.rail.connects_to_iface() && lane.connection.send_offer() != UCS_OK);
    if (lane.has_failed)
        drop(lane);
    return !lane.has_failed;
}

void Stripes::on_offer(const OfferMessage& message) {
    const Offer& offer = message.offer;
    const auto& rails = to_.rails.rails;
    if (offer.rail >= to_.connector.peer_rails().size() || offer.peer_rail >= rails.size())
        return to_.worker.count(WorkerCounter::kGarbage);
    Rail& rail = *rails[offer.peer_rail];
    if (!LaneConnection(to_.connector.wireup(), rail, offer.rail, kStripeOps).fits(message))
        return to_.worker.count(WorkerCounter::kGarbage);
    StripeLane* lane = find(offer.peer_rail, offer.rail);
    if (lane == nullptr)
        lane = &add(rail, offer.rail);
    if (!lane->has_failed && lane->connection.on_offer(message))
        return;
    lane->has_failed = true;
    drop(*lane);
    lane->connection.refuse();
}

void Stripes::on_ready(const Offer& offer) {
    StripeLane* lane = find(offer.peer_rail, offer.rail);
    if (lane == nullptr || !lane->connection.on_ready())
        return to_.worker.count(WorkerCounter::kGarbage);
}

void Stripes::on_refuse(const Offer& offer) {
    if (StripeLane* lane = find(offer.peer_rail, offer.rail); lane != nullptr && !lane->has_failed)
        lose(*lane);
}

// ---- Losing

void Stripes::drop(StripeLane& lane) {
    lane.room.disarm();
    lane.connection.drop();
}

/// The lane goes, and what it has not begun is the endpoint's own lane's.
void Stripes::lose(StripeLane& lane) {
    lane.has_failed = true;
    drop(lane);
    while (TransferPart* part = lane.waiting.pop_front()) {
        part->is_waiting = false;
        part->is_lost = true;
    }
    // Each check takes up at least one, or ends its message.
    const auto is_stuck = [](const Request& request) {
        return request.transfer != nullptr && request.transfer->own.has_ended &&
               request.transfer->has_lost();
    };
    const auto check_all = [&](RequestList& list) {
        for (Request* request = list.front(); request != nullptr;) {
            if (is_stuck(*request)) {
                request->transfer->check();
                request = list.front();
            } else {
                request = RequestList::next(*request);
            }
        }
    };
    check_all(to_.receiving);
    for (RequestList& list : to_.outstanding)
        check_all(list);
}

void Stripes::lane_failed(StripeLane& lane, ucs_status_t status) {
    if (lane.has_failed)
        return;
    if (lane.is_usable())
        TW_LOG_WARN("endpoint to worker %016lx: %s on %s no longer carries parts of messages: %s",
                    to_.peer.worker_id, lane.rail.transport(), lane.rail.device(),
                    ucs_status_string(status));
    // Before the end of any message: so the peer ends its side before it gives a buffer back.
    to_.peer.lane.control(
        Down{.rail = lane.connection.peer_rail(), .sender_rail = lane.rail.index()});
    lose(lane);
}

bool Stripes::lane_failed(uct_ep_h lane, ucs_status_t status) {
    for (const auto& ours : lanes_) {
        if (ours->connection.ep() == lane) {
            lane_failed(*ours, status);
            return true;
        }
    }
    return false;
}

void Stripes::on_down(Down message) {
    if (StripeLane* lane = find(message.rail, message.sender_rail);
        lane != nullptr && !lane->has_failed)
        lose(*lane);
}

void Stripes::disconnect() {
    for (const auto& lane : lanes_) {
        lane->has_failed = true;
        drop(*lane);
        while (TransferPart* part = lane->waiting.pop_front())
            part->is_waiting = false;
    }
}

}  // namespace tagwire::proto
