// SPDX-License-Identifier: BSD-3-Clause
// The sending half of an endpoint.
#include <algorithm>
#include <cstring>

#include "protocols/endpoint.hpp"
#include "protocols/envelope.hpp"
#include "protocols/fast_path.hpp"
#include "protocols/rail.hpp"
#include "protocols/worker_core.hpp"

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

/// Data that a packing callback writes: an envelope (or another head), then part of a buffer.
struct Packing {
    const void* head;
    std::size_t head_bytes;
    const Request* request;
    std::size_t bytes;

    static std::size_t pack(void* to, void* arg) {
        const auto& packing = *static_cast<const Packing*>(arg);
        auto* at = static_cast<std::byte*>(to);
        if (packing.head_bytes > 0)
            std::memcpy(at, packing.head, packing.head_bytes);
        packing.request->buffer.gather(at + packing.head_bytes, packing.request->offset,
                                       packing.bytes);
        return packing.head_bytes + packing.bytes;
    }
};

/// A message of the program as it is.
struct PlainPacking {
    Envelope envelope;
    const void* data;
    std::size_t bytes;

    static std::size_t pack(void* to, void* arg) {
        const auto& packing = *static_cast<const PlainPacking*>(arg);
        const std::size_t head_bytes = packing.envelope.bytes;
        std::memcpy(to, &packing.envelope, head_bytes);
        if (packing.bytes > 0)
            std::memcpy(static_cast<std::byte*>(to) + head_bytes, packing.data, packing.bytes);
        return head_bytes + packing.bytes;
    }
};

}  // namespace

/// A plain message that fits one buffer of a lane that is free: nothing of it is left when it has
/// gone, so it needs no request. False: it is another, or has to wait.
bool Endpoint::try_send_at_once(const Outgoing& message) {
    constexpr Buffer kPlainBuffer{};
    const bool is_plain = is_plain_send(message.op, kPlainSendFlags | TW_OP_IMM);
    PlainPacking packing{plain_envelope(message, peer_names), message.base, message.length};
    if (direct_end_ == 0 || message.list != nullptr || !is_plain ||
        message.length + packing.envelope.bytes > rail_->bcopy_max ||
        message.length >= rail_->rndv_from(kPlainBuffer))
        return false;
    const ssize_t packed = uct_ep_am_bcopy(lane_, static_cast<std::uint8_t>(AmId::kEager),
                                           PlainPacking::pack, &packing, 0);
    if (packed < 0)
        return false;  // whatever it is, it is met again
    worker.count(WorkerCounter::kTxEager);
    return true;
}

/// The completion of a message that has gone.
tw_completion_t Endpoint::end_of(const tw_op_t* op, std::size_t length, std::uint64_t tag,
                                 bool is_tagged) {
    tw_completion_t done{};
    if (op != nullptr) {
        done.context = op->context;
        done.imm = (op->flags & TW_OP_IMM) != 0 ? op->imm : 0;
        done.flags = flag_if((op->flags & TW_OP_IMM) != 0, TW_DONE_IMM);
    }
    done.flags |= TW_DONE_SEND | flag_if(is_tagged, TW_DONE_TAGGED);
    done.length = done.message_length = length;
    done.tag = tag;
    done.ep = this;
    return done;
}

