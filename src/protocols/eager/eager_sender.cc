// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/eager/eager_sender.hpp"

#include <algorithm>
#include <cstring>

#include "protocols/cost/copy_in.hpp"
#include "protocols/request/envelope.hpp"
#include "protocols/request/rail.hpp"
#include "protocols/wire/am_part.hpp"
#include "protocols/worker/endpoint.hpp"
#include "protocols/worker/fast_path.hpp"
#include "protocols/worker/worker_core.hpp"
#include "ucs/sys/keep_in_memory.hpp"

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

/// A message of the program as it is.
struct PlainPacking {
    Envelope envelope;
    const void* data;
    std::size_t bytes;
    CopyIn copy;
    const AmPart* am;

    std::size_t own_bytes() const { return am == nullptr ? 0 : am->header_bytes; }

    static std::size_t pack(void* to, void* arg) {
        const auto& packing = *static_cast<const PlainPacking*>(arg);
        std::size_t head_bytes = packing.envelope.bytes;
        std::memcpy(to, &packing.envelope, head_bytes);
        if (packing.own_bytes() > 0)
            std::memcpy(static_cast<std::byte*>(to) + head_bytes, packing.am->header,
                        packing.own_bytes());
        head_bytes += packing.own_bytes();
        if (packing.bytes > 0) {
            packing.copy.run(packing.bytes, [&](ucs::CopyKind kind) {
                ucs::copy(kind, static_cast<std::byte*>(to) + head_bytes, packing.data,
                          packing.bytes);
            });
        }
        return head_bytes + packing.bytes;
    }
};

/// ... that asks for nothing.
struct BarePacking {
    std::uint64_t head;  // with the tag its header
    std::uint64_t tag;
    const void* data;
    std::size_t bytes;
    CopyIn copy;

    static std::size_t pack(void* to_void, void* arg) {
        const auto& packing = *static_cast<const BarePacking*>(arg);
        auto* const to = static_cast<std::byte*>(to_void);
        // In the words that they were stored in, lately: one read over both would wait for them.
        std::memcpy(to, &packing.head, sizeof packing.head);
        const std::uint64_t tag = *ucs::read_anew(&packing.tag);
        std::memcpy(to + sizeof packing.head, &tag, sizeof tag);
        packing.copy.run(packing.bytes, [&](ucs::CopyKind kind) {
            ucs::copy(kind, to + sizeof(Header), packing.data, packing.bytes);
        });
        return sizeof(Header) + packing.bytes;
    }
};
static_assert(sizeof(Header) == 2 * sizeof(std::uint64_t));

}  // namespace

bool EagerSender::try_send_plain(const void* data, std::size_t length, std::uint64_t tag,
                                 bool is_tagged) {
    if (!ep_.may_send_short(0) || length == 0 || length + sizeof(Header) > ep_.rail().bcopy_max ||
        !ep_.rndv().is_eager_untimed(length))
        return false;
    BarePacking packing{ShortMessage::head(ep_.peer_names, is_tagged), tag, data, length,
                        CopyIn::of(ep_.copies.in, length)};
    constexpr auto kId = static_cast<std::uint8_t>(AmId::kEager);
    if (uct_ep_am_bcopy(ep_.lane(), kId, BarePacking::pack, &packing, 0) < 0)
        return false;  // whatever it is, it is met again
    ep_.worker.count(WorkerCounter::kTxEager);
    ep_.window().add_message(length);
    return true;
}

bool EagerSender::try_send_at_once(const Outgoing& message) {
    const bool is_plain = is_plain_send(message.op, kPlainAmFlags | TW_OP_IMM);
    PlainPacking packing{
        plain_envelope(message, ep_.peer_names), message.base, message.length, {}, message.am};
    const std::size_t head_bytes = packing.envelope.bytes + packing.own_bytes();
    const bool may_go =
        ep_.may_send_eager() || (is_urgent(message.op) && ep_.queue().may_pass_urgently());
    if (!may_go || message.list != nullptr || !is_plain ||
        message.length + head_bytes > ep_.rail().bcopy_max ||
        !ep_.rndv().is_eager_untimed(message.length, message.am != nullptr, is_urgent(message.op)))
        return false;
    packing.copy = CopyIn::of(ep_.copies.in, message.length);
    const AmId am = message.am == nullptr ? AmId::kEager : AmId::kAm;
    const ssize_t packed =
        uct_ep_am_bcopy(ep_.lane(), static_cast<std::uint8_t>(am), PlainPacking::pack, &packing, 0);
    if (packed < 0)
        return false;  // whatever it is, it is met again
    ep_.worker.count(WorkerCounter::kTxEager);
    if (!is_urgent(message.op))
        ep_.window().add_message(message.length + packing.own_bytes());
    return true;
}

ucs_status_t EagerSender::start(Request& request) {
    const bool wants_ack = (request.flags & (TW_OP_MATCH_COMPLETE | TW_OP_DELIVERY_COMPLETE)) != 0;
    if (wants_ack && request.id == 0 && ep_.worker.requests().assign_id(request) == 0)
        return UCS_ERR_NO_MEMORY;
    if (!request.has_gone) {
        const ucs_status_t status =
            goes_as_tagged(request, ep_.rail()) ? send_tagged(request) : send_parts(request);
        if (status != UCS_OK)
            return status;
        request.has_gone = true;
    }
    if (wants_ack && !request.is_answered) {
        ep_.worker.set_outstanding(request, ep_);
        if (request.wants_cancel)
            ep_.cancel(request);
        return UCS_INPROGRESS;
    }
    if (!wants_ack && (request.flags & TW_OP_TRANSMIT_COMPLETE) != 0)
        return track_transmission(request);
    return UCS_OK;
}

