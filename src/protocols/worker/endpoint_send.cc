// SPDX-License-Identifier: BSD-3-Clause
// The sending of an endpoint: plain messages that fit one buffer, at once; requests for all others,
// which the parts send.
#include <uct/api/tagwire_uct.h>
#include <uct/api/uct.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

#include "protocols/cost/copy_in.hpp"
#include "protocols/request/envelope.hpp"
#include "protocols/request/outgoing.hpp"
#include "protocols/request/rail.hpp"
#include "protocols/request/rma_op.hpp"
#include "protocols/transfer/stripe.hpp"
#include "protocols/wire/am_part.hpp"
#include "protocols/wire/eager_header.hpp"
#include "protocols/worker/endpoint.hpp"
#include "protocols/worker/worker_core.hpp"
#include "ucs/sys/keep_in_memory.hpp"

namespace tagwire::proto {

namespace {

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

/// A message of the program that asks for nothing.
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

/// The completion of a message that has gone.
[[gnu::cold]] tw_completion_t end_of(const Outgoing& message, tw_ep_h ep) {
    const tw_op_t* op = message.op;
    tw_completion_t done{};
    if (op != nullptr) {
        done.context = op->context;
        done.imm = (op->flags & TW_OP_IMM) != 0 ? op->imm : 0;
        done.flags = flag_if((op->flags & TW_OP_IMM) != 0, TW_DONE_IMM);
    }
    done.flags |= TW_DONE_SEND | flag_if(message.is_tagged, TW_DONE_TAGGED) |
                  flag_if(message.am != nullptr, TW_DONE_AM);
    done.length = done.message_length = message.length;
    done.tag = message.am == nullptr ? message.tag : message.am->id;
    done.ep = ep;
    return done;
}

/// Bytes of a message that has begun which the peer may keep, beside kMessageBytes.
std::uint64_t bytes_kept_of(const Request& request, const Rail& rail) {
    const std::uint64_t bytes =
        request.am_header_bytes + (request.is_rndv ? kKeysBytesMax : request.buffer.length);
    // It may be announced, and is counted again when its place has come.
    return goes_as_tagged(request, rail) ? 2 * bytes + kMessageBytes : bytes;
}

}  // namespace

// ---- At once

bool Endpoint::try_send_plain(const void* data, std::size_t length, std::uint64_t tag,
                              bool is_tagged) {
    if (!may_send_short(0) || length == 0 || length + sizeof(Header) > lane_.rail().bcopy_max ||
        !rndv_.is_eager_untimed(length))
        return false;
    BarePacking packing{ShortMessage::head(peer_names, is_tagged), tag, data, length,
                        CopyIn::of(copies.in, length)};
    constexpr auto kId = static_cast<std::uint8_t>(AmId::kEager);
    if (uct_ep_am_bcopy(lane_.ep, kId, BarePacking::pack, &packing, 0) < 0)
        return false;  // whatever it is, it is met again
    worker.count(WorkerCounter::kTxEager);
    window_.add_message(length);
    return true;
}

bool Endpoint::try_send_at_once(const Outgoing& message) {
    const bool is_plain = is_plain_send(message.op, kPlainAmFlags | TW_OP_IMM);
    PlainPacking packing{
        plain_envelope(message, peer_names), message.base, message.length, {}, message.am};
    const std::size_t head_bytes = packing.envelope.bytes + packing.own_bytes();
    const bool may_go = may_send_eager() || (is_urgent(message.op) && queue_.may_pass_urgently());
    if (!may_go || message.list != nullptr || !is_plain ||
        message.length + head_bytes > lane_.rail().bcopy_max ||
        !rndv_.is_eager_untimed(message.length, message.am != nullptr, is_urgent(message.op)))
        return false;
    packing.copy = CopyIn::of(copies.in, message.length);
    const AmId am = message.am == nullptr ? AmId::kEager : AmId::kAm;
    const ssize_t packed =
        uct_ep_am_bcopy(lane_.ep, static_cast<std::uint8_t>(am), PlainPacking::pack, &packing, 0);
    if (packed < 0)
        return false;  // whatever it is, it is met again
    worker.count(WorkerCounter::kTxEager);
    if (!is_urgent(message.op))
        window_.add_message(message.length + packing.own_bytes());
    return true;
}

// ---- By a request

tw_status_t Endpoint::send(const Outgoing& message) {
    if (lane_.failure != UCS_OK)
        return static_cast<tw_status_t>(lane_.failure);
    const bool is_held = lane_.is_paused && !is_urgent(message.op);
    if (is_held && !asks_to_queue(message.op))
        return TW_ERR_NO_RESOURCE;
    note_sending();
    if (try_send_at_once(message)) {
        write_out(message.op);
        return TW_OK;
    }
    Request* request = begin(message, is_held);
    if (request == nullptr)
        return TW_ERR_NO_RESOURCE;
    write_out(message.op);
    return worker.requests().answer(*request, message.op, message.request_p);
}

ucs_status_t Endpoint::start(Request& request) {
    if ((request.flags & TW_OP_FENCE) != 0 && request.offset == 0) {
        if (const ucs_status_t status = uct_ep_fence(lane_.ep, 0); status != UCS_OK)
            return status;
    }
    if (request.kind == RequestKind::kRma)
        return rma.start(request);
    if (request.kind != RequestKind::kSend)
        return flushes_.start(request);
    const bool is_new = !has_begun(request);
    const ucs_status_t status = start_message(request);
    if (is_new && (request.flags & TW_OP_URGENT) == 0 &&
        (status != UCS_ERR_NO_RESOURCE || has_begun(request)))
        window_.add_message(bytes_kept_of(request, *lane_.over));
    return status;
}

ucs_status_t Endpoint::start_message(Request& request) {
    if (!rndv_.takes(request))
        return eager_.start(request);
    // An injected message is its sender's no more: what the peer reads is a copy.
    if ((request.flags & TW_OP_INJECT) != 0 && worker.requests().copy_of(request) == nullptr)
        return UCS_ERR_NO_RESOURCE;
    return rndv_.start(request);
}

void Endpoint::update_direct() {
    const bool is_direct = hold.has_sent && lane_.state == EpState::kReady &&
                           lane_.over->short_max >= sizeof(Header) && !lane_.over->matches_tags() &&
                           queue_.may_pass() && !lane_.eager_is_paused && !lane_.is_paused &&
                           window_.is_open() && !closing_.is_closing() && !closing_.has_asked();
    direct_.is_open = is_direct;
    // The fast path leaves the rest to the lane, which may gather.
    const std::size_t end = is_direct && !gathers(*lane_.over) ? direct_.short_data_max + 1 : 0;
    direct_.end.store(end, std::memory_order_relaxed);
    if (worker.is_multi)
        return;
    direct_.unlocked_end = end;
    direct_.lets_go =
        end != 0 && (lane_.over->attr().cap.flags & TAGWIRE_UCT_IFACE_FLAG_SENT_AT_ONCE) != 0;
    const bool is_free = hold.has_sent && lane_.state == EpState::kReady && !gathers(*lane_.over) &&
                         queue_.may_pass_directly() && !closing_.is_closing() &&
                         !closing_.has_asked() && lane_.over->can_get() && lane_.over->can_put();
    rma_lane.put_end = is_free ? lane_.over->attr().cap.put.max_short + 1 : 0;
    rma_lane.get_end = is_free ? lane_.over->attr().cap.get.max_short + 1 : 0;
}

void Endpoint::write_out(const tw_op_t* op) {
    const bool has_more = op != nullptr && (op->flags & TW_OP_MORE) != 0;
    if (lane_.state == EpState::kReady && gathers(*lane_.over) && !has_more &&
        !worker.is_in_progress_here())
        uct_ep_flush(lane_.ep, TAGWIRE_UCT_FLUSH_FLAG_WRITE, nullptr);
}

void Endpoint::opened() {
    hold.has_sent = false;
    update_direct();
}

void Endpoint::begin_sending() {
    hold.has_sent = true;
    update_direct();
}

void Endpoint::request_ended(const Request* ended) {
    if (lane_.state == EpState::kFailed)
        return;
    if (!flushes_.is_empty())
        flushes_.check(ended);
    if (queue_.has_operations())
        queue_.run();
}

/// The peer is asked to drop a message when all of it has gone (EagerSender, RndvSender).
void Endpoint::cancel(Request& request) {
    request.wants_cancel = true;
    if (request.is_announced)
        return;
    if (request.is_queued && !request.is_outstanding && request.offset == 0 && !request.has_gone &&
        request.kind == RequestKind::kSend) {
        queue_.remove(request);
        worker.finish(request, UCS_ERR_CANCELED);
        request_ended();
        update_direct();
    } else if (request.kind == RequestKind::kRma) {
        if (request.is_queued && !request.is_outstanding && !has_begun(request)) {
            queue_.remove(request);
            worker.finish(request, UCS_ERR_CANCELED);
            request_ended();
            update_direct();
        }
    } else if (request.is_outstanding && request.id != 0 && request.kind == RequestKind::kSend) {
        control(Cancel{request.id});
    }
}

Request* Endpoint::begin(const Outgoing& message, bool is_held) {
    RequestTable& requests = worker.requests();
    Request* request = requests.make(RequestKind::kSend, message.op, message.request_p, is_held);
    if (request == nullptr)
        return nullptr;
    if (!requests.set_buffer(*request, message.base, message.length, message.list, message.count,
                             message.op == nullptr ? nullptr : message.op->mem)) {
        requests.release(*request);
        return nullptr;
    }
    request->ep = this;
    if (message.am != nullptr && !requests.set_am(*request, *message.am)) {
        requests.release(*request);
        return nullptr;
    }
    request->is_tagged = message.is_tagged;
    request->done = end_of(message, sender_handle(*this));
    request->done.request = request;
    if (queue_.may_start(*request) && may_send_short(0) &&
        rndv_.try_start_at_once(*request, flushes_.order())) {
        flushes_.next_order();
        return request;
    }
    if (queue_.submit(*request))
        return request;
    requests.release(*request);
    return nullptr;
}

Stripes& Endpoint::stripes() {
    if (stripes_ == nullptr)
        stripes_ = std::make_unique<Stripes>(StripesPorts{worker.port(), worker.wireup_world(),
                                                          *this, peer_id, lane_, connector_,
                                                          receiving, outstanding});
    return *stripes_;
}

void Endpoint::begin_transfer(Request& request, std::span<const std::byte> packed,
                              bool only_connections) {
    const bool is_long = request.wanted >= lane_.rail().striped_from();
    if (is_long)
        stripes().divide(request, packed, only_connections);
    queue_.push_data(request);
    if (is_long && stripes_ != nullptr)
        stripes_->drain();
}

}  // namespace tagwire::proto
