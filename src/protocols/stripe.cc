// SPDX-License-Identifier: BSD-3-Clause
// Dividing a transfer, moving its parts, and their ends.
#include "protocols/stripe.hpp"

#include <algorithm>
#include <utility>

#include "protocols/endpoint.hpp"
#include "protocols/keys.hpp"
#include "protocols/memory.hpp"
#include "protocols/rail.hpp"
#include "protocols/worker.hpp"

namespace tagwire::proto {

namespace {

/// The pieces of a part that were under way have ended.
void part_done(uct_completion_t* self) {
    StripePart& part = *static_cast<OwnedBy<uct_completion_t, StripePart>*>(self)->owner;
    RndvTransfer* transfer = part.transfer;
    part.done.count = 0;
    if (transfer->request == nullptr || transfer->ending != UCS_OK)
        return transfer->idle();
    const ucs_status_t status = self->status;
    if (status == UCS_OK && part.next < part.end && !part.lane->has_failed)
        return part.lane->push(part);
    part.has_ended = status == UCS_OK && part.next == part.end;
    part.is_lost = !part.has_ended;
    if (part.is_lost && !part.lane->has_failed) {
        part.done.count = 1;  // holds the transfer: the end of the rail may end the message
        transfer->request->ep->stripes().lane_failed(*part.lane, status);
        part.done.count = 0;
        if (transfer->request == nullptr || transfer->ending != UCS_OK)
            return transfer->idle();
    }
    transfer->request->ep->check_parts(*transfer->request);
}

}  // namespace

StripePart::~StripePart() {
    if (cached != nullptr)
        cache->release(*cached, true);
    if (component != nullptr)
        uct_rkey_release(component, &key);
}

// ---- Dividing

/// nullptr: this message cannot go over that rail.
std::unique_ptr<StripePart> Stripes::make_part(const Request& request, StripeLane& lane,
                                               std::span<const std::byte> keys) const {
    const Domain& domain = lane.rail->domain();
    const std::size_t index = lane.rail->domain_index();
    const auto key = key_of(keys, ep_.domain_of_peer(lane.peer_rail));
    if (key.size() != domain.attr.rkey_packed_size)
        return nullptr;
    auto part = std::make_unique<StripePart>();
    if (request.buffer.memory != nullptr) {
        part->memh = request.buffer.memory->handle(index);
    } else if (index == ep_.rail().domain_index()) {
        part->memh = request.transfer->memh;
    } else if ((domain.attr.cap.flags & UCT_MD_FLAG_NEED_MEMH) != 0) {
        const RegUse use = request.transfer->is_put ? RegUse::kSource : RegUse::kTarget;
        part->cache = ep_.worker.context().cache();
        part->cached = ep_.worker.cache_region(request, index, use);
        if (part->cached == nullptr)
            return nullptr;
        part->memh = part->cached->handle;
    }
    if (uct_rkey_unpack(domain.component, key.data(), &part->key) != UCS_OK)
        return nullptr;
    part->component = domain.component;
    part->lane = &lane;
    part->transfer = request.transfer;
    part->done.func = part_done;
    part->done.owner = part.get();
    return part;
}

void Stripes::divide(Request& request, std::span<const std::byte> keys, bool only_connections) {
    if (!std::exchange(has_chosen_, true))
        make_lanes();
    RndvTransfer& transfer = *request.transfer;
    const StripePlan& plan = transfer.is_put ? put_plan_ : get_plan_;
    if (request.wanted < plan.from())
        return;
    std::array<std::unique_ptr<StripePart>, kStripeRailsMax> possible;
    unsigned usable = 1;
    for (std::size_t i = 1; i < members_.size(); ++i) {
        StripeLane& lane = *members_[i];
        if (!lane.is_ready || lane.has_failed ||
            (only_connections && lane.rail->connects_to_iface()))
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
    transfer.end = parts[0];
    std::uint64_t at = parts[0];
    for (std::size_t i = 1; i < members_.size(); ++i) {
        if (parts[i] == 0)
            continue;
        StripePart& part = *possible[i];
        part.begin = part.next = at;
        at += parts[i];
        part.end = at;
        members_[i]->rail->striped_bytes += parts[i];
        part.is_waiting = true;
        members_[i]->waiting.push_back(part);
        transfer.parts.push_back(std::move(possible[i]));
    }
    ep_.worker.count_striped(request.wanted - parts[0]);
    ep_.count_striped(parts[0]);
}

/// Whatever the program does in the ends that this brings about, lanes stay.
void Stripes::drain() {
    for (std::size_t i = 0; i < lanes_.size(); ++i)
        lanes_[i]->drain_and_arm();
}

/// The transfer of the request begins; its data may be divided.
void Endpoint::begin_transfer(Request& request, std::span<const std::byte> keys,
                              bool only_connections) {
    const bool is_long = request.wanted >= rail_->striped_from();
    if (is_long)
        stripes().divide(request, keys, only_connections);
    queue_transfer(request);
    if (is_long && stripes_ != nullptr)
        stripes_->drain();
}

Stripes& Endpoint::stripes() {
    if (stripes_ == nullptr)
        stripes_ = std::make_unique<Stripes>(*this);
    return *stripes_;
}

bool Endpoint::stripe_failed(uct_ep_h lane, ucs_status_t status) {
    return stripes_ != nullptr && stripes_->lane_failed(lane, status);
}

// ---- Moving

void StripeLane::push(StripePart& part) {
    part.is_waiting = true;
    waiting.push_back(part);
    drain_and_arm();
}

void StripeLane::drain_and_arm() {
    for (int round = 0; uct != nullptr && !is_armed && !is_draining; ++round) {
        if (drain() != UCS_ERR_NO_RESOURCE)
            break;
        if (round == kDrainRoundsMax) {
            ep->stall();
            break;
        }
        pending.func = [](uct_pending_req_t* self) {
            StripeLane& lane = *static_cast<OwnedBy<uct_pending_req_t, StripeLane>*>(self)->owner;
            lane.is_armed = false;
            const ucs_status_t status = lane.drain();
            lane.is_armed = status != UCS_OK;
            return status;
        };
        pending.owner = this;
        const ucs_status_t added = uct_ep_pending_add(uct, &pending, 0);
        is_armed = added == UCS_OK;
        if (added != UCS_ERR_BUSY)
            break;
    }
}

ucs_status_t StripeLane::drain() {
    if (is_draining)
        return UCS_OK;
    is_draining = true;
    ucs_status_t status = UCS_OK;
    while (status != UCS_ERR_NO_RESOURCE && uct != nullptr && !waiting.empty())
        status = move_pieces(*waiting.front());
    is_draining = false;
    return status == UCS_ERR_NO_RESOURCE && uct != nullptr ? status : UCS_OK;
}

/// As Endpoint::move_pieces() for the lane.
ucs_status_t StripeLane::move_pieces(StripePart& part) {
    const RndvTransfer& transfer = *part.transfer;
    const Request& request = *transfer.request;
    const auto& cap = rail->attr().cap;
    const std::size_t most =
        std::min(transfer.is_put ? cap.put.max_zcopy : cap.get.max_zcopy, kPieceBytes);
    const auto move = transfer.is_put ? uct_ep_put_zcopy : uct_ep_get_zcopy;
    part.done.status = UCS_OK;
    part.done.count = 1;  // ours, so that it does not fire before all are begun
    ucs_status_t status = UCS_OK;
    for (std::uint64_t i = 0; i < ep->worker.options().rndv_fragments && part.next < part.end;
         ++i) {
        uct_iov_t iov{nullptr, 0, part.memh, 0, 1};
        iov.buffer = request.buffer.piece(part.next, &iov.length);
        iov.length = std::min({iov.length, most, part.end - part.next});
        ++part.done.count;
        status = move(uct, &iov, 1, transfer.address + part.next, part.key.rkey, &part.done);
        if (status != UCS_INPROGRESS)
            --part.done.count;
        if (status != UCS_OK && status != UCS_INPROGRESS)
            break;
        part.next += iov.length;
    }
    if (status == UCS_ERR_NO_RESOURCE && part.done.count == 1) {
        part.done.count = 0;
        return status;
    }
    if (status < 0 && status != UCS_ERR_NO_RESOURCE)
        uct_completion_update_status(&part.done, status);
    waiting.pop_front();
    part.is_waiting = false;
    if (--part.done.count == 0)
        part_done(&part.done);
    return UCS_INPROGRESS;
}

// ---- Ends

/// The lane has moved its part of a divided transfer, or could not.
void Endpoint::lane_part_ended(Request& request, ucs_status_t status) {
    request.transfer->lane_has_ended = true;
    if (request.transfer->status == UCS_OK)
        request.transfer->status = status;
    check_parts(request);
}

/// Ends a transfer whose parts have all ended; moves again what a rail has lost.
void Endpoint::check_parts(Request& request) {
    RndvTransfer& transfer = *request.transfer;
    if (!transfer.lane_has_ended)
        return;
    for (const auto& part : transfer.parts) {
        if (transfer.status != UCS_OK && part->is_waiting) {
            part->lane->waiting.remove_if([&](StripePart& other) { return &other == part.get(); });
            part->is_waiting = false;
            part->has_ended = true;
        } else if (part->is_lost) {
            part->is_lost = false;
            part->has_ended = true;
            if (transfer.status != UCS_OK)
                continue;
            worker.count(WorkerCounter::kRndvRailLost);
            request.offset = part->begin;
            transfer.end = part->end;
            transfer.lane_has_ended = false;
            return queue_transfer(request);
        }
    }
    if (std::ranges::all_of(transfer.parts, [](const auto& part) { return part->has_ended; }))
        transfer_ended(request, transfer.status);
}

void Endpoint::count_striped(std::uint64_t bytes) const {
    rail_->striped_bytes += bytes;
}

}  // namespace tagwire::proto