/// In one piece.
ucs_status_t EagerSender::send_whole(Request& request, const Envelope& envelope) {
    EagerPacking packing{&envelope,
                         envelope.bytes,
                         &request,
                         request.buffer.length,
                         CopyIn::of(ep_.copies.in, request.buffer.length),
                         request.am_header_bytes};
    const AmId am = request.is_am ? AmId::kAm : AmId::kEager;
    return status_of(uct_ep_am_bcopy(ep_.lane(), static_cast<std::uint8_t>(am), EagerPacking::pack,
                                     &packing, 0));
}

ucs_status_t EagerSender::send_parts(Request& request) {
    Envelope envelope = eager_envelope_of(request, ep_.peer_names);
    const std::size_t total = request.buffer.length;
    const std::size_t part_max = ep_.rail().bcopy_max;
    const std::size_t bytes = envelope.bytes + request.am_header_bytes + total;
    std::uint64_t begun = 0;
    const bool is_timed = request.offset == 0 && ep_.rndv().is_timed(request, &begun);
    if (bytes <= part_max) {
        if (is_timed && bytes + sizeof begun <= part_max)
            envelope.add_begun(begun);
        const ucs_status_t status = send_whole(request, envelope);
        if (status == UCS_OK) {
            request.offset = total;
            ep_.worker.count(WorkerCounter::kTxEager);
        }
        return status;
    }
    // Parts behind the first may have to wait, and their data must be the library's then.
    if ((request.flags & TW_OP_INJECT) != 0 && ep_.worker.requests().copy_of(request) == nullptr)
        return UCS_ERR_NO_RESOURCE;
    envelope.add_total(total + request.am_header_bytes);
    if (is_timed)
        envelope.add_begun(begun);
    const CopyIn copy = CopyIn::of(ep_.copies.in, total);
    while (request.offset < total) {
        if (!ep_.queue().may_step())
            return UCS_ERR_NO_RESOURCE;
        const bool is_first = request.offset == 0;
        const std::size_t head_bytes = is_first ? envelope.bytes : sizeof(Part);
        const std::size_t own_bytes = is_first ? request.am_header_bytes : 0;
        const std::size_t now =
            std::min(ep_.rail().bcopy_max - head_bytes - own_bytes, total - request.offset);
        const Part part{ep_.peer_names, 0};
        EagerPacking packing{is_first ? static_cast<const void*>(&envelope) : &part,
                             head_bytes,
                             &request,
                             now,
                             copy,
                             own_bytes};
        const AmId first = request.is_am ? AmId::kAm : AmId::kEager;
        const AmId am = is_first ? first : AmId::kPart;
        const ucs_status_t status = status_of(uct_ep_am_bcopy(
            ep_.lane(), static_cast<std::uint8_t>(am), EagerPacking::pack, &packing, 0));
        if (status != UCS_OK)
            return status;
        request.offset += now;
        ep_.worker.count(WorkerCounter::kTxParts);
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
        const std::uint64_t imm = TagImm::encode(ep_.peer_names, has_imm, request.done.imm);
        EagerPacking packing{nullptr, 0, &request, request.buffer.length, {}};
        const ucs_status_t status = status_of(uct_ep_tag_eager_bcopy(
            ep_.lane(), request.done.tag, imm, EagerPacking::pack, &packing, 0));
        if (status == UCS_OK)
            ep_.worker.count(WorkerCounter::kTxTagged);
        return status;
    }
    if (!request.is_announced) {
        Envelope envelope = eager_envelope_of(request, ep_.peer_names);
        envelope.header.flags |= kAnnounced;
        const ucs_status_t status = send_whole(request, envelope);
        if (status != UCS_OK)
            return status;
        ep_.worker.count(WorkerCounter::kTxEager);
    }
    return send_placeholder(request);
}

ucs_status_t EagerSender::send_placeholder(Request& request) {
    request.is_announced = true;
    const Placeholder place{ep_.peer_names, placeholders_};
    const ucs_status_t status =
        uct_ep_tag_rndv_request(ep_.lane(), request.done.tag, &place, sizeof place, 0);
    if (status != UCS_OK)
        return status;
    request.is_announced = false;
    ++placeholders_;
    ep_.worker.count(WorkerCounter::kTxPlaceholders);
    return UCS_OK;
}

// The message is with the transport; its own flush tells when the peer's memory has it.
ucs_status_t EagerSender::track_transmission(Request& request) {
    Transmission* transmission = ep_.worker.requests().make_transmission(request);
    if (transmission == nullptr)
        return UCS_ERR_NO_RESOURCE;
    const ucs_status_t status = uct_ep_flush(ep_.lane(), UCT_FLUSH_FLAG_LOCAL, transmission);
    if (status == UCS_INPROGRESS) {
        request.transmission = transmission;
        ep_.worker.set_outstanding(request, ep_);
    } else {
        ep_.worker.requests().release(*transmission);
    }
    return status;
}

}  // namespace tagwire::proto
