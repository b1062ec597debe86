// SPDX-License-Identifier: BSD-3-Clause
// Peeks and claims.
#include <algorithm>

#include "protocols/eager/receiver.hpp"
#include "protocols/request/request_table.hpp"
#include "ucs/log/log.hpp"

namespace tagwire::proto {

void Receiver::describe(Request& request, const Unexpected& message) {
    tw_completion_t& done = request.done;
    done.tag = message.tag;
    done.imm = message.imm;
    done.length = done.message_length = message.length;
    done.source = message.worker_id;
    done.ep = message.peer == nullptr ? nullptr : handle_of(*message.peer);
    done.flags |= flag_if((message.flags & kImm) != 0, TW_DONE_IMM);
}

tw_status_t Receiver::peek(Request& request, const Incoming& wanted) {
    MatchSpace& in = space(request.is_tagged);
    request.done.flags |= TW_DONE_PEEK;
    auto* message =
        static_cast<Unexpected*>(in.unexpected.find(request.tag, request.mask, request.source));
    if (message == nullptr) {
        to_.worker.finish(request, UCS_ERR_NO_MESSAGE);
        return to_.worker.requests.answer(request, wanted.op, wanted.request_p);
    }
    describe(request, *message);
    const bool is_here = !message->is_rndv && message->received == message->length;
    if (is_here && request.buffer.length > 0 && (request.flags & TW_OP_DISCARD) == 0) {
        request.buffer.scatter(0, message->data(),
                               std::min<std::size_t>(message->length, request.buffer.length));
        std::size_t bytes = 0;
        request.done.buffer = request.buffer.piece(0, &bytes);
    }
    if ((request.flags & TW_OP_DISCARD) != 0) {
        in.unexpected.remove(*message);
        to_.matches.discard(*message);
    } else if ((request.flags & TW_OP_CLAIM) != 0) {
        in.unexpected.remove(*message);
        to_.matches.claim(*message);
        request.done.message = message;
    }
    to_.worker.finish(request, UCS_OK);
    return to_.worker.requests.answer(request, wanted.op, wanted.request_p);
}

tw_status_t Receiver::claim(Request& request, const Incoming& wanted) {
    Unexpected* const claimed = to_.matches.claimed(wanted.op->message, wanted.is_am);
    if (claimed == nullptr) {
        TW_LOG_ERROR("%s %p is not %s message of this worker that the program has",
                     wanted.is_am ? "tw_am_recv: message" : "TW_OP_CLAIM: op->message",
                     static_cast<void*>(wanted.op->message),
                     wanted.is_am ? "an active" : "a claimed");
        to_.worker.requests.release(request);
        return TW_ERR_INVALID_PARAM;
    }
    Unexpected& message = *claimed;
    to_.matches.unclaim(message);
    request.done.flags |= wanted.is_am ? TW_DONE_AM : TW_DONE_CLAIM;
    if ((request.flags & TW_OP_DISCARD) != 0) {
        describe(request, message);
        to_.matches.discard(message);
        to_.worker.finish(request, UCS_OK);
    } else {
        give_message(request, message);
    }
    return to_.worker.requests.answer(request, wanted.op, wanted.request_p);
}

}  // namespace tagwire::proto
