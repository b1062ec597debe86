// SPDX-License-Identifier: BSD-3-Clause
// Calls that receive, and messages that waited for them.
#include "protocols/eager/receiver.hpp"

#include <algorithm>

#include "protocols/match/arrival.hpp"
#include "protocols/request/attention.hpp"
#include "protocols/request/request_table.hpp"
#include "ucs/debug/check.hpp"

namespace tagwire::proto {

// ---- Receives

namespace {

/// nullptr: anybody. A posted receive remembers the number of its source alone: it may outlive the
/// endpoint that it was posted with.
const MatchPeer* source_of(const Incoming& wanted) {
    return wanted.op == nullptr || wanted.op->source == nullptr ? nullptr
                                                                : &peer_of(wanted.op->source);
}

}  // namespace

tw_status_t Receiver::receive(const Incoming& wanted) {
    Request* request = make(wanted);
    if (request == nullptr)
        return TW_ERR_NO_RESOURCE;
    if (wanted.message != nullptr)
        return receive_claimed(*request, wanted);
    if ((request->flags & kMultiReceive) != 0)
        return post_multi(*request, wanted);
    post(*request, source_of(wanted));
    return to_.worker.requests.answer(*request, wanted.op, wanted.request_p);
}

/// nullptr: there is no room for it.
Request* Receiver::make(const Incoming& wanted) {
    Request* request = to_.worker.requests.make(RequestKind::kReceive, wanted.op, wanted.request_p);
    if (request == nullptr)
        return nullptr;
    if (!to_.worker.requests.set_buffer(*request, wanted.base, wanted.length, wanted.list,
                                        wanted.count,
                                        wanted.op == nullptr ? nullptr : wanted.op->mem)) {
        to_.worker.requests.release(*request);
        return nullptr;
    }
    request->flags |= wanted.kind;
    request->is_tagged = wanted.is_tagged;
    request->tag = wanted.tag & wanted.mask;
    request->mask = wanted.mask;
    request->source = kAnySource;
    request->done.flags = TW_DONE_RECV | flag_if(wanted.is_tagged, TW_DONE_TAGGED);
    // The source of a message that was taken is ignored: its endpoint may have gone.
    const MatchPeer* const from = wanted.message == nullptr ? source_of(wanted) : nullptr;
    if (from != nullptr)
        request->source = from->source;
    return request;
}

void Receiver::begin(const Incoming& wanted) {
    Request* request = make(wanted);
    TW_CHECK(request != nullptr);
    post(*request, nullptr);
    to_.worker.requests.answer_later(*request);
}

/// A message has matched, or it waits for one.
void Receiver::post(Request& request, const MatchPeer* from) {
    MatchSpace& in = space(request.is_tagged);
    Unexpected* message = nullptr;
    if (!in.unexpected.empty()) {
        message =
            static_cast<Unexpected*>(in.unexpected.take(request.tag, request.mask, request.source));
    }
    if (message != nullptr) {
        give_message(request, *message);
    } else if (from != nullptr && from->lane.failure() != UCS_OK) {
        to_.worker.finish(request, from->lane.failure());  // nothing can come any more
    } else {
        request.is_posted = true;
        in.posted.post(request);
        if (has_device_ && request.is_tagged)
            to_.calls.posted(to_.owner, request);
    }
}

tw_status_t Receiver::post_multi(Request& request, const Incoming& wanted) {
    MatchSpace& in = space(false);
    // Its last report comes behind those of its messages, also if the call sees the end.
    request.flags |= TW_OP_COMPLETION;
    request.is_posted = true;
    in.posted.post(request);
    while (request.is_posted) {
        UnexpectedMessage* found = in.unexpected.find(request.tag, request.mask, request.source);
        Request* child = found == nullptr ? nullptr : to_.worker.requests.make_part(request);
        if (child == nullptr)
            break;
        in.unexpected.remove(*found);
        give_message(*child, static_cast<Unexpected&>(*found));
    }
    const MatchPeer* from = source_of(wanted);
    if (request.is_posted && from != nullptr && from->lane.failure() != UCS_OK) {
        in.posted.cancel(request);  // nothing more can come
        close_multi(request, from->lane.failure());
    }
    return to_.worker.requests.answer(request, wanted.op, wanted.request_p);
}

/// The receive gets a message that waited; `message` is in no matcher, and freed.
void Receiver::give_message(Request& request, Unexpected& message) {
    to_.matches.take(message);
    if ((request.flags & kBufferedReceive) != 0)
        return buffered_.buffer_message(request, message);
    if (message.has_failed || message.is_canceled || message.peer == nullptr) {
        describe(request, message);
        if (message.has_failed || message.is_canceled) {
            const auto status = message.is_canceled ? UCS_ERR_CANCELED : UCS_ERR_CONNECTION_RESET;
            to_.matches.release(message);
            return to_.worker.finish(request, status);
        }
        const std::size_t fits = std::min<std::size_t>(message.length, request.buffer.length);
        use_room(request, fits);
        request.buffer.scatter(0, message.data(), fits);
        request.done.length = fits;
        const bool is_cut = fits < message.length;
        to_.matches.release(message);
        return to_.worker.finish(request, is_cut ? UCS_ERR_MESSAGE_TRUNCATED : UCS_OK);
    }
    const Arrival arrival{message.tag,     message.imm,     message.length,
                          message.flags,   message.send_id, {message.data(), message.received},
                          message.is_rndv, message.rts,     true};
    deliver(request, *message.peer, arrival);
    to_.matches.release(message);
}

// ---- Multi-receives

/// A message takes so much of the buffer, if that is a multi-receive's.
void Receiver::use_room(Request& part, std::size_t bytes) {
    Request* parent = part.parent;
    if (parent == nullptr)
        return;
    parent->offset += bytes;
    if (parent->buffer.length - parent->offset < to_.limits.multi_recv_bytes_min) {
        space(false).posted.cancel(*parent);
        close_multi(*parent, UCS_OK);
    }
}

void Receiver::close_multi(Request& parent, ucs_status_t status) {
    parent.is_posted = false;
    parent.done.flags |= TW_DONE_MULTI_RECV;
    parent.closing = status;
    if (parent.children == 0)
        to_.worker.finish(parent, status);
}

// ---- Ends

/// Receives of that source end. Their callbacks are told later, so none posts another one here.
void Receiver::end_directed(MatchSpace& in, std::uint32_t source, ucs_status_t status) {
    const Walk walk(to_.attention);
    while (auto* receive = static_cast<Request*>(in.posted.take_directed(source))) {
        unposted(*receive);
        if ((receive->flags & kMultiReceive) != 0)
            close_multi(*receive, status);
        else
            to_.worker.finish(*receive, status);
    }
}

void Receiver::drop_incoming(MatchPeer& from, ucs_status_t status, bool ends_receives) {
    from.incoming.end();
    to_.matches.drop_messages_of(from);
    while (!from.announced.empty())
        if (const std::size_t held = from.announced.drop_oldest(); held != 0)
            to_.matches.refund(from, held);
    to_.matches.drop_orphans();
    to_.matches.resume_if_free(nullptr);
    for (const bool is_tagged : {false, true})
        if (ends_receives)
            end_directed(space(is_tagged), from.source, status);
}

}  // namespace tagwire::proto
