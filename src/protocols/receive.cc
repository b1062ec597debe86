// SPDX-License-Identifier: BSD-3-Clause
// The receiving half of a worker: messages from peers meet posted receives.
#include <algorithm>
#include <cstring>

#include "protocols/arrival.hpp"
#include "protocols/fast_path.hpp"
#include "protocols/stripe.hpp"
#include "protocols/worker.hpp"
#include "ucs/log/log.hpp"

namespace tagwire::proto {

inline Request* Worker::match(MatchSpace& space, std::uint64_t tag, std::uint32_t source) {
    if (&space == &matches_.space(true)) [[likely]]
        return static_cast<Request*>(space.posted.match(tag, source));
    auto* request = static_cast<Request*>(space.posted.find(tag, source));
    if (request == nullptr)
        return nullptr;
    if ((request->flags & TW_OP_MULTI_RECV) == 0) {
        space.posted.cancel(*request);
        return request;
    }
    return requests_.make_part(*request);
}

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
    if (length < sizeof header)
        return garbage("eager message", length);
    std::memcpy(&header, data, sizeof header);
    Endpoint* ep = peers_.find(header.sender);
    if (ep == nullptr)
        return of_nobody(header.sender, "message", length);
    return on_eager_among_others(*ep, header, data + sizeof header, length - sizeof header);
}

/// `data` and `length`: what is behind the header.
ucs_status_t Worker::on_eager_among_others(Endpoint& ep, Header header, const std::byte* data,
                                           std::size_t length) {
    if ((header.flags & kAnnounced) != 0)
        return announce(ep, AmId::kEager, header, {data, length});
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
    take_eager(ep, header, {data, length}, request);
    return UCS_OK;
}

/// The slow path of an eager message; `request` has been matched, if it is not null. False: the
/// message cannot be, and is dropped.
bool Worker::take_eager(Endpoint& ep, const Header& header, WireBytes behind, Request* request) {
    EagerBody body;
    if (!decode(header, behind, &body) || ((header.flags & kMoreParts) != 0 && ep.has_incoming))
        return drop("eager message", behind.size());
    Arrival arrival{};
    arrival.tag = header.tag;
    arrival.flags = header.flags;
    arrival.imm = body.imm;
    arrival.length = body.length;
    arrival.send_id = body.send_id;
    arrival.bytes = body.data;
    if (request == nullptr)
        arrive_unmatched(ep, arrival);
    else
        arrive(ep, arrival, request);
    return true;
}

ucs_status_t Worker::on_rndv(const std::byte* data, std::size_t length) {
    Header header;
    if (length < sizeof header)
        return garbage("rendezvous", length);
    std::memcpy(&header, data, sizeof header);
    Endpoint* ep = peers_.find(header.sender);
    if (ep == nullptr)
        return of_nobody(header.sender, "rendezvous", length);
    const WireBytes behind{data + sizeof header, length - sizeof header};
    if ((header.flags & kAnnounced) != 0)
        return announce(*ep, AmId::kRts, header, behind);
    take_rndv(*ep, header, behind, nullptr);
    return UCS_OK;
}

/// As take_eager().
bool Worker::take_rndv(Endpoint& ep, const Header& header, WireBytes behind, Request* request) {
    RtsBody body;
    if (!decode(header, behind, &body))
        return drop("request of a rendezvous", behind.size());
    Arrival arrival{};
    arrival.bytes = body.keys.all();
    arrival.imm = body.imm;
    arrival.rts = body.rts;
    arrival.tag = header.tag;
    arrival.flags = header.flags;
    arrival.length = arrival.rts.length;
    arrival.send_id = arrival.rts.send_id;
    arrival.is_rndv = true;
    if (request == nullptr)
        arrive_unmatched(ep, arrival);
    else
        arrive(ep, arrival, request);
    return true;
}

// ---- Messages that come before their place in the order: device_tags.hpp

/// So many announced messages are nothing to hold a peer back for.
constexpr std::size_t kAnnouncedFew = 64;

