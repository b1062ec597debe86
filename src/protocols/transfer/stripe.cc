// SPDX-License-Identifier: BSD-3-Clause
// Dividing a transfer, moving its parts, and their ends.
#include "protocols/transfer/stripe.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "protocols/request/keys.hpp"
#include "protocols/request/memory.hpp"
#include "protocols/request/rail.hpp"
#include "protocols/wire/memory_key.hpp"

namespace tagwire::proto {

// ---- Dividing

/// nullptr: this message cannot go over that rail.
std::unique_ptr<TransferPart> Stripes::make_part(const Request& request, StripeLane& lane,
                                                 std::span<const std::byte> keys) const {
    if (request.transfer->list != nullptr)
        return make_list_part(request, lane);
    const Domain& domain = lane.rail.domain();
    const std::size_t index = lane.rail.domain_index();
    const auto key = key_of(keys, to_.connector.domain_of_peer(lane.connection.peer_rail()));
    if (key.size() != domain.attr.rkey_packed_size)
        return nullptr;
    auto part = std::make_unique<TransferPart>();
    if (request.buffer.memory != nullptr) {
        part->memh = request.buffer.memory->handle(index);
    } else if (index == to_.lane.rail().domain_index()) {
        part->memh = request.transfer->own.memh;
    } else if ((domain.attr.cap.flags & UCT_MD_FLAG_NEED_MEMH) != 0) {
        const RegUse use = request.transfer->is_put ? RegUse::kSource : RegUse::kTarget;
        part->cached = to_.worker.cache_region(request, index, use);
        if (part->cached == nullptr)
            return nullptr;
        part->memh = part->cached->handle;
    }
    if (uct_rkey_unpack(domain.component, key.data(), &part->key) != UCS_OK)
        return nullptr;
    part->component = domain.component;
    part->lane = &lane;
    part->transfer = request.transfer;
    return part;
}

/// As make_part(), of a list: the lane has a key of each memory.
std::unique_ptr<TransferPart> Stripes::make_list_part(const Request& request,
                                                      StripeLane& lane) const {
    const Domain& domain = lane.rail.domain();
    const RmaList& list = *request.transfer->list;
    const std::uint8_t peer_domain = to_.connector.domain_of_peer(lane.connection.peer_rail());
    const bool needs_handles = (domain.attr.cap.flags & UCT_MD_FLAG_NEED_MEMH) != 0;
    if (peer_domain >= kKeyDomainsMax || (needs_handles && !list.has_all_handles) ||
        !list.for_keys([&](tw_key_h key) { return has_lane_key(key, peer_domain, domain); }))
        return nullptr;
    auto part = std::make_unique<TransferPart>();
    part->domain = lane.rail.domain_index();
    part->peer_domain = peer_domain;
    part->lane = &lane;
    part->transfer = request.transfer;
    return part;
}

void Stripes::divide(Request& request, std::span<const std::byte> keys, bool only_connections) {
    if (!std::exchange(has_chosen_, true))
        make_lanes();
    Transfer& transfer = *request.transfer;
    const StripePlan& plan = transfer.is_put ? put_plan_ : get_plan_;
    if (request.wanted < plan.from())
        return;
    std::array<std::unique_ptr<TransferPart>, kStripeRailsMax> possible;
    unsigned usable = 1;
    for (std::size_t i = 1; i < members_.size(); ++i) {
        StripeLane& lane = *members_[i];
        if (!lane.is_usable() || (only_connections && lane.rail.connects_to_iface()))
            continue;
        possible[i] = make_part(request, lane, keys);
        if (possible[i] != nullptr)
            usable |= 1U << i;
    }
    if (usable == 1)
        return;
    const StripeParts parts = plan.divide(request.wanted, usable);
    if (parts[0] == request.wanted)
        return;
    transfer.own.end = parts[0];
    std::uint64_t at = parts[0];
    ListCursor place;
    if (transfer.list != nullptr)
        place.skip(*transfer.list, parts[0]);
    for (std::size_t i = 1; i < members_.size(); ++i) {
        if (parts[i] == 0)
            continue;
        TransferPart& part = *possible[i];
        part.begin = part.next = at;
        part.cursor = place;
        if (transfer.list != nullptr)
            place.skip(*transfer.list, parts[i]);
        at += parts[i];
        part.end = at;
        members_[i]->rail.striped_bytes += parts[i];
        part.is_waiting = true;
        members_[i]->waiting.push_back(part);
        transfer.others.push_back(std::move(possible[i]));
    }
    to_.worker.count(WorkerCounter::kRndvStriped);
    to_.worker.count(WorkerCounter::kRndvRailBytes, request.wanted - parts[0]);
    to_.lane.rail().striped_bytes += parts[0];
}

/// Whatever the program does in the ends that this brings about, lanes stay.
void Stripes::drain() {
    for (std::size_t i = 0; i < lanes_.size(); ++i)
        lanes_[i]->room.run();
}

// ---- Moving

StripeLane::StripeLane(Stripes& owner, Rail& over, std::uint8_t to)
    : stripes(owner), connection(owner.wireup(), over, to, kStripeOps), rail(over) {}

void StripeLane::push(TransferPart& part) {
    part.is_waiting = true;
    waiting.push_back(part);
    room.run();
}

void StripeLane::forget(TransferPart& part) {
    waiting.remove_if([&](TransferPart& other) { return &other == &part; });
    part.is_waiting = false;
}

ucs_status_t StripeLane::drain() {
    while (connection.ep() != nullptr && !waiting.empty()) {
        TransferPart& part = *waiting.front();
        if (!part.begin_pieces(connection.ep(), rail))
            return UCS_ERR_NO_RESOURCE;
        waiting.pop_front();
        part.is_waiting = false;
        part.release();
    }
    return UCS_OK;
}

void StripeLane::stall() {
    stripes.stall();
}

void StripeLane::failed(ucs_status_t status) {
    stripes.lane_failed(*this, status);
}

}  // namespace tagwire::proto
