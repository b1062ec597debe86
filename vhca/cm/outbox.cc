// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/cm/outbox.hpp"

#include <algorithm>

namespace tagwire::vhca::cm {

Message Outbox::message_of(Kind kind, const Identity& identity) const {
    Message message;
    message.kind = kind;
    message.transaction = identity.transaction;
    message.local_id = identity.local_id;
    message.remote_id = identity.remote_id;
    message.service_id = identity.service_id;
    message.qpn = identity.qpn;
    message.qkey = identity.qkey;
    message.psn = identity.psn;
    message.responder_resources = identity.responder_resources;
    message.initiator_depth = identity.initiator_depth;
    message.retry_count = identity.retry_count;
    message.rnr_retry_count = identity.rnr_retry_count;
    message.has_srq = identity.has_srq;
    message.guid = network_.port().guid;
    return message;
}

void Outbox::send_once(const Identity& identity, const Message& message) {
    network_.send(identity.peer.route, format(message));
}

void Outbox::send_until_answered(Identity& identity, const Message& message) {
    identity.unanswered = format(message);
    identity.sends_left = timing_.sends_max - 1;
    identity.interval = timing_.resend_min;
    identity.deadline = network_.now() + identity.interval;
    note_deadline(identity);
    repeat(identity);
}

void Outbox::repeat(const Identity& identity) {
    network_.send(identity.peer.route, identity.unanswered);
}

void Outbox::refuse(Route to, const Message& request, std::uint16_t reason) {
    Message message;
    message.transaction = request.transaction;
    if (request.kind == Kind::kSidrReq) {
        message.kind = Kind::kSidrRep;
        message.local_id = request.local_id;
        message.service_id = request.service_id;
        message.reason = reason == kRejInvalidServiceId ? kSidrUnsupported : kSidrReject;
    } else {
        message.kind = Kind::kRej;
        message.remote_id = request.local_id;
        message.reason = reason;
    }
    network_.send(to, format(message));
}

void Outbox::be_patient(Identity& identity) {
    identity.sends_left = timing_.sends_max;
    identity.interval = timing_.resend_max;
    identity.deadline = network_.now() + identity.interval;
    note_deadline(identity);
}

void Outbox::expire_in(Identity& identity, Time duration) {
    identity.sends_left = 0;
    identity.deadline = network_.now() + duration;
    note_deadline(identity);
}

bool Outbox::service(Identity& identity, Time now) {
    if (now < identity.deadline)
        return true;
    if (identity.sends_left == 0) {
        identity.deadline = kNever;
        return false;
    }
    --identity.sends_left;
    if (identity.exchange == Exchange::kReqSent || identity.exchange == Exchange::kSidrSent) {
        // A listener may have come, or another may be there in its place.
        identity.peer = network_.find_peer(identity.service_id, identity.destination);
    }
    repeat(identity);
    identity.interval = std::min(2 * identity.interval, timing_.resend_max);
    identity.deadline = now + identity.interval;
    return true;
}

void Outbox::note_deadline(const Identity& identity) {
    next_deadline_ = std::min(next_deadline_, identity.deadline);
}

}  // namespace tagwire::vhca::cm