/// `behind`: what follows the header.
ucs_status_t Worker::announce(Endpoint& ep, AmId am, const Header& header, WireBytes behind) {
    if (device_tags_ == nullptr || (header.flags & kTagged) == 0 ||
        (header.flags & kMoreParts) != 0)
        return garbage("message without a place", behind.size());
    Announced announced{am, header, {behind.begin(), behind.end()}, false};
    announced.header.flags &= ~std::uint32_t{kAnnounced};
    const std::size_t held = announced.held();
    if (!matches_.admit(ep, held))
        return UCS_OK;
    matches_.hold(ep, held);
    ep.announced.push_back(std::move(announced));
    // Their places follow soon, unless the peer has no such intent.
    if (ep.announced.size() > kAnnouncedFew)
        matches_.pause_if_full(ep);
    return UCS_OK;
}

/// The oldest announced message goes; if its place has come, it was counted out then.
void Worker::drop_announced(Endpoint& ep) {
    if (const Announced& oldest = ep.announced.front(); !oldest.has_come)
        count_out(ep, oldest);
    ep.announced.pop_front();
    ++ep.first_announced;
}

void Worker::count_out(Endpoint& ep, const Announced& message) {
    matches_.unhold(ep, message.held());
}

bool Worker::take_announced(Endpoint& ep, const Placeholder& place, std::uint64_t tag,
                            Request* request) {
    const std::uint32_t index = place.number - ep.first_announced;
    if (index >= ep.announced.size() || ep.announced[index].has_come)
        return drop("place of no message", sizeof place);
    const Announced message = std::exchange(ep.announced[index], Announced{});
    ep.announced[index].has_come = true;
    count_out(ep, message);
    while (!ep.announced.empty() && ep.announced.front().has_come)
        drop_announced(ep);
    bool is_message = message.header.tag == tag;
    if (!is_message)
        drop("message whose place has another tag", message.bytes.size());
    else if (message.am == AmId::kRts)
        is_message = take_rndv(ep, message.header, message.bytes, request);
    else
        is_message = take_eager(ep, message.header, message.bytes, request);
    matches_.resume_if_free(&ep);
    return is_message;
}

void Worker::arrive_unmatched(Endpoint& ep, const Arrival& arrival) {
    arrive(ep, arrival, match(space((arrival.flags & kTagged) != 0), arrival.tag, ep.source));
}

void Worker::arrive(Endpoint& ep, const Arrival& arrival, Request* request) {
    if (request == nullptr)
        return matches_.add(ep, arrival);
    unposted(*request);
    count(WorkerCounter::kRxExpected);
    deliver(*request, ep, arrival);
}

/// Fills in the message's fields of the completion.
void Worker::describe(Request& request, Endpoint& ep, const Arrival& arrival) {
    tw_completion_t& done = request.done;
    done.tag = arrival.tag;
    done.imm = arrival.imm;
    done.message_length = arrival.length;
    done.source = ep.worker_id;
    done.ep = ep.handle();
    done.flags |= TW_DONE_RECV | flag_if((arrival.flags & kTagged) != 0, TW_DONE_TAGGED) |
                  flag_if((arrival.flags & kImm) != 0, TW_DONE_IMM);
}

void Worker::end_in_place(Request& request, Endpoint& ep, const Arrival& arrival) {
    count(WorkerCounter::kRxExpected);
    describe(request, ep, arrival);
    request.done.length = arrival.length;
    finish(request, UCS_OK);
}

void Worker::deliver(Request& request, Endpoint& ep, const Arrival& arrival) {
    if (!request.is_whole)
        request.make_whole();
    if ((request.flags & TW_OP_BUFFERED) != 0)
        return buffer(request, ep, arrival);
    describe(request, ep, arrival);
    const std::size_t fits = std::min<std::uint64_t>(arrival.length, request.buffer.length);
    use_room(request, fits);
    if (arrival.is_rndv)
        return begin_rndv(request, ep, arrival.rts, arrival.bytes);
    request.wanted = fits;
    request.acks = arrival.flags & kAcks;
    request.peer_id = arrival.send_id;
    if ((request.acks & kAckMatch) != 0)
        ep.control(Ack{arrival.send_id});
    const std::size_t now = std::min(arrival.bytes.size(), fits);
    if (now > 0)
        request.buffer.scatter(0, arrival.bytes.data(), now);
    if (arrival.bytes.size() == arrival.length)
        return end_receive(request, ep);
    request.offset = now;
    set_outstanding(request, ep);
    ep.has_incoming = true;
    ep.incoming_request = &request;
    ep.incoming_message = nullptr;
    ep.incoming_bytes = arrival.bytes.size();
    ep.incoming_length = arrival.length;
}

