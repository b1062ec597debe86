// SPDX-License-Identifier: BSD-3-Clause
// Messages that have come meet posted receives.
#include "protocols/eager/receiver.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "protocols/cost/advisor.hpp"
#include "protocols/match/arrival.hpp"
#include "protocols/match/matching.hpp"
#include "protocols/request/request_table.hpp"
#include "protocols/wire/limits.hpp"
#include "ucs/memory/copy.hpp"
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
bool Receiver::take_eager(MatchPeer& from, const Header& header, WireBytes behind,
                          Request* request) {
    EagerBody body;
    if (!decode(header, behind, &body) ||
        ((header.flags & kMoreParts) != 0 && from.incoming.is_under_way))
        return to_.worker.drop("eager message", behind.size());
    Arrival arrival{};
    arrival.tag = header.tag;
    arrival.flags = header.flags;
    arrival.imm = body.imm;
    arrival.length = body.length;
    arrival.send_id = body.send_id;
    arrival.begun = body.begun;
    arrival.bytes = body.data;
    arrive_or_match(from, arrival, request);
    return true;
}

/// As take_eager().
bool Receiver::take_rndv(MatchPeer& from, const Header& header, WireBytes behind,
                         Request* request) {
    RtsBody body;
    if (!decode(header, behind, &body))
        return to_.worker.drop("request of a rendezvous", behind.size());
    Arrival arrival{};
    arrival.bytes = body.keys.all();
    arrival.imm = body.imm;
    arrival.rts = body.rts;
    arrival.tag = header.tag;
    arrival.flags = header.flags;
    arrival.length = arrival.rts.length;
    arrival.send_id = arrival.rts.send_id;
    arrival.is_rndv = true;
    arrive_or_match(from, arrival, request);
    return true;
}

/// `behind`: what follows the header.
void Receiver::announce(MatchPeer& from, AmId am, const Header& header, WireBytes behind) {
    if (!has_device_ || (header.flags & kTagged) == 0 || (header.flags & kMoreParts) != 0)
        return static_cast<void>(to_.worker.drop("message without a place", behind.size()));
    Announced announced{am, header, {behind.begin(), behind.end()}, false};
    announced.header.flags &= ~std::uint32_t{kAnnounced};
    const std::size_t held = announced.held();
    if (!to_.matches.admit(from, held))
        return;
    to_.matches.charge(from, held);
    from.announced.add(std::move(announced));
    // Their places follow soon, unless the peer has no such intent.
    if (from.announced.size() > kAnnouncedFew)
        to_.matches.pause_if_full(from);
}

bool Receiver::take_announced(MatchPeer& from, const Placeholder& place, std::uint64_t tag,
                              Request* request) {
    const std::optional<Announced> message = from.announced.take(place.number);
    if (!message)
        return to_.worker.drop("place of no message", sizeof place);
    to_.matches.refund(from, message->held());
    bool is_message = message->header.tag == tag;
    if (!is_message)
        to_.worker.drop("message whose place has another tag", message->bytes.size());
    else if (message->am == AmId::kRts)
        is_message = take_rndv(from, message->header, message->bytes, request);
    else
        is_message = take_eager(from, message->header, message->bytes, request);
    to_.matches.resume_if_free(&from);
    return is_message;
}

/// As arrive(), but null: none was looked for yet.
void Receiver::arrive_or_match(MatchPeer& from, const Arrival& arrival, Request* request) {
    if (request == nullptr)
        arrive_unmatched(from, arrival);
    else
        arrive(from, arrival, request);
}

void Receiver::arrive_unmatched(MatchPeer& from, const Arrival& arrival) {
    arrive(from, arrival,
           match(to_.matches, to_.worker.requests, (arrival.flags & kTagged) != 0, arrival.tag,
                 from.source));
}

void Receiver::arrive(MatchPeer& from, const Arrival& arrival, Request* request) {
    if (request == nullptr)
        return to_.matches.add(from, arrival);
    unposted(*request);
    to_.worker.count(WorkerCounter::kRxExpected);
    deliver(*request, from, arrival);
}

void Receiver::unpost(Request& request) {
    space(request.is_tagged).posted.cancel(request);
    unposted(request);
}

void Receiver::unposted(Request& request) {
    request.is_posted = false;
    if (has_device_ && request.is_tagged)
        to_.calls.unposted(to_.owner, request);
}

