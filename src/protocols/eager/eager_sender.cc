// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/eager/eager_sender.hpp"

#include <uct/api/tagwire_uct.h>

#include <algorithm>
#include <cstring>

#include "protocols/cost/copy_in.hpp"
#include "protocols/request/envelope.hpp"
#include "protocols/request/rail.hpp"
#include "protocols/request/request_table.hpp"

namespace tagwire::proto {

namespace {

/// ... with the acknowledgement that the program asked for.
Envelope eager_envelope_of(const Request& request, std::uint32_t sender) {
    Envelope envelope = envelope_of(request, sender);
    if ((request.flags & TW_OP_DELIVERY_COMPLETE) != 0)
        envelope.add_ack(kAckDelivery, request.id);
    else if ((request.flags & TW_OP_MATCH_COMPLETE) != 0)
        envelope.add_ack(kAckMatch, request.id);
    return envelope;
}

/// Data that a packing callback writes: an envelope (or another head), the program's header of an
/// active message, then part of a buffer.
struct EagerPacking {
    const void* head;
    std::size_t head_bytes;
    const Request* request;
    std::size_t bytes;
    CopyIn copy;
    std::size_t own_bytes = 0;  // of the program's header

    static std::size_t pack(void* to, void* arg) {
        const auto& packing = *static_cast<const EagerPacking*>(arg);
        auto* at = static_cast<std::byte*>(to);
        if (packing.head_bytes > 0)
            std::memcpy(at, packing.head, packing.head_bytes);
        at += packing.head_bytes;
        if (packing.own_bytes > 0)
            std::memcpy(at, packing.request->am_header, packing.own_bytes);
        at += packing.own_bytes;
        packing.copy.run(packing.bytes, [&](ucs::CopyKind kind) {
            packing.request->buffer.gather(at, packing.request->offset, packing.bytes, kind);
        });
        return packing.head_bytes + packing.own_bytes + packing.bytes;
    }
};

}  // namespace

ucs_status_t EagerSender::start(Request& request) {
    const bool wants_ack = (request.flags & (TW_OP_MATCH_COMPLETE | TW_OP_DELIVERY_COMPLETE)) != 0;
    if (wants_ack && request.id == 0 && to_.worker.requests.assign_id(request) == 0)
        return UCS_ERR_NO_MEMORY;
    if (!request.has_gone) {
        const ucs_status_t status =
            goes_as_tagged(request, to_.lane.rail()) ? send_tagged(request) : send_parts(request);
        if (status != UCS_OK)
            return status;
        request.has_gone = true;
    }
    if (wants_ack && !request.is_answered) {
        to_.worker.set_outstanding(request, to_.peer);
        if (request.wants_cancel)
            to_.peer.lane.cancel(request);
        return UCS_INPROGRESS;
    }
    if (!wants_ack && (request.flags & (TW_OP_TRANSMIT_COMPLETE | TW_OP_SENT_COMPLETE)) != 0)
        return track_transmission(request);
    return UCS_OK;
}

/// In one piece.
ucs_status_t EagerSender::send_whole(Request& request, const Envelope& envelope) {
    EagerPacking packing{&envelope,
                         envelope.bytes,
                         &request,
                         request.buffer.length,
                         CopyIn::of(to_.copies, request.buffer.length),
                         request.am_header_bytes};
    const AmId am = request.is_am ? AmId::kAm : AmId::kEager;
    return status_of(uct_ep_am_bcopy(to_.lane.ep, static_cast<std::uint8_t>(am), EagerPacking::pack,
                                     &packing, 0));
}

ucs_status_t EagerSender::send_parts(Request& request) {
    Envelope envelope = eager_envelope_of(request, to_.peer.peer_names);
    const std::size_t total = request.buffer.length;
    const std::size_t part_max = to_.lane.rail().bcopy_max;
    const std::size_t bytes = envelope.bytes + request.am_header_bytes + total;
    std::uint64_t begun = 0;
    const bool is_timed = request.offset == 0 && to_.is_timed(to_.owner, request, &begun);
    if (bytes <= part_max) {
        if (is_timed && bytes + sizeof begun <= part_max)
            envelope.add_begun(begun);
        const ucs_status_t status = send_whole(request, envelope);
        if (status == UCS_OK) {
            request.offset = total;
            to_.worker.count(WorkerCounter::kTxEager);
        }
        return status;
    }
    // Parts behind the first may have to wait, and their data must be the library's then.
    if ((request.flags & TW_OP_INJECT) != 0 && to_.worker.requests.copy_of(request) == nullptr)
        return UCS_ERR_NO_RESOURCE;
    envelope.add_total(total + request.am_header_bytes);
    if (is_timed)
        envelope.add_begun(begun);
    const CopyIn copy = CopyIn::of(to_.copies, total);
    while (request.offset < total) {
        if (!to_.steps.try_take())
            return UCS_ERR_NO_RESOURCE;
        const bool is_first = request.offset == 0;
        const std::size_t head_bytes = is_first ? envelope.bytes : sizeof(Part);
        const std::size_t own_bytes = is_first ? request.am_header_bytes : 0;
        const std::size_t now =
            std::min(to_.lane.rail().bcopy_max - head_bytes - own_bytes, total - request.offset);
        const Part part{to_.peer.peer_names, 0};
        EagerPacking packing{is_first ? static_cast<const void*>(&envelope) : &part,
                             head_bytes,
                             &request,
                             now,
                             copy,
                             own_bytes};
        const AmId first = request.is_am ? AmId::kAm : AmId::kEager;
        const AmId am = is_first ? first : AmId::kPart;
        const ucs_status_t status = status_of(uct_ep_am_bcopy(
            to_.lane.ep, static_cast<std::uint8_t>(am), EagerPacking::pack, &packing, 0));
        if (status != UCS_OK)
            return status;
        request.offset += now;
        to_.worker.count(WorkerCounter::kTxParts);
    }
    return UCS_OK;
}

// ---- On a lane whose device matches tags

/// An eager message. It is announced if its envelope does not fit the transport's immediate.
ucs_status_t EagerSender::send_tagged(Request& request) {
    constexpr std::uint32_t kNeedsEnvelope = TW_OP_MATCH_COMPLETE | TW_OP_DELIVERY_COMPLETE;
    const bool has_imm = (request.flags & TW_OP_IMM) != 0;
    if ((request.flags & kNeedsEnvelope) == 0 &&
        (!has_imm || request.done.imm <= TagImm::kImmMax)) {
        const std::uint64_t imm = TagImm::encode(to_.peer.peer_names, has_imm, request.done.imm);
        EagerPacking packing{nullptr, 0, &request, request.buffer.length, {}};
        const ucs_status_t status = status_of(uct_ep_tag_eager_bcopy(
            to_.lane.ep, request.done.tag, imm, EagerPacking::pack, &packing, 0));
        if (status == UCS_OK)
            to_.worker.count(WorkerCounter::kTxTagged);
        return status;
    }
    if (!request.is_announced) {
        Envelope envelope = eager_envelope_of(request, to_.peer.peer_names);
        envelope.header.flags |= kAnnounced;
        const ucs_status_t status = send_whole(request, envelope);
        if (status != UCS_OK)
            return status;
        to_.worker.count(WorkerCounter::kTxEager);
    }
    return send_placeholder(request);
}

ucs_status_t EagerSender::send_placeholder(Request& request) {
    request.is_announced = true;
    const Placeholder place{to_.peer.peer_names, placeholders_};
    const ucs_status_t status =
        uct_ep_tag_rndv_request(to_.lane.ep, request.done.tag, &place, sizeof place, 0);
    if (status != UCS_OK)
        return status;
    request.is_announced = false;
    ++placeholders_;
    to_.worker.count(WorkerCounter::kTxPlaceholders);
    return UCS_OK;
}

// The message is with the transport; its own flush tells when the peer's memory has it, or when
// this process is needed no longer.
ucs_status_t EagerSender::track_transmission(Request& request) {
    Transmission* transmission = to_.worker.requests.make_transmission(request);
    if (transmission == nullptr)
        return UCS_ERR_NO_RESOURCE;
    const bool is_sent_enough = (request.flags & TW_OP_TRANSMIT_COMPLETE) == 0;
    const ucs_status_t status = uct_ep_flush(
        to_.lane.ep, is_sent_enough ? TAGWIRE_UCT_FLUSH_FLAG_SENT : unsigned{UCT_FLUSH_FLAG_LOCAL},
        transmission);
    if (status == UCS_INPROGRESS) {
        request.transmission = transmission;
        to_.worker.set_outstanding(request, to_.peer);
    } else {
        to_.worker.requests.release(*transmission);
    }
    return status;
}

}  // namespace tagwire::proto
