// SPDX-License-Identifier: BSD-3-Clause
// What peers send: messages meet posted receives.
#include <algorithm>
#include <cstring>

#include "protocols/arrival.hpp"
#include "protocols/short_way.hpp"
#include "protocols/stripe.hpp"
#include "protocols/worker.hpp"
#include "ucs/log/log.hpp"

namespace tagwire::proto {

namespace {

/// Takes a T from the front. False: there are too few bytes.
template <class T>
bool take(std::span<const std::byte>* bytes, T* value) {
    if (bytes->size() < sizeof *value)
        return false;
    std::memcpy(value, bytes->data(), sizeof *value);
    *bytes = bytes->subspan(sizeof *value);
    return true;
}

/// What lies between the header and the data of a message.
bool take_envelope(std::span<const std::byte>* bytes, const Header& header,
                   Worker::Arrival* arrival) {
    std::uint64_t word = 0;
    if ((header.flags & ~std::uint32_t{kHeaderFlags}) != 0)
        return false;
    if ((header.flags & kImm) != 0 && !take(bytes, &arrival->imm))
        return false;
    if ((header.flags & kAcks) != 0) {
        if (!take(bytes, &word))
            return false;
        arrival->send_id = static_cast<std::uint32_t>(word);
    }
    return true;
}

}  // namespace

inline Request* Worker::match(MatchSpace& space, std::uint64_t tag, std::uint32_t source) {
    if (&space == &spaces_[1]) [[likely]]
        return static_cast<Request*>(space.posted.match(tag, source));
    auto* request = static_cast<Request*>(space.posted.find(tag, source));
    if (request == nullptr)
        return nullptr;
    if ((request->flags & TW_OP_MULTI_RECV) == 0) {
        space.posted.cancel(*request);
        return request;
    }
    return make_child(*request);
}

ucs_status_t Worker::on_eager(const std::byte* data, std::size_t length) {
    Header header;
    if (length - sizeof header > kShortCopyMax) [[unlikely]]  // or shorter than a header
        return on_long_eager(data, length);
    std::memcpy(&header, data, sizeof header);
    Endpoint* ep = names_.find(header.sender);
    if (ep == nullptr) [[unlikely]]
        return garbage("message of nobody", length);
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
    return on_eager_among_others(data, length);
}

ucs_status_t Worker::on_long_eager(const std::byte* data, std::size_t length) {
    Header header;
    if (length < sizeof header)
        return garbage("eager message", length);
    std::memcpy(&header, data, sizeof header);
    if (names_.find(header.sender) == nullptr)
        return garbage("message of nobody", length);
    return on_eager_among_others(data, length);
}

ucs_status_t Worker::on_eager_among_others(const std::byte* data, std::size_t length) {
    Header header;
    std::memcpy(&header, data, sizeof header);
    Endpoint& ep = *names_.find(header.sender);
    const std::span<const std::byte> rest{data + sizeof header, length - sizeof header};
    Request* request = nullptr;
    std::span<const std::byte> bytes = rest;
    std::uint64_t imm = 0;
    if ((header.flags & ~std::uint32_t{kTagged | kImm}) == 0 &&
        ((header.flags & kImm) == 0 || take(&bytes, &imm))) {
        request = match(space((header.flags & kTagged) != 0), header.tag, ep.source);
        if (request != nullptr && is_short(*request, bytes.size())) {
            if (bytes.size() > kShortCopyMax) {
                end_short<true>(*request, ep, header, bytes.data(), bytes.size(), imm);
            } else {
                end_short<false>(*request, ep, header, bytes.data(), bytes.size(), imm);
            }
            return UCS_OK;
        }
    }
    if ((header.flags & kAnnounced) != 0)
        return announce(ep, AmId::kEager, {data, length});
    take_eager(ep, header, rest, request);
    return UCS_OK;
}

/// The long way of an eager message; `request` has been matched, if it is not null. False: the
/// message cannot be, and is dropped.
bool Worker::take_eager(Endpoint& ep, const Header& header, std::span<const std::byte> bytes,
                        Request* request) {
    Arrival arrival{};
    arrival.tag = header.tag;
    arrival.flags = header.flags;
    arrival.bytes = bytes;
    if (!take_envelope(&arrival.bytes, header, &arrival))
        return drop("eager message", bytes.size());
    arrival.length = arrival.bytes.size();
    if ((header.flags & kMoreParts) != 0 &&
        (!take(&arrival.bytes, &arrival.length) || arrival.length <= arrival.bytes.size() ||
         ep.has_incoming))
        return drop("first part", bytes.size());
    if (request == nullptr)
        arrive_unmatched(ep, arrival);
    else
        arrive(ep, arrival, request);
    return true;
}

ucs_status_t Worker::on_rndv(const std::byte* data, std::size_t length) {
    std::span<const std::byte> bytes{data, length};
    Header header;
    Endpoint* ep = take(&bytes, &header) ? names_.find(header.sender) : nullptr;
    if (ep == nullptr)
        return garbage("rendezvous of nobody", length);
    if ((header.flags & kAnnounced) != 0)
        return announce(*ep, AmId::kRndv, {data, length});
    take_rndv(*ep, header, bytes, nullptr);
    return UCS_OK;
}

/// As take_eager().
bool Worker::take_rndv(Endpoint& ep, const Header& header, std::span<const std::byte> bytes,
                       Request* request) {
    Arrival arrival{};
    arrival.bytes = bytes;
    if ((header.flags & (kAcks | kMoreParts)) != 0 ||
        !take_envelope(&arrival.bytes, header, &arrival) || !take(&arrival.bytes, &arrival.rndv))
        return drop("request of a rendezvous", bytes.size());
    arrival.tag = header.tag;
    arrival.flags = header.flags;
    arrival.length = arrival.rndv.length;
    arrival.send_id = arrival.rndv.send_id;
    arrival.is_rndv = true;
    if (request == nullptr)
        arrive_unmatched(ep, arrival);
    else
        arrive(ep, arrival, request);
    return true;
}

// ---- Messages that come before their place in the order: device_tags.hpp

/// `bytes` are all of an active message, from its header on.
ucs_status_t Worker::announce(Endpoint& ep, AmId am, std::span<const std::byte> bytes) {
    Header header;
    std::memcpy(&header, bytes.data(), sizeof header);
    if (device_tags_ == nullptr || (header.flags & kTagged) == 0 ||
        (header.flags & kMoreParts) != 0 || ep.announced.size() >= options().envelopes_max)
        return garbage("message without a place", bytes.size());
    ep.announced.push_back({am, {bytes.begin(), bytes.end()}});
    return UCS_OK;
}

/// The place of an announced message: it arrives now. `request` has been matched, if it is not
/// null, and is left alone when the answer is false: there is no such message.
bool Worker::take_announced(Endpoint& ep, const Placeholder& place, std::uint64_t tag,
                            Request* request) {
    const std::uint32_t index = place.number - ep.first_announced;
    if (index >= ep.announced.size() || ep.announced[index].bytes.empty())
        return drop("place of no message", sizeof place);
    const AmId am = ep.announced[index].am;
    const std::vector<std::byte> bytes = std::exchange(ep.announced[index].bytes, {});
    while (!ep.announced.empty() && ep.announced.front().bytes.empty()) {
        ep.announced.pop_front();
        ++ep.first_announced;
    }
    Header header;
    std::memcpy(&header, bytes.data(), sizeof header);
    header.flags &= ~std::uint32_t{kAnnounced};
    const auto rest = std::span(bytes).subspan(sizeof header);
    if (header.tag != tag)
        return drop("message whose place has another tag", bytes.size());
    return am == AmId::kRndv ? take_rndv(ep, header, rest, request)
                             : take_eager(ep, header, rest, request);
}

void Worker::arrive_unmatched(Endpoint& ep, const Arrival& arrival) {
    arrive(ep, arrival, match(space((arrival.flags & kTagged) != 0), arrival.tag, ep.source));
}

/// `request` has been matched; null: none was.
void Worker::arrive(Endpoint& ep, const Arrival& arrival, Request* request) {
    if (request == nullptr)
        return keep(ep, arrival);
    has_left(*request);
    count(WorkerCounter::kRxExpected);
    deliver(*request, ep, arrival);
}

/// What its completion says of the message.
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

/// A device has written the message into its buffer.
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
        return begin_rndv(request, ep, arrival.rndv, arrival.bytes);
    request.wanted = fits;
    request.acks = arrival.flags & kAcks;
    request.peer_id = arrival.send_id;
    if ((request.acks & kAckMatch) != 0)
        ep.control(ControlOp::kAck, arrival.send_id);
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
        ep.control(ControlOp::kAck, request.peer_id);
    request.done.length = request.wanted;
    finish(request,
           request.done.message_length > request.wanted ? UCS_ERR_MESSAGE_TRUNCATED : UCS_OK);
}

