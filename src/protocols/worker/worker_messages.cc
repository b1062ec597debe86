// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/worker/worker_messages.hpp"

#include <uct/api/tagwire_uct.h>

#include <cstring>
#include <utility>

#include "protocols/eager/receiver.hpp"
#include "protocols/match/matching.hpp"
#include "protocols/transfer/stripe.hpp"
#include "protocols/worker/am_fast_path.hpp"
#include "protocols/worker/fast_path.hpp"
#include "protocols/worker/peer_table.hpp"
#include "protocols/worker/rndv_fast_path.hpp"
#include "protocols/worker/worker_core.hpp"
#include "ucs/log/log.hpp"

namespace tagwire::proto {

namespace {

/// A message as a transport gives it. Fields are decoded from `head`, which has the first bytes of
/// it (all, or TAGWIRE_UCT_AM_HEAD_BYTES): at `data`, or where they have come earlier.
struct ReceivedMessage {
    const std::byte* head;
    const std::byte* data;
    std::size_t length;

    WireBytes bytes() const { return {data, length}; }
};
static_assert(sizeof(Envelope::header) + sizeof(Envelope::fields) <= TAGWIRE_UCT_AM_HEAD_BYTES);

/// `data` and `length`: what is behind the header.
[[gnu::noinline]] ucs_status_t on_eager_among_others(WorkerCore& worker, Endpoint& ep,
                                                     Header header, ReceivedMessage received) {
    const std::byte* data = received.data + sizeof header;
    const std::size_t length = received.length - sizeof header;
    if ((header.flags & kAnnounced) != 0) {
        worker.receiver().announce(ep, AmId::kEager, header, {data, length});
        return UCS_OK;
    }
    Request* request = nullptr;
    if ((header.flags & ~std::uint32_t{kTagged | kImm}) == 0) {
        std::uint64_t imm = 0;
        const std::size_t before = (header.flags & kImm) != 0 ? sizeof imm : 0;
        if (length < before)
            return worker.garbage("eager message", length);
        std::memcpy(&imm, received.head + sizeof header, before);
        request = match(worker.matches(), worker.requests(), (header.flags & kTagged) != 0,
                        header.tag, ep.source);
        const std::size_t bytes = length - before;
        if (request != nullptr && is_short(*request, bytes)) {
            if (bytes > kShortCopyMax)
                end_short<true>(worker, *request, ep, header, data + before, bytes, imm,
                                worker.is_multi);
            else
                end_short<false>(worker, *request, ep, header, data + before, bytes, imm,
                                 worker.is_multi);
            return UCS_OK;
        }
        if (request != nullptr && is_short_tested(*request, bytes)) {
            if (bytes > kShortCopyMax)
                take_short<true>(*request, ep, data + before, bytes);
            else
                take_short<false>(*request, ep, data + before, bytes);
            end_tested(worker, *request, ep, header, bytes, imm);
            return UCS_OK;
        }
        if (request == nullptr &&
            worker.matches().add_plain(ep, header, imm, {data + before, bytes}))
            return UCS_OK;
    }
    worker.receiver().take_eager(ep, header, {data, length}, request);
    return UCS_OK;
}

[[gnu::noinline]] ucs_status_t on_long_eager(WorkerCore& worker, ReceivedMessage received) {
    Header header;
    if (!decode({received.head, received.length}, &header))
        return worker.garbage("eager message", received.length);
    Endpoint* ep = worker.endpoints().find(header.sender);
    if (ep == nullptr)
        return worker.drop_from_unknown(header.sender, "message", received.length);
    return on_eager_among_others(worker, *ep, header, received);
}

/// The earliest receive of all matches, and on_eager() does not end it by a callback.
[[gnu::noinline]] ucs_status_t on_eager_otherwise(WorkerCore& worker, Endpoint& ep, Request& first,
                                                  Header header, ReceivedMessage received) {
    const std::size_t length = received.length - sizeof header;
    if (!is_short_tested(first, length))
        return on_eager_among_others(worker, ep, header, received);
    worker.space(true).posted.take_first();
    take_short<false>(first, ep, received.data + sizeof header, length);
    end_tested(worker, first, ep, header, length, 0);
    return UCS_OK;
}

// Other functions get copies: an object that others refer to is made in memory for every message.
template <bool kIsMulti>
[[gnu::always_inline]] inline ucs_status_t on_eager(WorkerCore& worker,
                                                    const ReceivedMessage& received) {
    Header header;
    const std::size_t length = received.length - sizeof header;
    if (length > kShortCopyMax) [[unlikely]]  // or shorter than a header
        return on_long_eager(worker, received);
    std::memcpy(&header, received.head, sizeof header);
    Endpoint* ep = worker.endpoints().find(header.sender);
    if (ep == nullptr) [[unlikely]]
        return worker.drop_from_unknown(header.sender, "message", received.length);
    // The earliest receive of all, as for most messages; nothing here calls before the callback.
    if (header.flags == kTagged) [[likely]] {
        auto& posted = worker.space(true).posted;
        auto* request = static_cast<Request*>(posted.first(header.tag, ep->source));
        if (request != nullptr && is_short(*request, length)) [[likely]] {
            posted.take_first();
            end_short<false>(worker, *request, *ep, {header.sender, kTagged, header.tag},
                             received.data + sizeof header, length, 0, kIsMulti);
            return UCS_OK;
        }
        if (request != nullptr)
            return on_eager_otherwise(worker, *ep, *request, header, received);
    }
    return on_eager_among_others(worker, *ep, header, received);
}

ucs_status_t on_am_slowly(WorkerCore& worker, const ReceivedMessage& received) {
    Header header;
    if (!decode({received.head, received.length}, &header))
        return worker.garbage("active message", received.length);
    Endpoint* ep = worker.endpoints().find(header.sender);
    if (ep == nullptr)
        return worker.drop_from_unknown(header.sender, "active message", received.length);
    worker.ams().take_eager(*ep, header, received.bytes().subspan(sizeof header));
    return UCS_OK;
}

[[gnu::always_inline]] inline ucs_status_t on_am(WorkerCore& worker,
                                                 const ReceivedMessage& received) {
    Header header;
    if (received.length < sizeof header) [[unlikely]]
        return on_am_slowly(worker, received);
    std::memcpy(&header, received.head, sizeof header);
    const std::size_t length = received.length - sizeof header;
    const AmWord word = AmWord::of(header);
    Endpoint* ep = worker.endpoints().find(header.sender);
    const AmHandler* handler = worker.ams().find(word.handler);
    if (header.flags != 0 || ep == nullptr || handler == nullptr || !word.is_of_program() ||
        !word.is_sound(length)) [[unlikely]]
        return on_am_slowly(worker, received);
    AmCall call = am_call(&worker, *ep, nullptr, word, received.data + sizeof header,
                          length - word.header_bytes);
    call.ep = ep->handle();  // last, so that it takes no register meanwhile
    call_am(worker, *handler, call);
    if (call.kept != nullptr) [[unlikely]]
        worker.ams().end(call);
    return UCS_OK;
}

ucs_status_t on_am_rts(WorkerCore& worker, const ReceivedMessage& received) {
    Header header;
    if (!decode(received.bytes(), &header))
        return worker.garbage("rendezvous of an active message", received.length);
    Endpoint* ep = worker.endpoints().find(header.sender);
    if (ep == nullptr)
        return worker.drop_from_unknown(header.sender, "rendezvous of an active message",
                                        received.length);
    worker.ams().take_rndv(*ep, header, received.bytes().subspan(sizeof header));
    return UCS_OK;
}

/// A transmit context receives nothing.
ucs_status_t on_message_to_sender(WorkerCore& worker, const ReceivedMessage& received) {
    return worker.garbage("message to a transmit context", received.length);
}

ucs_status_t on_rts(WorkerCore& worker, const ReceivedMessage& received) {
    Header header;
    if (!decode(received.bytes(), &header))
        return worker.garbage("rendezvous", received.length);
    Endpoint* ep = worker.endpoints().find(header.sender);
    if (ep == nullptr)
        return worker.drop_from_unknown(header.sender, "rendezvous", received.length);
    const WireBytes behind = received.bytes().subspan(sizeof header);
    if (take_lent(worker, *ep, header, behind))
        return UCS_OK;
    if ((header.flags & kAnnounced) != 0)
        worker.receiver().announce(*ep, AmId::kRts, header, behind);
    else
        worker.receiver().take_rndv(*ep, header, behind, nullptr);
    return UCS_OK;
}

ucs_status_t on_part(WorkerCore& worker, const ReceivedMessage& received) {
    Part part;
    if (!decode({received.head, received.length}, &part))
        return worker.garbage("part of a message", received.length);
    Endpoint* ep = worker.endpoints().find(part.sender);
    if (ep == nullptr)
        return worker.drop_from_unknown(part.sender, "part of a message", received.length);
    return worker.receiver().take_part(*ep,
                                       {received.data + sizeof part, received.length - sizeof part})
               ? UCS_OK
               : worker.garbage("part of a message", received.length);
}

ucs_status_t on_data(WorkerCore& worker, const ReceivedMessage& received) {
    DataMessage message;
    if (!decode(received.bytes(), &message))
        return worker.garbage("data of a rendezvous", received.length);
    Endpoint* ep = worker.endpoints().find(message.head.sender);
    if (ep == nullptr)
        return worker.drop_from_unknown(message.head.sender, "data of a rendezvous",
                                        received.length);
    return ep->rndv_receiver().on_data(message, worker.requests().find(message.head.receive_id))
               ? UCS_OK
               : worker.garbage("data of a rendezvous", received.length);
}

ucs_status_t on_rtr(WorkerCore& worker, const ReceivedMessage& received) {
    RtrMessage message;
    if (!decode(received.bytes(), &message))
        return worker.garbage("offer to write", received.length);
    Endpoint* ep = worker.endpoints().find(message.rtr.sender);
    if (ep == nullptr)
        return worker.drop_from_unknown(message.rtr.sender, "offer to write", received.length);
    if (ep->state() != EpState::kReady)
        return worker.garbage("offer to write", received.length);
    if (!ep->rndv().on_rtr(message, worker.requests().find(message.rtr.send_id),
                           ep->connector().domain_of_peer(ep->peer_rail())))
        worker.count(WorkerCounter::kGarbage);
    return UCS_OK;
}

ucs_status_t on_put(WorkerCore& worker, const ReceivedMessage& received) {
    PutMessage message;
    if (!decode(received.bytes(), &message))
        return worker.garbage("put", received.length);
    Endpoint* ep = worker.endpoints().find(message.head.sender);
    if (ep == nullptr)
        return worker.drop_from_unknown(message.head.sender, "put", received.length);
    ep->rma_target.on_put(message);
    return UCS_OK;
}

ucs_status_t on_rma_request(WorkerCore& worker, const ReceivedMessage& received) {
    RmaRequest message;
    if (!decode(received.bytes(), &message))
        return worker.garbage("get or atomic", received.length);
    Endpoint* ep = worker.endpoints().find(message.sender);
    if (ep == nullptr)
        return worker.drop_from_unknown(message.sender, "get or atomic", received.length);
    ep->rma_target.on_request(message);
    return UCS_OK;
}

ucs_status_t on_get_data(WorkerCore& worker, const ReceivedMessage& received) {
    GetMessage message;
    if (!decode(received.bytes(), &message))
        return worker.garbage("data of a get", received.length);
    Endpoint* ep = worker.endpoints().find(message.head.sender);
    if (ep == nullptr)
        return worker.drop_from_unknown(message.head.sender, "data of a get", received.length);
    return ep->rma.on_data(message, worker.requests().find(message.head.op_id))
               ? UCS_OK
               : worker.garbage("data of a get", received.length);
}

ucs_status_t on_notice(WorkerCore& worker, const ReceivedMessage& received) {
    Notice message;
    if (!decode(received.bytes(), &message))
        return worker.garbage("notice of a put", received.length);
    Endpoint* ep = worker.endpoints().find(message.sender);
    if (ep == nullptr)
        return worker.drop_from_unknown(message.sender, "notice of a put", received.length);
    ep->rma_target.on_notice(message);
    return UCS_OK;
}

ucs_status_t on_control(WorkerCore& worker, const ReceivedMessage& received) {
    if (take_ats(worker, received.bytes()))
        return UCS_OK;
    Control message;
    if (!decode(received.bytes(), &message))
        return worker.garbage("control message", received.length);
    Endpoint* ep = worker.endpoints().find(message.sender);
    if (ep == nullptr)
        return worker.drop_from_unknown(message.sender, "control message", received.length);
    ep->on_control(message);
    return UCS_OK;
}

ucs_status_t on_wireup(WorkerCore& worker, const ReceivedMessage& received) {
    Wireup wireup;
    WireBytes behind;
    if (!decode(received.bytes(), &wireup, &behind))
        return worker.garbage("wire-up", received.length);
    if (wireup.version != kWireVersion || wireup.to != worker.id()) {
        TW_LOG_REPEATED(
            ucs::LogLevel::kError, worker.refusals.due("wire-up"),
            "wire-up message of worker %016lx refused: it has version %u and is for worker %016lx; "
            "expected version %u, for worker %016lx",
            wireup.from, wireup.version, wireup.to, kWireVersion, worker.id());
        return worker.garbage("wire-up", received.length);
    }
    if (static_cast<WireupOp>(wireup.op) == WireupOp::kHello) {
        HelloMessage hello;
        const bool is_taken =
            decode(behind, &hello) && worker.peers().on_hello(wireup.from, std::move(hello));
        return is_taken ? UCS_OK : worker.garbage("hello", received.length);
    }
    OfferMessage message;
    if (!decode(behind, &message))
        return worker.garbage("offer", received.length);
    auto* const ep = static_cast<Endpoint*>(worker.peers().endpoint_to(wireup.from));
    if (ep == nullptr)
        return worker.garbage("offer of nobody", received.length);
    if (message.offer.id != ep->id)
        return UCS_OK;  // of an earlier connection
    switch (static_cast<WireupOp>(wireup.op)) {
        case WireupOp::kOffer:
            ep->connector().on_offer(message);
            break;
        case WireupOp::kReady:
            ep->connector().on_ready(message.offer);
            break;
        case WireupOp::kRefuse:
            ep->connector().on_refuse(message.offer);
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

using Handler = ucs_status_t (*)(WorkerCore&, const ReceivedMessage&);

ReceivedMessage received_message(void* data, size_t length) {
    const auto* bytes = static_cast<const std::byte*>(data);
    return {bytes, bytes, length};
}

ReceivedMessage received_message(const void* head, void* data, size_t length) {
    return {static_cast<const std::byte*>(head), static_cast<const std::byte*>(data), length};
}

/// Apart, with the same arguments, so that other messages save no registers for it.
template <Handler kHandler, class... Where>
[[gnu::noinline, gnu::cold]] ucs_status_t tell_and_take(WorkerCore* worker, Where... where) {
    worker->requests().tell_ends();
    return kHandler(*worker, received_message(where...));
}

/// A transport gives the message in progress, where nothing else of the library is under way. Ends
/// that are older than it are told before it calls anything of the program.
template <Handler kHandler, class... Where>
[[gnu::always_inline]] inline ucs_status_t take(void* arg, Where... where) {
    auto* const worker = static_cast<WorkerCore*>(arg);
    if (worker->has_deferred()) [[unlikely]]
        return tell_and_take<kHandler>(worker, where...);
    return kHandler(*worker, received_message(where...));
}

template <Handler kHandler>
ucs_status_t handle(void* arg, void* data, size_t length, unsigned) {
    return take<kHandler>(arg, data, length);
}

template <Handler kHandler>
ucs_status_t handle_with_head(void* arg, const void* head, void* data, size_t length, unsigned) {
    return take<kHandler>(arg, head, data, length);
}

/// While the worker goes. A peer that has gone before will not have what is said to it.
ucs_status_t hear_reset(void* arg, void* data, size_t length, unsigned) {
    WorkerCore& worker = *static_cast<WorkerCore*>(arg);
    Control message;
    if (!decode(received_message(data, length).bytes(), &message) ||
        message.operation() != ControlOp::kReset)
        return UCS_OK;
    if (Endpoint* const ep = worker.endpoints().find(message.sender))
        ep->closing().has_gone = true;
    return UCS_OK;
}

/// The buffer of a rendezvous of ours that the peer reads, and is to get parts of.
ucs_status_t find_lent(void* arg, std::uint32_t id, tagwire_uct_lent_t* lent_p) {
    const Request* const request = static_cast<WorkerCore*>(arg)->requests().find(id);
    if (request == nullptr || request->ep == nullptr || !request->ep->rndv().has_lent(*request))
        return UCS_ERR_NO_ELEM;
    *lent_p = {request->ep->lane(), request->buffer.base, request->buffer.length};
    return UCS_OK;
}

}  // namespace

void set_message_handlers(const Rail& rail, WorkerCore& worker) {
    const auto set = [&](AmId id, uct_am_callback_t handler,
                         tagwire_uct_am_head_callback_t head_handler = nullptr) {
        const auto number = static_cast<std::uint8_t>(id);
        uct_iface_set_am_handler(rail.iface(), number, handler, &worker, 0);
        tagwire_uct_iface_set_am_head_handler(rail.iface(), number, head_handler, &worker);
    };
    if (worker.own_tx == nullptr) {
        if (worker.is_multi)
            set(AmId::kEager, handle<on_eager<true>>, handle_with_head<on_eager<true>>);
        else
            set(AmId::kEager, handle<on_eager<false>>, handle_with_head<on_eager<false>>);
        set(AmId::kPart, handle<on_part>, handle_with_head<on_part>);
        set(AmId::kRts, handle<on_rts>);
        set(AmId::kAm, handle<on_am>, handle_with_head<on_am>);
        set(AmId::kAmRts, handle<on_am_rts>);
        set(AmId::kPut, handle<on_put>);
        set(AmId::kRmaRequest, handle<on_rma_request>);
        set(AmId::kNotice, handle<on_notice>);
    } else {
        for (const AmId id : {AmId::kEager, AmId::kPart, AmId::kRts, AmId::kPut, AmId::kRmaRequest,
                              AmId::kNotice, AmId::kAm, AmId::kAmRts})
            set(id, handle<on_message_to_sender>);
    }
    set(AmId::kRtr, handle<on_rtr>);
    set(AmId::kGetData, handle<on_get_data>);
    set(AmId::kData, handle<on_data>);
    set(AmId::kControl, handle<on_control>);
    set(AmId::kWireup, handle<on_wireup>);
    if (lends(rail))
        tagwire_uct_iface_set_lent_handler(rail.iface(), find_lent, &worker);
}

void drop_messages(const Rail& rail, WorkerCore& worker) {
    const auto drop = [](void*, void*, std::size_t, unsigned) { return UCS_OK; };
    for (std::uint8_t number = 0; number <= static_cast<std::uint8_t>(kAmIdLast); ++number) {
        tagwire_uct_iface_set_am_head_handler(rail.iface(), number, nullptr, nullptr);
        uct_iface_set_am_handler(rail.iface(), number, drop, nullptr, 0);
    }
    uct_iface_set_am_handler(rail.iface(), static_cast<std::uint8_t>(AmId::kControl), hear_reset,
                             &worker, 0);
    if (lends(rail))
        tagwire_uct_iface_set_lent_handler(rail.iface(), nullptr, nullptr);
}

}  // namespace tagwire::proto
