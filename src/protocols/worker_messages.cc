// SPDX-License-Identifier: BSD-3-Clause
// Messages of peers: each is decoded, its endpoint is found, and it goes to the part of the worker
// that it is for.
#include <cstring>
#include <utility>

#include "protocols/arrival.hpp"
#include "protocols/fast_path.hpp"
#include "protocols/stripe.hpp"
#include "protocols/worker.hpp"
#include "ucs/log/log.hpp"

namespace tagwire::proto {

ucs_status_t Worker::on_eager(const std::byte* data, std::size_t length) {
    Header header;
    if (length - sizeof header > kShortCopyMax) [[unlikely]]  // or shorter than a header
        return on_long_eager(data, length);
    std::memcpy(&header, data, sizeof header);
    Endpoint* ep = peers_.find(header.sender);
    if (ep == nullptr) [[unlikely]]
        return of_nobody(header.sender, "message", length);
    // The earliest receive of all, as for most messages; nothing here calls before the callback.
    if (header.flags == kTagged) [[likely]] {
        PostedReceives& posted = space(true).posted;
        auto* request = static_cast<Request*>(posted.first(header.tag, ep->source));
        if (request != nullptr && is_short(*request, length - sizeof header)) [[likely]] {
            posted.take_first();
            end_short<false>(*request, *ep, header, data + sizeof header, length - sizeof header,
                             0);
            return UCS_OK;
        }
    }
    return on_eager_among_others(*ep, header, data + sizeof header, length - sizeof header);
}

ucs_status_t Worker::on_long_eager(const std::byte* data, std::size_t length) {
    Header header;
    if (!decode({data, length}, &header))
        return garbage("eager message", length);
    Endpoint* ep = peers_.find(header.sender);
    if (ep == nullptr)
        return of_nobody(header.sender, "message", length);
    return on_eager_among_others(*ep, header, data + sizeof header, length - sizeof header);
}

/// `data` and `length`: what is behind the header.
ucs_status_t Worker::on_eager_among_others(Endpoint& ep, Header header, const std::byte* data,
                                           std::size_t length) {
    if ((header.flags & kAnnounced) != 0) {
        receiver_.announce(ep, AmId::kEager, header, {data, length});
        return UCS_OK;
    }
    Request* request = nullptr;
    if ((header.flags & ~std::uint32_t{kTagged | kImm}) == 0) {
        std::uint64_t imm = 0;
        const std::size_t before = (header.flags & kImm) != 0 ? sizeof imm : 0;
        if (length < before)
            return garbage("eager message", length);
        std::memcpy(&imm, data, before);
        request = match(space((header.flags & kTagged) != 0), header.tag, ep.source);
        const std::size_t bytes = length - before;
        if (request != nullptr && is_short(*request, bytes)) {
            if (bytes > kShortCopyMax)
                end_short<true>(*request, ep, header, data + before, bytes, imm);
            else
                end_short<false>(*request, ep, header, data + before, bytes, imm);
            return UCS_OK;
        }
    }
    receiver_.take_eager(ep, header, {data, length}, request);
    return UCS_OK;
}

ucs_status_t Worker::on_rts(const std::byte* data, std::size_t length) {
    Header header;
    if (!decode({data, length}, &header))
        return garbage("rendezvous", length);
    Endpoint* ep = peers_.find(header.sender);
    if (ep == nullptr)
        return of_nobody(header.sender, "rendezvous", length);
    const WireBytes behind{data + sizeof header, length - sizeof header};
    if ((header.flags & kAnnounced) != 0)
        receiver_.announce(*ep, AmId::kRts, header, behind);
    else
        receiver_.take_rndv(*ep, header, behind, nullptr);
    return UCS_OK;
}

ucs_status_t Worker::on_part(const std::byte* data, std::size_t length) {
    PartMessage part;
    if (!decode({data, length}, &part))
        return garbage("part of a message", length);
    Endpoint* ep = peers_.find(part.part.sender);
    if (ep == nullptr)
        return of_nobody(part.part.sender, "part of a message", length);
    return receiver_.take_part(*ep, part.data) ? UCS_OK : garbage("part of a message", length);
}

ucs_status_t Worker::on_data(const std::byte* data, std::size_t length) {
    DataMessage message;
    if (!decode({data, length}, &message))
        return garbage("data of a rendezvous", length);
    const Endpoint* ep = peers_.find(message.head.sender);
    if (ep == nullptr)
        return of_nobody(message.head.sender, "data of a rendezvous", length);
    return receiver_.take_data(*ep, message) ? UCS_OK : garbage("data of a rendezvous", length);
}

ucs_status_t Worker::on_rtr(const std::byte* data, std::size_t length) {
    RtrMessage message;
    if (!decode({data, length}, &message))
        return garbage("offer to write", length);
    Endpoint* ep = peers_.find(message.rtr.sender);
    if (ep == nullptr)
        return of_nobody(message.rtr.sender, "offer to write", length);
    if (ep->state() != EpState::kReady)
        return garbage("offer to write", length);
    ep->on_rtr(message);
    return UCS_OK;
}

ucs_status_t Worker::on_control(const std::byte* data, std::size_t length) {
    Control message;
    if (!decode({data, length}, &message))
        return garbage("control message", length);
    Endpoint* ep = peers_.find(message.sender);
    if (ep == nullptr)
        return of_nobody(message.sender, "control message", length);
    ep->on_control(message);
    return UCS_OK;
}

ucs_status_t Worker::on_wireup(const std::byte* data, std::size_t length) {
    Wireup wireup;
    WireBytes behind;
    if (!decode({data, length}, &wireup, &behind))
        return garbage("wire-up", length);
    if (wireup.version != kWireVersion || wireup.to != id_) {
        TW_LOG_ERROR(
            "wire-up of worker %016lx: version %u, for worker %016lx: this one is "
            "version %u of %016lx",
            wireup.from, wireup.version, wireup.to, kWireVersion, id_);
        return garbage("wire-up", length);
    }
    if (static_cast<WireupOp>(wireup.op) == WireupOp::kHello) {
        HelloMessage hello;
        const bool is_taken =
            decode(behind, &hello) && peers_.on_hello(wireup.from, std::move(hello));
        return is_taken ? UCS_OK : garbage("hello", length);
    }
    OfferMessage message;
    if (!decode(behind, &message))
        return garbage("offer", length);
    Endpoint* ep = peers_.endpoint_to(wireup.from);
    if (ep == nullptr)
        return garbage("offer of nobody", length);
    if (message.offer.id != ep->id)
        return UCS_OK;  // of an earlier connection
    switch (static_cast<WireupOp>(wireup.op)) {
        case WireupOp::kOffer:
            ep->on_offer(message);
            break;
        case WireupOp::kReady:
            ep->on_ready(message.offer);
            break;
        case WireupOp::kRefuse:
            ep->on_refuse(message.offer);
            break;
        case WireupOp::kStripeOffer:
            ep->stripes().on_offer(message);
            break;
        case WireupOp::kStripeReady:
            ep->stripes().on_ready(message.offer);
            break;
        default:
            ep->stripes().on_refuse(message.offer);
            break;
    }
    return UCS_OK;
}

/// Messages of a peer may be on their way, or wait in a queue of ours, when its endpoint goes.
ucs_status_t Worker::of_nobody(std::uint32_t sender, const char* what, std::size_t length) {
    if (!peers_.is_past(sender))
        return garbage(what, length);
    count(WorkerCounter::kLate);
    TW_LOG_DEBUG("%s of %zu bytes is late: its endpoint has gone", what, length);
    return UCS_OK;
}

bool Worker::drop(const char* what, std::size_t length) {
    garbage(what, length);
    return false;
}

ucs_status_t Worker::garbage(const char* what, std::size_t length) {
    count(WorkerCounter::kGarbage);
    TW_LOG_DEBUG("%s of %zu bytes is dropped", what, length);
    return UCS_OK;
}

}  // namespace tagwire::proto
