// SPDX-License-Identifier: BSD-3-Clause
// Buffered receives: a receive without a buffer of the program. The message that it matches is kept
// as one that was claimed, and the receive ends when enough of it is here. Data of a rendezvous is
// fetched by a receive of our own: all of it, and it is an eager message from then on, or its
// start, and the sender is not told.
#include <algorithm>
#include <cstdlib>
#include <new>

#include "protocols/arrival.hpp"
#include "protocols/worker.hpp"
#include "ucs/log/log.hpp"

namespace tagwire::proto {

void Worker::buffer(Request& request, Endpoint& ep, const Arrival& arrival) {
    Unexpected* message = matches_.make(ep, arrival);
    if (message == nullptr)
        return finish(request, ep.failure());
    buffer_message(request, *message);
    matches_.pause_if_full(ep);
}

/// `message` is in no matcher.
void Worker::buffer_message(Request& request, Unexpected& message) {
    matches_.claim(message);
    message.waiting = &request;
    if (message.ep == nullptr)
        return report_buffered(message);
    if (message.is_rndv)
        return fetch(request, message);
    Endpoint& ep = *message.ep;
    const bool asks_for_ack = (message.flags & kAckMatch) != 0;
    const std::uint32_t send_id = message.send_id;
    message.flags &= ~std::uint32_t{kAckMatch};
    if (is_enough_here(message))
        report_buffered(message);
    else
        set_outstanding(request, ep);
    if (asks_for_ack)  // last: callbacks may end the endpoint, and the message with it
        ep.control(Ack{send_id});
}

bool Worker::is_enough_here(const Unexpected& message) const {
    return message.received == message.length || (message.length > limits.buffered_bytes_limit &&
                                                  message.received >= limits.buffered_bytes_min);
}

void Worker::fetch(Request& request, Unexpected& message) {
    const bool is_start = message.length > limits.buffered_bytes_limit;
    const std::size_t bytes = is_start ? limits.buffered_bytes_min : message.length;
    if (bytes == 0)
        return report_buffered(message);
    message.start = static_cast<std::byte*>(ucs::reserve_try_allocate(bytes));
    tw_op_t op{};
    op.complete = [](const tw_completion_t* done) {
        if (done->context == nullptr)
            return;
        auto& fetched = *static_cast<Unexpected*>(done->context);
        fetched.waiting->worker->fetched(fetched, done->status, done->length);
    };
    op.context = &message;
    Request* own = message.start == nullptr ? nullptr : requests_.make_internal(op, is_start);
    if (own == nullptr)
        return drop_buffered(message, UCS_ERR_NO_MEMORY);
    own->buffer.base = message.start;
    own->buffer.length = bytes;
    message.fetch = own;
    Endpoint& ep = *message.ep;
    set_outstanding(request, ep);
    matches_.grow(message, bytes);
    begin_rndv(*own, ep, message.rts, {message.data(), message.received});
    matches_.pause_if_full(ep);
}

void Worker::fetched(Unexpected& message, tw_status_t status, std::size_t bytes) {
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
void Worker::report_buffered(Unexpected& message) {
    Request& request = *std::exchange(message.waiting, nullptr);
    describe(request, message);
    tw_completion_t& done = request.done;
    done.length = message.is_rndv ? message.start_bytes : message.received;
    done.buffer = message.is_rndv ? message.start : message.data();
    done.message = &message;
    done.flags |= TW_DONE_BUFFERED | flag_if(done.length < message.length, TW_DONE_MORE);
    finish(request, UCS_OK);
}

/// It cannot be had; the receive that it met ends so.
void Worker::drop_buffered(Unexpected& message, ucs_status_t status) {
    Request& request = *std::exchange(message.waiting, nullptr);
    matches_.unclaim(message);
    describe(request, message);
    request.done.length = 0;
    matches_.release(message);
    finish(request, status);
}

}  // namespace tagwire::proto
