// SPDX-License-Identifier: BSD-3-Clause
// The sending half of an endpoint.
#include <algorithm>
#include <cstring>

#include "protocols/endpoint.hpp"
#include "protocols/envelope.hpp"
#include "protocols/rail.hpp"
#include "protocols/worker.hpp"

namespace tagwire::proto {

namespace {

void add_total(Envelope& envelope, std::uint64_t total) {
    envelope.header.flags |= kMoreParts;
    envelope.words[(envelope.bytes - sizeof(Header)) / sizeof(std::uint64_t)] = total;
    envelope.bytes += sizeof(std::uint64_t);
}

/// What a packing callback writes: an envelope (or another head), then part of a buffer.
struct Packing {
    const void* head;
    std::size_t head_bytes;
    const Request* request;
    std::size_t bytes;

    static std::size_t pack(void* to, void* arg) {
        const auto& packing = *static_cast<const Packing*>(arg);
        auto* at = static_cast<std::byte*>(to);
        std::memcpy(at, packing.head, packing.head_bytes);
        packing.request->buffer.gather(at + packing.head_bytes, packing.request->offset,
                                       packing.bytes);
        return packing.head_bytes + packing.bytes;
    }
};

}  // namespace

/// What is told of a message that has gone.
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
    if (holds_)
        return TW_ERR_NO_RESOURCE;
    Request* request = worker.make(RequestKind::kSend, message.op, message.request_p);
    if (request == nullptr)
        return TW_ERR_NO_RESOURCE;
    if (!worker.set_buffer(*request, message.base, message.length, message.list, message.count,
                           message.op == nullptr ? nullptr : message.op->mem)) {
        worker.release(*request);
        return TW_ERR_NO_RESOURCE;
    }
    request->ep = this;
    request->is_tagged = message.is_tagged;
    request->order = order_++;
    request->done = end_of(message.op, message.length, message.tag, message.is_tagged);
    request->done.request = request;
    ucs_status_t status = UCS_ERR_NO_RESOURCE;
    if (state_ == EpState::kReady && queue_.empty() && controls_.empty() && may_start(*request))
        status = start(*request);
    if (status == UCS_ERR_NO_RESOURCE) {
        if ((request->flags & TW_OP_INJECT) != 0 && worker.copy_of(*request) == nullptr) {
            worker.release(*request);
            return TW_ERR_NO_RESOURCE;
        }
        enqueue(*request);
    } else if (status != UCS_INPROGRESS) {
        worker.finish(*request, status);
    }
    return worker.answer(*request, message.op, message.request_p);
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
    const bool is_rndv = request.offset == 0 && request.buffer.length > 0 &&
                         (holds_data_ || request.buffer.length >= rail_->rndv_from(request.buffer));
    if (!is_rndv)
        return start_eager(request);
    // An injected message is its sender's no more: what the peer reads is a copy.
    if ((request.flags & TW_OP_INJECT) != 0 && worker.copy_of(request) == nullptr)
        return UCS_ERR_NO_RESOURCE;
    return start_rndv(request);
}

ucs_status_t Endpoint::start_eager(Request& request) {
    const bool wants_ack = (request.flags & (TW_OP_MATCH_COMPLETE | TW_OP_DELIVERY_COMPLETE)) != 0;
    if (wants_ack && request.id == 0 && worker.name(request) == 0)
        return UCS_ERR_NO_MEMORY;
    if (!request.has_gone) {
        const ucs_status_t status = send_parts(request);
        if (status != UCS_OK)
            return status;
        request.has_gone = true;
    }
    if (wants_ack && !request.is_answered) {
        worker.set_outstanding(request, *this);
        return UCS_INPROGRESS;
    }
    if (!wants_ack && (request.flags & TW_OP_TRANSMIT_COMPLETE) != 0)
        return track_transmission(request);
    return UCS_OK;
}

ucs_status_t Endpoint::send_parts(Request& request) {
    Envelope envelope = envelope_of(request, peer_names);
    const std::size_t total = request.buffer.length;
    if (total + envelope.bytes <= rail_->bcopy_max) {
        Packing packing{&envelope, envelope.bytes, &request, total};
        const ucs_status_t status = status_of(uct_ep_am_bcopy(
            lane_, static_cast<std::uint8_t>(AmId::kEager), Packing::pack, &packing, 0));
        if (status == UCS_OK) {
            request.offset = total;
            worker.count(WorkerCounter::kTxEager);
        }
        return status;
    }
    // What follows the first part may have to wait, and must be the library's then.
    if ((request.flags & TW_OP_INJECT) != 0 && worker.copy_of(request) == nullptr)
        return UCS_ERR_NO_RESOURCE;
    add_total(envelope, total);
    while (request.offset < total) {
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

// The message is with the transport; its own flush tells when the peer's memory has it.
ucs_status_t Endpoint::track_transmission(Request& request) {
    Transmission* transmission = worker.make_transmission(request);
    if (transmission == nullptr)
        return UCS_ERR_NO_RESOURCE;
    const ucs_status_t status = uct_ep_flush(lane_, UCT_FLUSH_FLAG_LOCAL, transmission);
    if (status == UCS_INPROGRESS) {
        request.transmission = transmission;
        worker.set_outstanding(request, *this);
    } else {
        worker.free_transmission(*transmission);
    }
    return status;
}

}  // namespace tagwire::proto