ucs_status_t Worker::on_part(const std::byte* data, std::size_t length) {
    std::span<const std::byte> bytes{data, length};
    Part part;
    Endpoint* ep = take(&bytes, &part) ? names_.find(part.sender) : nullptr;
    if (ep == nullptr || !ep->has_incoming || bytes.empty() ||
        bytes.size() > ep->incoming_length - ep->incoming_bytes)
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

ucs_status_t Worker::on_data(const std::byte* data, std::size_t length) {
    std::span<const std::byte> bytes{data, length};
    Data head;
    Request* request = take(&bytes, &head) ? requests_.find(head.receive_id) : nullptr;
    if (request == nullptr || request->kind != RequestKind::kReceive || !request->is_outstanding ||
        request->ep != names_.find(head.sender) || head.offset != request->offset ||
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
    std::span<const std::byte> bytes{data, length};
    PutOffer offer;
    Endpoint* ep = take(&bytes, &offer) ? names_.find(offer.sender) : nullptr;
    if (ep == nullptr || ep->state() != EpState::kReady || bytes.size() < offer.key_bytes ||
        (offer.key_count == 0 && bytes.size() > offer.key_bytes))
        return garbage("offer to write", length);
    ep->on_put_offer(offer, bytes);
    return UCS_OK;
}

ucs_status_t Worker::on_control(const std::byte* data, std::size_t length) {
    std::span<const std::byte> bytes{data, length};
    Control message;
    Endpoint* ep = take(&bytes, &message) ? names_.find(message.sender) : nullptr;
    if (ep == nullptr)
        return garbage("control message", length);
    ep->on_control(message);
    return UCS_OK;
}

ucs_status_t Worker::on_wireup(const std::byte* data, std::size_t length) {
    std::span<const std::byte> bytes{data, length};
    Wireup wireup;
    if (!take(&bytes, &wireup))
        return garbage("wire-up", length);
    if (wireup.version != kWireVersion || wireup.to != id_) {
        TW_LOG_ERROR(
            "wire-up of worker %016lx: version %u, for worker %016lx: this one is "
            "version %u of %016lx",
            wireup.from, wireup.version, wireup.to, kWireVersion, id_);
        return garbage("wire-up", length);
    }
    if (static_cast<WireupOp>(wireup.op) == WireupOp::kHello)
        return on_hello(wireup.from, bytes);
    Offer offer;
    if (!take(&bytes, &offer) || bytes.size() < offer.address_bytes)
        return garbage("offer", length);
    Endpoint* ep = endpoint_to(wireup.from);
    if (ep == nullptr)
        return garbage("offer of nobody", length);
    switch (static_cast<WireupOp>(wireup.op)) {
        case WireupOp::kOffer:
            if (offer.id == ep->id)
                ep->on_offer(offer, bytes.first(offer.address_bytes));
            break;
        case WireupOp::kReady:
            if (offer.id == ep->id)
                ep->on_ready(offer);
            break;
        case WireupOp::kRefuse:
            ep->on_refuse(offer);
            break;
        case WireupOp::kStripeOffer:
            if (offer.id == ep->id)
                ep->stripes().on_offer(offer, bytes.first(offer.address_bytes));
            break;
        case WireupOp::kStripeReady:
            if (offer.id == ep->id)
                ep->stripes().on_ready(offer);
            break;
        case WireupOp::kStripeRefuse:
            if (offer.id == ep->id)
                ep->stripes().on_refuse(offer);
            break;
        default:
            return garbage("wire-up", length);
    }
    return UCS_OK;
}

ucs_status_t Worker::on_hello(std::uint64_t from, std::span<const std::byte> bytes) {
    const std::size_t length = bytes.size();
    Hello hello;
    if (!take(&bytes, &hello) || hello.rails > UINT8_MAX)
        return garbage("hello", length);
    std::vector<PeerRail> rails(hello.rails);
    for (PeerRail& rail : rails) {
        RailHead head;
        if (!take(&bytes, &head) ||
            bytes.size() < std::size_t{head.device_bytes} + head.iface_bytes)
            return garbage("hello", length);
        rail.transport.assign(head.transport, strnlen(head.transport, sizeof head.transport));
        rail.domain = head.domain;
        rail.flags = head.flags;
        const auto device = bytes.first(head.device_bytes);
        const auto iface = bytes.subspan(head.device_bytes, head.iface_bytes);
        rail.device.assign(device.begin(), device.end());
        rail.iface.assign(iface.begin(), iface.end());
        bytes = bytes.subspan(std::size_t{head.device_bytes} + head.iface_bytes);
    }
    // Connections of one peer may overtake each other on their way, and a hello that was repeated
    // may come when its connection is over.
    Endpoint* ep = endpoint_to(from);
    Peer& peer = peer_of(from);
    const auto newer = static_cast<std::int32_t>(hello.number - peer.connection);
    const bool is_current = ep != nullptr && (ep->peer_names == hello.id ||
                                              (ep->peer_names == 0 && hello.known == ep->id));
    // The peer hears from our own hello that this name is worn.
    if (newer < 0 || (newer == 0 && !is_current) || hello.id == peer.worn)
        return UCS_OK;
    peer.connection = hello.number;
    if (ep != nullptr && ep->peer_names == 0 && ep->id == hello.worn) {
        reconnect(*ep);
        ep = endpoint_to(from);
    }
    if (ep != nullptr && ep->peer_names != 0 && ep->peer_names != hello.id) {
        // The peer has begun anew: what it had with us before has ended.
        if (ep->has_asked()) {
            ep->on_left(true);
        } else {
            ep->fail(UCS_ERR_CONNECTION_RESET);
        }
        ep = endpoint_to(from);
    }
    if (ep == nullptr)
        ep = make_endpoint(from);
    if (ep == nullptr)
        return garbage("hello", length);
    ep->on_hello(hello, std::move(rails));
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
