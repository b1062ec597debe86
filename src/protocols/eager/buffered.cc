// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/eager/receiver.hpp"

#include <algorithm>
#include <cstdlib>
#include <new>

#include "protocols/match/arrival.hpp"
#include "protocols/request/request_table.hpp"
#include "protocols/wire/control_message.hpp"
#include "ucs/memory/reserve.hpp"

namespace tagwire::proto {

void BufferedReceives::buffer(Request& request, MatchPeer& from, const Arrival& arrival) {
    Unexpected* message = to_.matches.make(from, arrival);
    if (message == nullptr)
        return to_.worker.finish(request, from.lane.failure());
    buffer_message(request, *message);
    to_.matches.pause_if_full(from);
}

/// `message` is in no matcher.
void BufferedReceives::buffer_message(Request& request, Unexpected& message) {
    to_.matches.claim(message);
    message.waiting = &request;
    if (message.peer == nullptr)
        return report_buffered(message);
    if (message.is_rndv)
        return fetch(request, message);
    MatchPeer& from = *message.peer;
    const bool asks_for_ack = (message.flags & kAckMatch) != 0;
    const std::uint32_t send_id = message.send_id;
    message.flags &= ~std::uint32_t{kAckMatch};
    if (is_enough_here(message))
        report_buffered(message);
    else
        to_.worker.set_outstanding(request, from);
    if (asks_for_ack)
        from.lane.control(Ack{send_id});
}

void BufferedReceives::check(Unexpected& message) {
    if (message.waiting != nullptr && is_enough_here(message))
        report_buffered(message);
}

bool BufferedReceives::is_enough_here(const Unexpected& message) const {
    return message.received == message.length ||
           (message.length > to_.limits.buffered_bytes_limit &&
            message.received >= to_.limits.buffered_bytes_min);
}

void BufferedReceives::fetch(Request& request, Unexpected& message) {
    // Its sender's buffer is the program's again; a loan may still be in force.
    if (message.is_canceled)
        return drop_buffered(message, UCS_ERR_CANCELED);
    const bool is_start = message.length > to_.limits.buffered_bytes_limit;
    const std::size_t bytes = is_start ? to_.limits.buffered_bytes_min : message.length;
    if (bytes == 0)
        return report_buffered(message);
    message.start = static_cast<std::byte*>(ucs::reserve_try_allocate(bytes));
    tw_op_t op{};
    op.complete = [](const tw_completion_t* done) {
        if (done->message == nullptr)  // it has gone with its sender
            return;
        static_cast<BufferedReceives*>(done->context)
            ->fetched(static_cast<Unexpected&>(*done->message), done->status, done->length);
    };
    op.context = this;
    Request* own = message.start == nullptr
                       ? nullptr
                       : to_.worker.requests.make_internal(RequestKind::kReceive, op, is_start);
    if (own == nullptr)
        return drop_buffered(message, UCS_ERR_NO_MEMORY);
    own->buffer.base = message.start;
    own->buffer.length = bytes;
    own->done.message = &message;
    message.fetch = own;
    MatchPeer& from = *message.peer;
    to_.worker.set_outstanding(request, from);
    to_.matches.grow(message, bytes);
    to_.calls.begin_rndv(to_.owner, *own, from, message.rts, {message.data(), message.received});
    to_.matches.pause_if_full(from);
}

void BufferedReceives::fetched(Unexpected& message, tw_status_t status, std::size_t bytes) {
    message.fetch = nullptr;
    if (status != TW_OK && status != TW_ERR_MESSAGE_TRUNCATED)
        return drop_buffered(message, static_cast<ucs_status_t>(status));
    message.start_bytes = bytes;
    if (bytes == message.length) {
        message.is_rndv = false;
        message.received = message.length;
    }
    report_buffered(message);
}

/// The receive that it met ends; the program knows it from now on.
void BufferedReceives::report_buffered(Unexpected& message) {
    Request& request = *std::exchange(message.waiting, nullptr);
    Receiver::describe(request, message);
    tw_completion_t& done = request.done;
    done.length = message.is_rndv ? message.start_bytes : message.received;
    done.buffer = message.is_rndv ? message.start : message.data();
    done.message = &message;
    done.flags |= TW_DONE_BUFFERED | flag_if(done.length < message.length, TW_DONE_MORE);
    to_.worker.finish(request, UCS_OK);
}

/// It cannot be had; the receive that it met ends so.
void BufferedReceives::drop_buffered(Unexpected& message, ucs_status_t status) {
    Request& request = *std::exchange(message.waiting, nullptr);
    to_.matches.unclaim(message);
    Receiver::describe(request, message);
    request.done.length = 0;
    to_.matches.release(message);
    to_.worker.finish(request, status);
}

}  // namespace tagwire::proto
