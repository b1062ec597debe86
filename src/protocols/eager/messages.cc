// SPDX-License-Identifier: BSD-3-Clause
// Messages that are here: probes, and receives of messages that were claimed.
#include "protocols/eager/receiver.hpp"
#include "protocols/request/request_table.hpp"

namespace tagwire::proto {

void Receiver::describe(Request& request, const Unexpected& message) {
    const tw_message_info_t info = info_of(message);
    tw_completion_t& done = request.done;
    done.tag = info.tag;
    done.imm = info.imm;
    done.length = done.message_length = info.length;
    done.source = info.source;
    done.ep = info.ep;
    done.flags |= info.flags;
}

tw_message_info_t Receiver::info_of(const Unexpected& message) {
    tw_message_info_t info{};
    info.flags = TW_DONE_RECV | flag_if(message.is_tagged, TW_DONE_TAGGED) |
                 flag_if(message.is_am, TW_DONE_AM) |
                 flag_if((message.flags & kImm) != 0, TW_DONE_IMM);
    info.tag = message.tag;
    info.length = message.length;
    info.imm = message.imm;
    info.source = message.worker_id;
    info.ep = message.peer == nullptr ? nullptr : handle_of(*message.peer);
    return info;
}

Unexpected* Receiver::probe(bool is_tagged, std::uint64_t tag, std::uint64_t mask,
                            const MatchPeer* from) {
    return static_cast<Unexpected*>(space(is_tagged).unexpected.find(
        tag & mask, mask, from == nullptr ? kAnySource : from->source));
}

void Receiver::claim(Unexpected& message) {
    to_.matches.claim(message);  // throws before anything has changed
    space(message.is_tagged).unexpected.remove(message);
}

tw_status_t Receiver::receive_claimed(Request& request, const Incoming& wanted) {
    Unexpected& message = *wanted.message;
    to_.matches.unclaim(message);
    request.is_tagged = message.is_tagged;
    request.done.flags = TW_DONE_RECV | flag_if(message.is_am, TW_DONE_AM);
    give_message(request, message);
    return to_.worker.requests.answer(request, wanted.op, wanted.request_p);
}

}  // namespace tagwire::proto