tw_status_t Endpoint::send(const Outgoing& message) {
    if (failure_ != UCS_OK)
        return static_cast<tw_status_t>(failure_);
    if (is_paused_)
        return TW_ERR_NO_RESOURCE;
    if (try_send_at_once(message))
        return TW_OK;
    Request* request = worker.requests().make(RequestKind::kSend, message.op, message.request_p);
    if (request == nullptr)
        return TW_ERR_NO_RESOURCE;
    if (!worker.requests().set_buffer(*request, message.base, message.length, message.list,
                                      message.count,
                                      message.op == nullptr ? nullptr : message.op->mem)) {
        worker.requests().release(*request);
        return TW_ERR_NO_RESOURCE;
    }
    request->ep = this;
    request->is_tagged = message.is_tagged;
    request->order = order_++;
    request->done = end_of(message.op, message.length, message.tag, message.is_tagged);
    request->done.request = request;
    ucs_status_t status = UCS_ERR_NO_RESOURCE;
    if (state_ == EpState::kReady && !has_asked_ && queue_.empty() && controls_.empty() &&
        may_start(*request)) {
        steps_left_ = kStepsMax;
        status = start(*request);
    }
    if (status == UCS_ERR_NO_RESOURCE) {
        if ((request->flags & TW_OP_INJECT) != 0 &&
            worker.requests().copy_of(*request) == nullptr) {
            worker.requests().release(*request);
            return TW_ERR_NO_RESOURCE;
        }
        enqueue(*request);
    } else if (status != UCS_INPROGRESS) {
        worker.finish(*request, status);
    }
    return worker.requests().answer(*request, message.op, message.request_p);
}

bool Endpoint::may_start(const Request& request) const {
    return (request.flags & TW_OP_FENCE) == 0 || request.offset > 0 ||
           (outstanding.empty() && flushes_.empty());
}

void Endpoint::enqueue(Request& request) {
    worker.count(WorkerCounter::kTxQueued);
    request.is_queued = true;
    queue_.push_back(request);
    update_direct();
    if (state_ == EpState::kReady)
        drain_and_arm();
}

// UCS_OK: it has ended. UCS_INPROGRESS: it is outstanding. UCS_ERR_NO_RESOURCE: to be called again.
ucs_status_t Endpoint::start(Request& request) {
    if (request.kind != RequestKind::kSend)
        return start_flush(request);
    if (!is_rndv(request))
        return start_eager(request);
    // An injected message is its sender's no more: what the peer reads is a copy.
    if ((request.flags & TW_OP_INJECT) != 0 && worker.requests().copy_of(request) == nullptr)
        return UCS_ERR_NO_RESOURCE;
    return start_rndv(request);
}

bool Endpoint::is_rndv(const Request& request) const {
    const std::size_t length = request.buffer.length;
    if (request.is_announced)
        return request.is_rndv;
    if (request.offset != 0 || length == 0)
        return false;
    // The peer keeps a message that waits for its place in one buffer.
    const bool is_too_long =
        goes_as_tagged(request) && length + sizeof(Envelope) > rail_->bcopy_max;
    return eager_is_paused_ || is_too_long || length >= rail_->rndv_from(request.buffer);
}

ucs_status_t Endpoint::start_eager(Request& request) {
    const bool wants_ack = (request.flags & (TW_OP_MATCH_COMPLETE | TW_OP_DELIVERY_COMPLETE)) != 0;
    if (wants_ack && request.id == 0 && worker.requests().assign_id(request) == 0)
        return UCS_ERR_NO_MEMORY;
    if (!request.has_gone) {
        const ucs_status_t status =
            goes_as_tagged(request) ? send_tagged(request) : send_parts(request);
        if (status != UCS_OK)
            return status;
        request.has_gone = true;
    }
    if (wants_ack && !request.is_answered) {
        worker.set_outstanding(request, *this);
        if (request.wants_cancel)
            cancel(request);
        return UCS_INPROGRESS;
    }
    if (!wants_ack && (request.flags & TW_OP_TRANSMIT_COMPLETE) != 0)
        return track_transmission(request);
    return UCS_OK;
}

/// In one piece; `flags` of HeaderFlag on top of its own.
ucs_status_t Endpoint::send_whole(Request& request, std::uint32_t flags) {
    Envelope envelope = eager_envelope_of(request, peer_names);
    envelope.header.flags |= flags;
    Packing packing{&envelope, envelope.bytes, &request, request.buffer.length};
    return status_of(uct_ep_am_bcopy(lane_, static_cast<std::uint8_t>(AmId::kEager), Packing::pack,
                                     &packing, 0));
}

