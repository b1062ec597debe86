// SPDX-License-Identifier: BSD-3-Clause
// The request of a rendezvous: what the receiver needs to read the buffer, or to ask for it.
#include <cstring>

#include "protocols/endpoint.hpp"
#include "protocols/envelope.hpp"
#include "protocols/memory.hpp"
#include "protocols/rail.hpp"
#include "protocols/worker.hpp"

namespace tagwire::proto {

namespace {

constexpr std::size_t kKeysBytesMax = 512;

/// The key of a buffer for each domain that knows it.
struct Keys {
    std::byte bytes[kKeysBytesMax];
    std::size_t used = 0;
    std::uint8_t count = 0;

    void add(const Domain& domain, std::size_t index, uct_mem_h handle) {
        const std::size_t key_bytes = domain.attr.rkey_packed_size;
        if (used + sizeof(KeyHead) + key_bytes > sizeof bytes || key_bytes > UINT8_MAX)
            return;
        const KeyHead head{static_cast<std::uint8_t>(index), static_cast<std::uint8_t>(key_bytes)};
        if (uct_md_mkey_pack(domain.md, handle, bytes + used + sizeof head) != UCS_OK)
            return;
        std::memcpy(bytes + used, &head, sizeof head);
        used += sizeof head + key_bytes;
        ++count;
    }
};

/// An injected message's copy is the library's own, which is not kept registered.
bool is_cached_here(const Request& request, const Domain& domain) {
    return request.buffer.memory == nullptr && request.copy == nullptr && !domain.registers_cheaply;
}

struct RndvPacking {
    const Envelope* envelope;
    const Rndv* rndv;
    const Keys* keys;

    static std::size_t pack(void* to, void* arg) {
        const auto& packing = *static_cast<const RndvPacking*>(arg);
        auto* at = static_cast<std::byte*>(to);
        std::memcpy(at, packing.envelope, packing.envelope->bytes);
        at += packing.envelope->bytes;
        std::memcpy(at, packing.rndv, sizeof(Rndv));
        std::memcpy(at + sizeof(Rndv), packing.keys->bytes, packing.keys->used);
        return packing.envelope->bytes + sizeof(Rndv) + packing.keys->used;
    }
};

}  // namespace

ucs_status_t Endpoint::start_rndv(Request& request) {
    if (request.id == 0 && worker.name(request) == 0)
        return UCS_ERR_NO_MEMORY;
    Keys keys;
    const Domain& domain = rail_->domain();
    if (request.buffer.list == nullptr) {
        if (request.buffer.memory != nullptr) {
            keys.add(domain, rail_->domain_index(),
                     request.buffer.memory->handle(rail_->domain_index()));
        } else if (domain.registers_cheaply && request.registration == nullptr) {
            const ucs_status_t status = uct_md_mem_reg(
                domain.md, request.buffer.base, request.buffer.length,
                UCT_MD_MEM_ACCESS_REMOTE_GET | UCT_MD_MEM_ACCESS_LOCAL_READ, &request.registration);
            if (status == UCS_OK)
                request.registered_in = static_cast<std::uint32_t>(rail_->domain_index());
            else
                request.registration = nullptr;
        }
        if (request.cached == nullptr && rail_->can_get() && is_cached_here(request, domain))
            request.cached = worker.cache_region(request, rail_->domain_index(), RegUse::kSource);
        if (request.cached != nullptr)
            keys.add(domain, rail_->domain_index(), request.cached->handle);
        if (request.registration != nullptr)
            keys.add(domain, rail_->domain_index(), request.registration);
    }
    Envelope envelope = envelope_of(request, peer_names);
    envelope.header.flags &= ~kAcks;  // the receiver's answer to the rendezvous is one
    envelope.bytes =
        sizeof(Header) + ((envelope.header.flags & kImm) != 0 ? sizeof(std::uint64_t) : 0);
    Rndv rndv{};
    rndv.length = request.buffer.length;
    rndv.address = reinterpret_cast<std::uintptr_t>(request.buffer.base);
    rndv.send_id = request.id;
    rndv.key_count = keys.count;
    RndvPacking packing{&envelope, &rndv, &keys};
    const ucs_status_t status = status_of(uct_ep_am_bcopy(
        lane_, static_cast<std::uint8_t>(AmId::kRndv), RndvPacking::pack, &packing, 0));
    if (status != UCS_OK)
        return status;
    worker.count(WorkerCounter::kTxRndv);
    worker.set_outstanding(request, *this);
    return UCS_INPROGRESS;
}

}  // namespace tagwire::proto