/// All data of an eager message is in the buffer.
void Worker::end_receive(Request& request, Endpoint& ep) {
    if ((request.acks & kAckDelivery) != 0)
        ep.control(Ack{request.peer_id});
    request.done.length = request.wanted;
    finish(request,
           request.done.message_length > request.wanted ? UCS_ERR_MESSAGE_TRUNCATED : UCS_OK);
}

ucs_status_t Worker::on_part(const std::byte* data, std::size_t length) {
    PartMessage part;
    if (!decode({data, length}, &part))
        return garbage("part of a message", length);
    Endpoint* ep = peers_.find(part.part.sender);
    if (ep == nullptr)
        return of_nobody(part.part.sender, "part of a message", length);
    const WireBytes bytes = part.data;
    if (!ep->has_incoming || bytes.size() > ep->incoming_length - ep->incoming_bytes)
        return garbage("part of a message", length);
    if (Request* request = ep->incoming_request) {
        if (request->offset < request->wanted) {
            const std::size_t now =
                std::min<std::uint64_t>(bytes.size(), request->wanted - request->offset);
            request->buffer.scatter(request->offset, bytes.data(), now);
            request->offset += now;
        }
    } else if (Unexpected* message = ep->incoming_message) {
        std::memcpy(message->data() + message->received, bytes.data(), bytes.size());
        message->received += bytes.size();
    }
    ep->incoming_bytes += bytes.size();
    const bool is_last = ep->incoming_bytes == ep->incoming_length;
    Request* const request = is_last ? ep->incoming_request : nullptr;
    Unexpected* const message = ep->incoming_message;
    if (is_last) {
        ep->has_incoming = false;
        ep->incoming_message = nullptr;
        ep->incoming_request = nullptr;
    }
    // Both may call the program, which may take the message.
    if (request != nullptr)
        end_receive(*request, *ep);
    if (message != nullptr && message->waiting != nullptr && is_enough_here(*message))
        report_buffered(*message);
    return UCS_OK;
}

/// Whether the peer may send the data of this receive, or say how that ended: it was asked to, and
/// nothing of our side is moving it.
bool Worker::awaits_data(const Request* request, const Endpoint* ep) {
    return request != nullptr && ep != nullptr && request->ep == ep &&
           request->kind == RequestKind::kReceive && request->is_outstanding &&
           !request->is_queued && request->transfer == nullptr;
}

ucs_status_t Worker::on_data(const std::byte* data, std::size_t length) {
    DataMessage message;
    if (!decode({data, length}, &message))
        return garbage("data of a rendezvous", length);
    const WireBytes bytes = message.data;
    const Endpoint* ep = peers_.find(message.head.sender);
    if (ep == nullptr)
        return of_nobody(message.head.sender, "data of a rendezvous", length);
    Request* request = requests_.find(message.head.receive_id);
    if (!awaits_data(request, ep) || message.head.offset != request->offset ||
        bytes.size() > request->wanted - request->offset)
        return garbage("data of a rendezvous", length);
    if (request->is_offered) {
        request->is_offered = false;
        count_copy();
    }
    request->buffer.scatter(request->offset, bytes.data(), bytes.size());
    request->offset += bytes.size();
    if (request->offset == request->wanted)
        rndv_ended(*request, UCS_OK);
    return UCS_OK;
}

ucs_status_t Worker::on_put(const std::byte* data, std::size_t length) {
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

bool Worker::drop(const char* what, std::size_t length) {
    garbage(what, length);
    return false;
}

/// Messages of a peer may be on their way, or wait in a queue of ours, when its endpoint goes.
ucs_status_t Worker::of_nobody(std::uint32_t sender, const char* what, std::size_t length) {
    if (!peers_.is_past(sender))
        return garbage(what, length);
    count(WorkerCounter::kLate);
    TW_LOG_DEBUG("%s of %zu bytes is late: its endpoint has gone", what, length);
    return UCS_OK;
}

ucs_status_t Worker::garbage(const char* what, std::size_t length) {
    count(WorkerCounter::kGarbage);
    TW_LOG_DEBUG("%s of %zu bytes is dropped", what, length);
    return UCS_OK;
}

}  // namespace tagwire::proto
