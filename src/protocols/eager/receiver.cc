// SPDX-License-Identifier: BSD-3-Clause
// Messages that have come meet posted receives.
#include "protocols/eager/receiver.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "protocols/cost/advisor.hpp"
#include "protocols/match/arrival.hpp"
#include "protocols/offload/device_tags.hpp"
#include "protocols/wire/limits.hpp"
#include "protocols/worker/endpoint.hpp"
#include "protocols/worker/fast_path.hpp"
#include "protocols/worker/worker_core.hpp"
#include "ucs/time/clock.hpp"

namespace tagwire::proto {

namespace {

/// So many announced messages are nothing to hold a peer back for.
constexpr std::size_t kAnnouncedFew = 64;

// The sender's window counts at least what is kept here: an announced message is counted twice by
// both sides.
static_assert(sizeof(Announced) + sizeof(Envelope) <= kMessageBytes);

}  // namespace

/// The slow path of an eager message; `request` has been matched, if it is not null. Returns false
/// if the message is malformed; it has been dropped.
bool Receiver::take_eager(Endpoint& ep, const Header& header, WireBytes behind, Request* request) {
    EagerBody body;
    if (!decode(header, behind, &body) ||
        ((header.flags & kMoreParts) != 0 && ep.incoming.is_under_way))
        return worker_.drop("eager message", behind.size());
    Arrival arrival{};
    arrival.tag = header.tag;
    arrival.flags = header.flags;
    arrival.imm = body.imm;
    arrival.length = body.length;
    arrival.send_id = body.send_id;
    arrival.begun = body.begun;
    arrival.bytes = body.data;
    arrive_or_match(ep, arrival, request);
    return true;
}

/// As take_eager().
bool Receiver::take_rndv(Endpoint& ep, const Header& header, WireBytes behind, Request* request) {
    RtsBody body;
    if (!decode(header, behind, &body))
        return worker_.drop("request of a rendezvous", behind.size());
    Arrival arrival{};
    arrival.bytes = body.keys.all();
    arrival.imm = body.imm;
    arrival.rts = body.rts;
    arrival.tag = header.tag;
    arrival.flags = header.flags;
    arrival.length = arrival.rts.length;
    arrival.send_id = arrival.rts.send_id;
    arrival.is_rndv = true;
    arrive_or_match(ep, arrival, request);
    return true;
}

/// `behind`: what follows the header.
void Receiver::announce(Endpoint& ep, AmId am, const Header& header, WireBytes behind) {
    if (worker_.device_tags() == nullptr || (header.flags & kTagged) == 0 ||
        (header.flags & kMoreParts) != 0)
        return static_cast<void>(worker_.garbage("message without a place", behind.size()));
    Announced announced{am, header, {behind.begin(), behind.end()}, false};
    announced.header.flags &= ~std::uint32_t{kAnnounced};
    const std::size_t held = announced.held();
    if (!worker_.matches().admit(ep, held))
        return;
    worker_.matches().charge(ep, held);
    ep.announced.add(std::move(announced));
    // Their places follow soon, unless the peer has no such intent.
    if (ep.announced.size() > kAnnouncedFew)
        worker_.matches().pause_if_full(ep);
}

bool Receiver::take_announced(Endpoint& ep, const Placeholder& place, std::uint64_t tag,
                              Request* request) {
    const std::optional<Announced> message = ep.announced.take(place.number);
    if (!message)
        return worker_.drop("place of no message", sizeof place);
    worker_.matches().refund(ep, message->held());
    bool is_message = message->header.tag == tag;
    if (!is_message)
        worker_.drop("message whose place has another tag", message->bytes.size());
    else if (message->am == AmId::kRts)
        is_message = take_rndv(ep, message->header, message->bytes, request);
    else
        is_message = take_eager(ep, message->header, message->bytes, request);
    worker_.matches().resume_if_free(&ep);
    return is_message;
}

/// As arrive(), but null: none was looked for yet.
void Receiver::arrive_or_match(Endpoint& ep, const Arrival& arrival, Request* request) {
    if (request == nullptr)
        arrive_unmatched(ep, arrival);
    else
        arrive(ep, arrival, request);
}

void Receiver::arrive_unmatched(Endpoint& ep, const Arrival& arrival) {
    arrive(ep, arrival,
           match(worker_, worker_.space((arrival.flags & kTagged) != 0), arrival.tag, ep.source));
}

void Receiver::arrive(Endpoint& ep, const Arrival& arrival, Request* request) {
    if (request == nullptr)
        return worker_.matches().add(ep, arrival);
    unposted(*request);
    worker_.count(WorkerCounter::kRxExpected);
    deliver(*request, ep, arrival);
}

void Receiver::unpost(Request& request) {
    worker_.space(request.is_tagged).posted.cancel(request);
    unposted(request);
}

void Receiver::unposted(Request& request) {
    request.is_posted = false;
    if (worker_.device_tags() != nullptr && request.is_tagged)
        worker_.device_tags()->left(request);
}

/// Fills in the message's fields of the completion.
void Receiver::describe(Request& request, Endpoint& ep, const Arrival& arrival) {
    tw_completion_t& done = request.done;
    done.tag = arrival.tag;
    done.imm = arrival.imm;
    done.message_length = arrival.length;
    done.source = ep.worker_id;
    done.ep = ep.handle();
    done.flags |= TW_DONE_RECV | flag_if((arrival.flags & kTagged) != 0, TW_DONE_TAGGED) |
                  flag_if((arrival.flags & kImm) != 0, TW_DONE_IMM);
}

void Receiver::end_in_place(Request& request, Endpoint& ep, const Arrival& arrival) {
    worker_.count(WorkerCounter::kRxExpected);
    describe(request, ep, arrival);
    request.done.length = arrival.length;
    worker_.finish(request, UCS_OK);
}

void Receiver::deliver(Request& request, Endpoint& ep, const Arrival& arrival) {
    if (!request.is_whole)
        request.make_whole();
    if ((request.flags & TW_OP_BUFFERED) != 0)
        return buffered_.buffer(request, ep, arrival);
    describe(request, ep, arrival);
    const std::size_t fits = std::min<std::uint64_t>(arrival.length, request.buffer.length);
    use_room(request, fits);
    if (arrival.is_rndv)
        return ep.rndv_receiver().begin(request, arrival.rts, arrival.bytes);
    request.wanted = fits;
    request.acks = arrival.flags & kAcks;
    request.peer_id = arrival.send_id;
    if ((request.acks & kAckMatch) != 0)
        ep.control(Ack{arrival.send_id});
    const bool has_more = arrival.bytes.size() < arrival.length;
    const bool is_timed = (arrival.flags & kTimed) != 0 && ep.lane_state().is_learning() &&
                          fits == arrival.length && Advisor::is_learnt(fits) && !arrival.was_kept;
    Timing timing = is_timed ? Timing::of(arrival.begun, ucs::ticks_now()) : Timing{};
    timing.is_sample = !has_more;
    const std::size_t now = std::min(arrival.bytes.size(), fits);
    const auto kind = arrival.was_kept ? ucs::CopyKind::kLibc  // it is in memory of our own
                                       : ep.copies.out.kind_for(arrival.length);
    if (now > 0)
        request.buffer.scatter(0, arrival.bytes.data(), now, kind);
    if (!has_more) {
        if (timing.is_wanted())
            ep.rndv_receiver().learning().add(false, fits, timing);
        return end_receive(request, ep);
    }
    request.offset = now;
    worker_.set_outstanding(request, ep);
    ep.incoming.begin(&request, arrival.bytes.size(), arrival.length, timing);
}

/// All data of an eager message is in the buffer.
void Receiver::end_receive(Request& request, Endpoint& ep) {
    if ((request.acks & kAckDelivery) != 0)
        ep.control(Ack{request.peer_id});
    request.done.length = request.wanted;
    worker_.finish(
        request, request.done.message_length > request.wanted ? UCS_ERR_MESSAGE_TRUNCATED : UCS_OK);
}

bool Receiver::take_part(Endpoint& ep, WireBytes bytes) {
    IncomingParts& incoming = ep.incoming;
    if (!incoming.has_room(bytes.size()))
        return false;
    if (Request* request = incoming.request) {
        if (request->offset < request->wanted) {
            const std::size_t now =
                std::min<std::uint64_t>(bytes.size(), request->wanted - request->offset);
            request->buffer.scatter(request->offset, bytes.data(), now,
                                    ep.copies.out.kind_for(incoming.length));
            request->offset += now;
        }
    } else if (Unexpected* message = incoming.message) {
        std::memcpy(message->data() + message->received, bytes.data(), bytes.size());
        message->received += bytes.size();
    }
    incoming.bytes += bytes.size();
    const bool is_last = incoming.bytes == incoming.length;
    Request* const request = is_last ? incoming.request : nullptr;
    Unexpected* const message = incoming.message;
    if (is_last)
        incoming.end();
    if (request != nullptr && incoming.timing.is_wanted())
        ep.rndv_receiver().learning().add(false, incoming.length, incoming.timing);
    // The last step: a handler may take the message.
    if (request != nullptr)
        end_receive(*request, ep);
    if (message != nullptr && !message->is_am)
        buffered_.check(*message);
    else if (message != nullptr && is_last)
        worker_.ams().complete(*message);
    return true;
}

}  // namespace tagwire::proto
