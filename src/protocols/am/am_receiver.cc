// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/am/am_receiver.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "protocols/match/arrival.hpp"
#include "protocols/wire/control_message.hpp"
#include "ucs/log/log.hpp"
#include "ucs/memory/reserve.hpp"

namespace tagwire::proto {

namespace {

Arrival arrival_of(AmWord word, const EagerBody& body, WireBytes header) {
    Arrival arrival{};
    arrival.tag = word.id();
    arrival.length = body.length;
    arrival.send_id = body.send_id;
    arrival.bytes = body.data;
    arrival.is_am = true;
    arrival.am_header = header;
    return arrival;
}

}  // namespace

// ---- Calls

void AmReceiver::set(unsigned id, tw_am_cb_t callback, void* arg) {
    if (id >= handlers_.size()) {
        if (callback == nullptr)
            return;
        handlers_.resize(std::bit_ceil(std::size_t{id} + 1));
    }
    handlers_[id] = {callback, arg};
}

tw_status_t AmReceiver::keep(AmCall& call, tw_message_h* message_p) {
    MatchPeer& from = *call.from;
    MatchTable& matches = to_.matches;
    Unexpected* message = call.kept;
    if (call.is_kept || (message != nullptr && matches.claimed(message) == nullptr)) {
        TW_LOG_ERROR("tw_am_keep: the message was kept or received already");
        return TW_ERR_INVALID_PARAM;
    }
    if (const ucs_status_t failure = from.lane.failure(); failure != UCS_OK)
        return static_cast<tw_status_t>(failure);
    if (message == nullptr) {
        if (ucs::reserve_is_low())
            return TW_ERR_NO_MEMORY;
        EagerBody body;
        body.length = call.header_length + call.length;
        body.data = {static_cast<const std::byte*>(call.header), body.length};
        if (!matches.may_keep(from, MatchTable::bytes_of(body.length)))
            return TW_ERR_EXCEEDS_LIMIT;
        Arrival arrival =
            arrival_of(AmWord::of(call.id), body, body.data.first(call.header_length));
        arrival.is_admitted = true;
        message = matches.make(from, arrival);
        if (message == nullptr)
            return static_cast<tw_status_t>(from.lane.failure());
        matches.claim(*message);
        message->is_in_handler = true;
        call.message = call.kept = message;
        call.data = message->data();
    } else if (message->is_rndv) {
        matches.name(*message);
    } else if (message->length + message->header_bytes <= TW_AM_URGENT_MAX &&
               !matches.may_keep(from, message->held)) {  // make() has not asked
        return TW_ERR_EXCEEDS_LIMIT;
    }
    call.header = message->header();
    call.is_kept = true;
    *message_p = message;
    matches.pause_if_full(from);
    return TW_OK;
}

// ---- Messages

void AmReceiver::drop(std::uint32_t id) {
    to_.worker.count(WorkerCounter::kAmDropped);
    if (!std::exchange(has_dropped_, true)) {
        TW_LOG_ERROR(
            "an active message is dropped: no handler is registered for its id %u (logged once for "
            "each worker)",
            id);
    }
}

void AmReceiver::give(AmCall& call) {
    const AmHandler* handler = handler_of(call.id);
    if (handler == nullptr)
        drop(call.id);
    else
        to_.call(to_.owner, *handler, call);
}

void AmReceiver::take_eager(MatchPeer& from, const Header& header, WireBytes behind) {
    AmBody body;
    const bool has_more = (header.flags & kMoreParts) != 0;
    if (!decode(header, behind, &body) || (has_more && from.incoming.is_under_way))
        return static_cast<void>(to_.worker.drop("active message", behind.size()));
    if (has_more && handler_of(body.word.id()) != nullptr) {
        Arrival arrival = arrival_of(body.word, body.eager, body.header);
        arrival.flags = header.flags & kAcks;
        if (to_.matches.make(from, arrival) != nullptr)
            to_.matches.pause_if_full(from);
        return;
    }
    if (has_more) {  // the parts that come are dropped, too
        from.incoming.begin(nullptr, body.eager.data.size(), body.eager.length);
        drop(body.word.id());
    } else {
        AmCall call = am_call(to_.handle, from, handle_of(from), body.word, body.eager.data.data(),
                              body.eager.data.size() - body.word.header_bytes);
        give(call);
        end(call);
    }
    if (body.eager.send_id != 0)
        from.lane.control(Ack{body.eager.send_id});
}

void AmReceiver::complete(Unexpected& message) {
    MatchPeer& from = *message.peer;
    const std::uint32_t send_id = std::exchange(message.send_id, 0);
    const bool wants_ack = std::exchange(message.flags, 0) != 0;
    give_message(from, message);
    if (wants_ack)
        from.lane.control(Ack{send_id});
}

void AmReceiver::take_rndv(MatchPeer& from, const Header& header, WireBytes behind) {
    AmRtsBody body;
    if (!decode(header, behind, &body))
        return static_cast<void>(to_.worker.drop("rendezvous of an active message", behind.size()));
    const Rts& rts = body.rndv.rts;
    if (handler_of(body.word.id()) == nullptr) {
        drop(body.word.id());
        return from.lane.control(Ats{.send_id = rts.send_id, .status = UCS_ERR_NO_ELEM});
    }
    Arrival arrival{};
    arrival.tag = body.word.id();
    arrival.length = rts.length;
    arrival.send_id = rts.send_id;
    arrival.bytes = body.rndv.keys.all();
    arrival.is_rndv = true;
    arrival.rts = rts;
    arrival.is_am = true;
    arrival.am_header = body.header;
    Unexpected* message = to_.matches.make(from, arrival);
    if (message != nullptr)
        give_message(from, *message);
}

/// It is the program's while its handler runs, whatever that does; then it goes, unless it is kept.
void AmReceiver::give_message(MatchPeer& from, Unexpected& message) {
    to_.matches.claim(message);
    AmWord word = AmWord::of(static_cast<std::uint32_t>(message.tag));
    word.header_bytes = message.header_bytes;
    AmCall call =
        am_call(to_.handle, from, handle_of(from), word, message.header(), message.length);
    call.message = call.kept = &message;
    message.is_in_handler = true;
    if (message.is_rndv) {
        call.data = nullptr;
        call.flags = TW_AM_RNDV;
    }
    give(call);
    end(call);
}

void AmReceiver::end(const AmCall& call) {
    if (call.kept == nullptr)
        return;
    Unexpected& message = *call.kept;
    message.is_in_handler = false;
    if (message.is_over)
        to_.matches.release(message);
    else if (!call.is_kept)
        to_.matches.drop(&message);  // unless a receive has it
}

}  // namespace tagwire::proto
