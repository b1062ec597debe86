// SPDX-License-Identifier: BSD-3-Clause
#include "atomic_server.hpp"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <array>
#include <span>

#include "ep.hpp"
#include "mr.hpp"

namespace tagwire::fi {

tw_status_t AtomicServer::listen() {
    return tw_am_register(owner_.worker, kAtomicAsk, on_request, this);
}

void AtomicServer::on_request(void* arg, tw_am_t* am) {
    auto& server = *static_cast<AtomicServer*>(arg);
    Refusals& refusals = server.owner_.refusals;
    if (am->header_length != sizeof(AtomicHeader))  // nobody knows whose it is
        return refusals.add(am->source, "a request of an atomic has another length");
    if ((am->flags & TW_AM_RNDV) != 0)
        return refusals.add(am->source, "a request of an atomic comes without its operands");
    if (server.owner_.outbox.has_too_many(am->source))
        return refusals.add(am->source, "it asks for atomics and takes no replies");
    const auto* header = static_cast<const std::byte*>(am->header);
    const auto* data = static_cast<const std::byte*>(am->data);
    server.serve(am->source, {header, am->header_length}, {data, am->length});
}

void AtomicServer::serve(std::uint64_t source, AtomicBytes header, AtomicBytes data) {
    std::array<std::byte, kAtomicBytesMax> results;
    AtomicRequest request;
    int error = decode(header, data, &request);
    if (error == 0)
        error = carry_out(request, results.data());
    const AtomicReply reply = {.id = request.id, .error = static_cast<std::uint32_t>(error)};
    const bool has_results = error == 0 && request.kind != AtomicKind::kWrite;
    owner_.outbox.send(source, kAtomicTell, reply,
                       {results.data(), has_results ? request.bytes : 0});
}

/// 0, or a positive errno of libfabric: nothing was changed.
int AtomicServer::carry_out(const AtomicRequest& request, std::byte* results) {
    const bool reads = request.kind != AtomicKind::kWrite;
    const std::uint64_t access =
        (reads ? FI_REMOTE_READ : 0) | (request.changes ? FI_REMOTE_WRITE : 0);
    if (((access | FI_ATOMIC) & ~owner_.rx_caps) != 0)
        return FI_EACCES;
    std::array<std::byte*, kAtomicSegmentsMax> places;
    std::array<const Mr*, kAtomicSegmentsMax> reached;  // each region once
    auto* reached_end = reached.data();
    for (std::size_t i = 0; i < request.segments.size(); ++i) {
        const AtomicSegment& segment = request.segments[i];
        Mr* const mr = owner_.domain.regions.find(segment.key);
        if (mr == nullptr)
            return FI_ENOKEY;
        if ((mr->range.access & access) != access)
            return FI_EACCES;
        void* const place =
            mr->find(segment.address, segment.count * request.element_bytes, access);
        if (place == nullptr)
            return FI_EINVAL;
        places[i] = static_cast<std::byte*>(place);
        if (std::find(reached.data(), reached_end, mr) == reached_end)
            *reached_end++ = mr;
    }
    std::size_t at = 0;
    const auto behind = [&at](auto* begin) { return begin == nullptr ? nullptr : begin + at; };
    for (std::size_t i = 0; i < request.segments.size(); ++i) {
        const std::size_t count = request.segments[i].count;
        request.apply({places[i], behind(request.operands), behind(request.compares),
                       reads ? results + at : nullptr, count});
        at += count * request.element_bytes;
    }
    owner_.key_service.count(reads ? Access::kRead : Access::kWrite);
    for (const Mr* mr : std::span(reached.data(), reached_end))
        mr->count(access);
    return 0;
}

}  // namespace tagwire::fi
