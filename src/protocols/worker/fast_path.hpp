// SPDX-License-Identifier: BSD-3-Clause
// The fast path of a short message: a call that asks for nothing but buffer, tag and callback (and,
// a few steps longer, an immediate and a source), a lane that is free, a receive that was posted
// before. Each step does the same as on the slow path, without checks for cases that cannot occur
// here; in any other case the step takes the slow path.
#pragma once

#include <uct/api/uct.h>

#include <cstring>
#include <new>

#include "protocols/request/envelope.hpp"
#include "protocols/request/outgoing.hpp"
#include "protocols/wire/eager_header.hpp"
#include "protocols/worker/endpoint.hpp"
#include "protocols/worker/worker_core.hpp"
#include "ucs/memory/copy.hpp"
#include "ucs/memory/copy_short.hpp"
#include "ucs/sys/keep_in_memory.hpp"

namespace tagwire::proto {

/// Flags of receives that change nothing but how their end is reported.
inline constexpr std::uint32_t kPlainReceiveFlags =
    TW_OP_COMPLETION | TW_OP_MORE | TW_OP_TRANSMIT_COMPLETE | TW_OP_QUEUE;

/// The receive is plain, but perhaps names a source.
inline bool is_plain_but_for_source(const tw_op_t& op) {
    return op.struct_bytes == sizeof(tw_op_t) && (op.flags & ~kPlainReceiveFlags) == 0 &&
           are_null(op.mem, op.request, op.cq, op.counter);
}

inline bool is_plain_receive(const tw_op_t& op) {
    return op.source == nullptr && is_plain_but_for_source(op);
}

/// The transport takes a plain send that may_send_short(). True: note_short() is to follow. False:
/// the slow path.
[[gnu::always_inline]] inline bool Endpoint::try_transmit_short(const void* data,
                                                                std::size_t length,
                                                                std::uint64_t tag, bool is_tagged) {
    constexpr auto kId = static_cast<std::uint8_t>(AmId::kEager);
    ucs_status_t status;
    if (length <= sizeof(ShortMessage::data)) {
        ShortMessage message;
        message.tag = tag;
        ucs::copy_short(message.data, data, length);
        status = uct_ep_am_short(lane_.ep, kId, ShortMessage::head(peer_names, is_tagged), &message,
                                 static_cast<unsigned>(sizeof message.tag + length));
    } else {
        // The header as the transport reads it: of parts that are stored apart a processor makes
        // no word until they are in its cache.
        std::uint64_t header[] = {ShortMessage::head(peer_names, is_tagged), tag};
        static_assert(sizeof header == sizeof(Header));
        const uct_iov_t iov[] = {{header, sizeof header, nullptr, 0, 1},
                                 {const_cast<void*>(data), length, nullptr, 0, 1}};
        status = uct_ep_am_short_iov(lane_.ep, kId, iov, 2);
    }
    return status == UCS_OK;
}

[[gnu::always_inline]] inline void Endpoint::note_short(std::size_t length) {
    worker.count(WorkerCounter::kTxShort);
    window_.add_message(length);
}

[[gnu::always_inline]] inline bool Endpoint::try_send_short(const void* data, std::size_t length,
                                                            std::uint64_t tag, bool is_tagged) {
    if (!try_transmit_short(data, length, tag, is_tagged)) [[unlikely]]
        return false;
    note_short(length);
    return true;
}

/// As try_send_short(), with an immediate. Requires may_send_short_imm().
[[gnu::always_inline]] inline bool Endpoint::try_send_short_imm(const Outgoing& message) {
    Envelope envelope = plain_envelope(message, peer_names);
    const uct_iov_t iov[] = {{&envelope, envelope.bytes, nullptr, 0, 1},
                             {const_cast<void*>(message.base), message.length, nullptr, 0, 1}};
    constexpr auto kId = static_cast<std::uint8_t>(AmId::kEager);
    if (uct_ep_am_short_iov(lane_.ep, kId, iov, 2) != UCS_OK)
        return false;
    worker.count(WorkerCounter::kTxShort);
    window_.add_message(message.length);
    return true;
}

/// False: the slow path. `op` is a plain receive's but for its source; no device
/// matches tags.
[[gnu::always_inline]] inline bool try_post_short(WorkerCore& worker, void* buffer,
                                                  std::size_t length, std::uint64_t tag,
                                                  std::uint64_t mask, bool is_tagged,
                                                  const tw_op_t& op, tw_request_h* request_p,
                                                  std::uint32_t source) {
    const RequestState posted{
        .kind = RequestKind::kReceive, .is_tagged = is_tagged, .is_posted = true};
    MatchSpace& in = worker.space(is_tagged);
    RequestTable& requests = worker.requests();
    if (!in.unexpected.empty() || !requests.has_free()) [[unlikely]]
        return false;
    // Read anew: what the checks have read of it is in no register, which would have to be saved.
    auto* request = requests.make_plain(&worker, *ucs::read_anew(&op), posted);
    request->buffer.base = static_cast<std::byte*>(buffer);
    request->buffer.length = length;
    request->tag = tag;
    request->mask = mask;
    request->source = source;
    if (request_p != nullptr) {
        request->is_tested = true;
        *request_p = request;
    }
    in.posted.post(*request);
    return true;
}

/// TW_DONE_x of a plain receive. `flags`: kTagged and kImm.
[[gnu::always_inline]] inline std::uint32_t plain_flags(std::uint32_t flags) {
    return TW_DONE_RECV | flag_if((flags & kTagged) != 0, TW_DONE_TAGGED) |
           flag_if((flags & kImm) != 0, TW_DONE_IMM);
}

/// The completion of a plain receive of a short message. `flags`: kTagged and kImm.
[[gnu::always_inline]] inline void tell_plain(tw_completion_t& done, void* context,
                                              tw_request_h request, std::uint32_t flags,
                                              std::size_t length) {
    // One store for each: compilers would gather two by more moves.
    done.context = context;
    ucs::keep_in_memory(done.context);
    done.request = request;
    done.status = TW_OK;
    done.flags = plain_flags(flags);
    done.length = length;
    ucs::keep_in_memory(done.length);
    done.message_length = length;
    done.buffer = nullptr;
    done.message = nullptr;
}

/// `op` and `source` as for try_post_short(). A short message is there that asks for nothing but a
/// copy: it is in the buffer, and the call is over. False: the slow path.
inline bool try_take_plain(WorkerCore& worker, void* buffer, std::size_t length, std::uint64_t tag,
                           std::uint64_t mask, bool is_tagged, const tw_op_t& op,
                           std::uint32_t source) {
    UnexpectedMessages& messages = worker.space(is_tagged).unexpected;
    if (messages.empty() || (op.flags & TW_OP_COMPLETION) != 0 ||
        (op.info != nullptr && op.info->struct_bytes != sizeof(tw_message_info_t)))
        return false;
    auto* const message = static_cast<Unexpected*>(messages.find(tag & mask, mask, source));
    if (message == nullptr || !message->is_plain || message->peer == nullptr ||
        message->length > length)
        return false;
    messages.remove(*message);
    ucs::copy_short(static_cast<std::byte*>(buffer), message->behind(), message->length);
    if (op.info != nullptr) {
        tw_message_info_t& info = *op.info;
        info.flags = plain_flags(message->flags);
        info.tag = message->tag;
        info.length = message->length;
        info.imm = message->imm;
        info.source = message->worker_id;
        info.ep = sender_of(*message).handle();
    }
    worker.matches().release_plain(*message);
    return true;
}

/// Whether end_short() can end this receive of a message of `length` bytes.
inline bool is_short(const Request& request, std::size_t length) {
    return !request.is_whole && request.complete != nullptr && length <= request.buffer.length;
}

/// end_tested() may end this receive, which the program tests.
inline bool is_short_tested(const Request& request, std::size_t length) {
    return !request.is_whole && request.is_for_test() && length <= request.buffer.length;
}

/// Data up to this length is copied by a few moves here.
inline constexpr std::size_t kShortCopyMax = 256;

/// Apart, so that the other modes save no registers for it.
[[gnu::noinline]] inline void call_unlocked(WorkerCore& worker, tw_complete_cb_t complete,
                                            const tw_completion_t& done) {
    const InCallback callback(worker.attention());  // as Unlocked, of a worker that is_multi
    worker.leave();
    complete(&done);
    worker.enter_again();
}

/// The completion of a plain receive from `ep`. `header` has no flags but kTagged and kImm.
[[gnu::always_inline]] inline void tell_plain_of(tw_completion_t& done, Request& request,
                                                 Endpoint& ep, const Header& header,
                                                 std::size_t length, std::uint64_t imm) {
    tell_plain(done, request.context, &request, header.flags, length);
    done.tag = header.tag;
    done.imm = imm;
    done.source = ep.worker_id;
    done.ep = ep.handle();
}

/// Ends a receive whose data is in its buffer, which the program tests. It is in no matcher any
/// more.
inline void end_tested(WorkerCore& worker, Request& request, Endpoint& ep, const Header& header,
                       std::size_t length, std::uint64_t imm) {
    worker.count(WorkerCounter::kRxExpected);
    tell_plain_of(request.done, request, ep, header, length, imm);
    worker.requests().keep_plain(request);
}

/// Ends a receive whose data is in its buffer, by its callback. `is_multi`: the worker is.
[[gnu::always_inline]] inline void end_plain(WorkerCore& worker, Request& request, Endpoint& ep,
                                             const Header& header, std::size_t length,
                                             std::uint64_t imm, bool is_multi) {
    worker.count(WorkerCounter::kRxExpected);
    tw_completion_t done;
    tell_plain_of(done, request, ep, header, length, imm);
    const tw_complete_cb_t complete = request.complete;
    worker.requests().release_plain(request);
    if (is_multi) [[unlikely]]
        return call_unlocked(worker, complete, done);
    const InCallback callback(worker.attention());
    complete(&done);
}

/// Data of a short message goes into the receive's buffer.
template <bool kIsLong>
[[gnu::always_inline]] inline void take_short(Request& request, const Endpoint& ep,
                                              const std::byte* data, std::size_t length) {
    if constexpr (kIsLong)
        ucs::copy(ep.copies.out.kind_for(length), request.buffer.base, data, length);
    else
        ucs::copy_short(request.buffer.base, data, length);
}

/// As end_plain(), of data that is at `data`.
template <bool kIsLong>
[[gnu::always_inline]] inline void end_short(WorkerCore& worker, Request& request, Endpoint& ep,
                                             const Header& header, const std::byte* data,
                                             std::size_t length, std::uint64_t imm, bool is_multi) {
    take_short<kIsLong>(request, ep, data, length);
    end_plain(worker, request, ep, header, length, imm, is_multi);
}

}  // namespace tagwire::proto
