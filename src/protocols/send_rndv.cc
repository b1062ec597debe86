// SPDX-License-Identifier: BSD-3-Clause
// The request of a rendezvous: what the receiver needs to read the buffer, or to ask for it.
#include <cstring>

#include "protocols/endpoint.hpp"
#include "protocols/envelope.hpp"
#include "protocols/keys.hpp"
#include "protocols/memory.hpp"
#include "protocols/rail.hpp"
#include "protocols/worker_core.hpp"

namespace tagwire::proto {

namespace {

/// The handle by which the peer reads the buffer; a list has none that would do.
uct_mem_h source_of(const Request& request, std::size_t domain) {
    if (request.buffer.list != nullptr)
        return nullptr;
    if (request.registration != nullptr)
        return request.registration;
    if (request.buffer.memory != nullptr)
        return request.buffer.memory->handle(domain);
    return request.cached != nullptr ? request.cached->handle : nullptr;
}

struct RndvPacking {
    const Envelope* envelope;
    const Rts* rts;
    const Keys* keys;

    static std::size_t pack(void* to, void* arg) {
        const auto& packing = *static_cast<const RndvPacking*>(arg);
        auto* at = static_cast<std::byte*>(to);
        std::memcpy(at, packing.envelope, packing.envelope->bytes);
        at += packing.envelope->bytes;
        std::memcpy(at, packing.rts, sizeof(Rts));
        std::memcpy(at + sizeof(Rts), packing.keys->bytes, packing.keys->used);
        return packing.envelope->bytes + sizeof(Rts) + packing.keys->used;
    }
};

}  // namespace

/// Makes a buffer known for this message where that is cheap, whether it has a handle or not: so
/// its key ends with the message. Elsewhere one without a handle is kept known. The copy of an
/// injected message is the library's own, which is not kept.
void Endpoint::register_source(Request& request) {
    const Domain& domain = rail_->domain();
    const std::size_t index = rail_->domain_index();
    if (request.buffer.list != nullptr || request.registration != nullptr ||
        request.cached != nullptr)
        return;
    if (domain.registers_cheaply) {
        if (uct_md_mem_reg(domain.md, request.buffer.base, request.buffer.length,
                           UCT_MD_MEM_ACCESS_REMOTE_GET | UCT_MD_MEM_ACCESS_LOCAL_READ,
                           &request.registration) != UCS_OK)
            request.registration = nullptr;
        request.registered_in = static_cast<std::uint32_t>(index);
    } else if (request.buffer.memory == nullptr && (rail_->can_get() || rail_->can_put()) &&
               request.copy == nullptr) {
        request.cached = worker.cache_region(request, index, RegUse::kSource);
    }
}

ucs_status_t Endpoint::start_rndv(Request& request) {
    if (request.id == 0 && worker.requests().assign_id(request) == 0)
        return UCS_ERR_NO_MEMORY;
    if (!request.is_announced) {
        const ucs_status_t status = send_request(request);
        if (status != UCS_OK)
            return status;
        worker.count(WorkerCounter::kTxRndv);
        request.is_rndv = true;
    }
    if (goes_as_tagged(request)) {
        const ucs_status_t status = send_placeholder(request);
        if (status != UCS_OK)
            return status;
    }
    worker.set_outstanding(request, *this);
    if (request.wants_cancel)
        cancel(request);
    return UCS_INPROGRESS;
}

ucs_status_t Endpoint::send_request(Request& request) {
    const RndvScheme scheme = worker.options().scheme();
    const bool may_get = scheme == RndvScheme::kAuto || scheme == RndvScheme::kGet;
    const bool may_put = scheme == RndvScheme::kAuto || scheme == RndvScheme::kPut;
    if (may_get || may_put)
        register_source(request);
    Keys keys;
    if (const uct_mem_h handle = source_of(request, rail_->domain_index());
        may_get && handle != nullptr) {
        keys.add(rail_->domain(), rail_->domain_index(), handle);
        if (request.buffer.memory != nullptr && request.buffer.length >= rail_->striped_from())
            keys.add_others(*request.buffer.memory, rail_->domain_index());
    }
    Envelope envelope = envelope_of(request, peer_names);  // the Ats acknowledges
    if (goes_as_tagged(request))
        envelope.header.flags |= kAnnounced;
    Rts rts{};
    rts.length = request.buffer.length;
    rts.address = reinterpret_cast<std::uintptr_t>(request.buffer.base);
    rts.send_id = request.id;
    rts.key_count = keys.count;
    if (may_put && rail_->can_put() && can_put_from(request, rail_->domain()))
        rts.flags = kRtsCanPut;
    RndvPacking packing{&envelope, &rts, &keys};
    return status_of(uct_ep_am_bcopy(lane_, static_cast<std::uint8_t>(AmId::kRts),
                                     RndvPacking::pack, &packing, 0));
}

}  // namespace tagwire::proto