ucs_status_t Endpoint::send_parts(Request& request) {
    Envelope envelope = eager_envelope_of(request, peer_names);
    const std::size_t total = request.buffer.length;
    if (total + envelope.bytes <= rail_->bcopy_max) {
        const ucs_status_t status = send_whole(request, 0);
        if (status == UCS_OK) {
            request.offset = total;
            worker.count(WorkerCounter::kTxEager);
        }
        return status;
    }
    // Parts behind the first may have to wait, and their data must be the library's then.
    if ((request.flags & TW_OP_INJECT) != 0 && worker.requests().copy_of(request) == nullptr)
        return UCS_ERR_NO_RESOURCE;
    envelope.add_total(total);
    while (request.offset < total) {
        if (!may_step())
            return UCS_ERR_NO_RESOURCE;
        const bool is_first = request.offset == 0;
        const std::size_t head_bytes = is_first ? envelope.bytes : sizeof(Part);
        const std::size_t now = std::min(rail_->bcopy_max - head_bytes, total - request.offset);
        const Part part{peer_names, 0};
        Packing packing{is_first ? static_cast<const void*>(&envelope) : &part, head_bytes,
                        &request, now};
        const AmId am = is_first ? AmId::kEager : AmId::kPart;
        const ucs_status_t status = status_of(
            uct_ep_am_bcopy(lane_, static_cast<std::uint8_t>(am), Packing::pack, &packing, 0));
        if (status != UCS_OK)
            return status;
        request.offset += now;
        worker.count(WorkerCounter::kTxParts);
    }
    return UCS_OK;
}

// ---- On a lane whose device matches tags

bool Endpoint::goes_as_tagged(const Request& request) const {
    return request.is_tagged && rail_->matches_tags();
}

/// An eager message. It is announced if its envelope does not fit the transport's immediate.
ucs_status_t Endpoint::send_tagged(Request& request) {
    constexpr std::uint32_t kNeedsEnvelope = TW_OP_MATCH_COMPLETE | TW_OP_DELIVERY_COMPLETE;
    const bool has_imm = (request.flags & TW_OP_IMM) != 0;
    if ((request.flags & kNeedsEnvelope) == 0 &&
        (!has_imm || request.done.imm <= TagImm::kImmMax)) {
        const std::uint64_t imm = TagImm::encode(peer_names, has_imm, request.done.imm);
        Packing packing{nullptr, 0, &request, request.buffer.length};
        const ucs_status_t status = status_of(
            uct_ep_tag_eager_bcopy(lane_, request.done.tag, imm, Packing::pack, &packing, 0));
        if (status == UCS_OK)
            worker.count(WorkerCounter::kTxTagged);
        return status;
    }
    if (!request.is_announced) {
        const ucs_status_t status = send_whole(request, kAnnounced);
        if (status != UCS_OK)
            return status;
        worker.count(WorkerCounter::kTxEager);
    }
    return send_placeholder(request);
}

/// The place of a message that was announced. Until it has gone, no other is announced.
ucs_status_t Endpoint::send_placeholder(Request& request) {
    request.is_announced = true;
    const Placeholder place{peer_names, placeholders_};
    const ucs_status_t status =
        uct_ep_tag_rndv_request(lane_, request.done.tag, &place, sizeof place, 0);
    if (status != UCS_OK)
        return status;
    request.is_announced = false;
    ++placeholders_;
    worker.count(WorkerCounter::kTxPlaceholders);
    return UCS_OK;
}

// The message is with the transport; its own flush tells when the peer's memory has it.
ucs_status_t Endpoint::track_transmission(Request& request) {
    Transmission* transmission = worker.requests().make_transmission(request);
    if (transmission == nullptr)
        return UCS_ERR_NO_RESOURCE;
    const ucs_status_t status = uct_ep_flush(lane_, UCT_FLUSH_FLAG_LOCAL, transmission);
    if (status == UCS_INPROGRESS) {
        request.transmission = transmission;
        worker.set_outstanding(request, *this);
    } else {
        worker.requests().release(*transmission);
    }
    return status;
}

}  // namespace tagwire::proto