/// Fills in the message's fields of the completion.
void Receiver::describe(Request& request, MatchPeer& from, const Arrival& arrival) {
    tw_completion_t& done = request.done;
    done.tag = arrival.tag;
    done.imm = arrival.imm;
    done.message_length = arrival.length;
    done.source = from.worker_id;
    done.ep = handle_of(from);
    done.flags |= TW_DONE_RECV | flag_if((arrival.flags & kTagged) != 0, TW_DONE_TAGGED) |
                  flag_if((arrival.flags & kImm) != 0, TW_DONE_IMM);
}

void Receiver::end_in_place(Request& request, MatchPeer& from, const Arrival& arrival) {
    to_.worker.count(WorkerCounter::kRxExpected);
    describe(request, from, arrival);
    request.done.length = arrival.length;
    to_.worker.finish(request, UCS_OK);
}

void Receiver::deliver(Request& request, MatchPeer& from, const Arrival& arrival) {
    if (!request.is_whole)
        request.make_whole();
    if ((request.flags & kBufferedReceive) != 0)
        return buffered_.buffer(request, from, arrival);
    describe(request, from, arrival);
    const std::size_t fits = std::min<std::uint64_t>(arrival.length, request.buffer.length);
    use_room(request, fits);
    if (arrival.is_rndv)
        return to_.calls.begin_rndv(to_.owner, request, from, arrival.rts, arrival.bytes);
    request.wanted = fits;
    request.acks = arrival.flags & kAcks;
    request.peer_id = arrival.send_id;
    if ((request.acks & kAckMatch) != 0)
        from.lane.control(Ack{arrival.send_id});
    const bool has_more = arrival.bytes.size() < arrival.length;
    const bool is_timed = (arrival.flags & kTimed) != 0 && fits == arrival.length &&
                          Advisor::is_learnt(fits) && !arrival.was_kept;
    Timing timing = is_timed ? Timing::of(arrival.begun, ucs::ticks_now()) : Timing{};
    timing.is_sample = !has_more;
    const std::size_t now = std::min(arrival.bytes.size(), fits);
    const auto kind = arrival.was_kept ? ucs::plain_kind_for(now)  // it is in memory of our own
                                       : from.copies.out.kind_for(arrival.length);
    if (now > 0)
        request.buffer.scatter(0, arrival.bytes.data(), now, kind);
    if (!has_more) {
        if (timing.is_wanted())
            to_.calls.learn(to_.owner, from, fits, timing);
        return end_receive(request, from);
    }
    request.offset = now;
    to_.worker.set_outstanding(request, from);
    from.incoming.begin(&request, arrival.bytes.size(), arrival.length, timing);
}

/// All data of an eager message is in the buffer.
void Receiver::end_receive(Request& request, MatchPeer& from) {
    if ((request.acks & kAckDelivery) != 0)
        from.lane.control(Ack{request.peer_id});
    request.done.length = request.wanted;
    to_.worker.finish(
        request, request.done.message_length > request.wanted ? UCS_ERR_MESSAGE_TRUNCATED : UCS_OK);
}

bool Receiver::take_part(MatchPeer& from, WireBytes bytes) {
    IncomingParts& incoming = from.incoming;
    if (!incoming.has_room(bytes.size()))
        return false;
    if (Request* request = incoming.request) {
        if (request->offset < request->wanted) {
            const std::size_t now =
                std::min<std::uint64_t>(bytes.size(), request->wanted - request->offset);
            request->buffer.scatter(request->offset, bytes.data(), now,
                                    from.copies.out.kind_for(incoming.length));
            request->offset += now;
        }
    } else if (Unexpected* message = incoming.message) {
        ucs::copy_plain(message->data() + message->received, bytes.data(), bytes.size());
        message->received += bytes.size();
    }
    incoming.bytes += bytes.size();
    const bool is_last = incoming.bytes == incoming.length;
    Request* const request = is_last ? incoming.request : nullptr;
    Unexpected* const message = incoming.message;
    if (is_last)
        incoming.end();
    if (request != nullptr && incoming.timing.is_wanted())
        to_.calls.learn(to_.owner, from, incoming.length, incoming.timing);
    // The last step: a handler may take the message.
    if (request != nullptr)
        end_receive(*request, from);
    if (message != nullptr && !message->is_am)
        buffered_.check(*message);
    else if (message != nullptr && is_last)
        to_.calls.complete_am(to_.owner, *message);
    return true;
}

}  // namespace tagwire::proto
