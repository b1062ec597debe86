// SPDX-License-Identifier: BSD-3-Clause
// Messages that leave, those that have to be sent again, and peers that are not there any more.
#include <algorithm>
#include <cerrno>

#include "vhca/cm/manager.hpp"

namespace tagwire::vhca::cm {

void Manager::send(Identity& identity, const Message& message) {
    network_.send(identity.peer.route, format(message));
}

void Manager::send_until(Identity& identity, const Message& message) {
    identity.unanswered = format(message);
    identity.sends_left = timing_.sends_max - 1;
    identity.interval = timing_.resend_min;
    set_deadline(identity, network_.now() + identity.interval);
    network_.send(identity.peer.route, identity.unanswered);
}

void Manager::answer(Identity& identity) {
    identity.deadline = kNever;
}

bool Manager::asks_again(const Identity& identity) const {
    return timing_.sends_max - identity.sends_left < timing_.asks_min;
}

void Manager::set_deadline(Identity& identity, Time deadline) {
    identity.deadline = deadline;
    next_deadline_ = std::min(next_deadline_, deadline);
}

void Manager::refuse(Route to, const Message& request, std::uint16_t reason) {
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

Time Manager::progress(Time now) {
    if (now < next_deadline_)
        return next_deadline_;
    next_deadline_ = kNever;
    for (auto& [local_id, identity] : identities_) {
        if (identity->deadline <= now) {
            if (identity->sends_left == 0) {
                identity->deadline = kNever;
                time_out(*identity);
            } else {
                --identity->sends_left;
                if (identity->exchange == Exchange::kReqSent ||
                    identity->exchange == Exchange::kSidrSent) {
                    // A listener may have come, or another may be there in its place.
                    identity->peer =
                        network_.find_peer(identity->service_id, identity->destination);
                }
                network_.send(identity->peer.route, identity->unanswered);
                identity->interval = std::min(2 * identity->interval, timing_.resend_max);
                identity->deadline = now + identity->interval;
            }
        }
        next_deadline_ = std::min(next_deadline_, identity->deadline);
    }
    bury_orphans();
    return next_deadline_;
}

void Manager::bury_orphans() {
    std::erase_if(identities_, [](const auto& entry) {
        return entry.second->is_orphan() && entry.second->exchange != Exchange::kDreqSent;
    });
}

void Manager::time_out(Identity& identity) {
    rdma_ucm_event_resp response{};
    response.status = static_cast<std::uint32_t>(-ETIMEDOUT);
    switch (identity.exchange) {
        case Exchange::kReqSent:
        case Exchange::kRepSent:
        case Exchange::kSidrSent:
            identity.exchange = Exchange::kOver;
            response.event = kUnreachable;
            tell(identity, response);
            break;
        case Exchange::kDreqSent:
            enter_time_wait(identity);
            end_connection(identity, -ETIMEDOUT);
            break;
        case Exchange::kTimeWait:
            identity.exchange = Exchange::kOver;
            if (identity.state == State::kDisconnected) {
                response.status = 0;
                response.event = kTimeWaitExit;
                tell(identity, response);
            }
            break;
        default:
            break;
    }
}

void Manager::enter_time_wait(Identity& identity) {
    identity.exchange = Exchange::kTimeWait;
    identity.sends_left = 0;
    set_deadline(identity, network_.now() + (Time{4096} << (identity.timeout + 1)));
}

void Manager::end_connection(Identity& identity, int status) {
    if (identity.state != State::kConnecting)
        return;
    identity.state = State::kDisconnected;
    rdma_ucm_event_resp response{};
    response.event = EventType::kDisconnected;
    response.status = static_cast<std::uint32_t>(status);
    tell(identity, response);
}

void Manager::note_gone(Route node) {
    for (auto& [local_id, identity] : identities_)
        if (identity->peer.route == node)
            lose_peer(*identity);
    bury_orphans();
}

// As if its kernel had destroyed what it held.
void Manager::lose_peer(Identity& identity) {
    switch (identity.exchange) {
        case Exchange::kReqReceived:
        case Exchange::kRepSent:
        case Exchange::kRepReceived: {
            Message rejection;
            rejection.kind = Kind::kRej;
            rejection.reason = kRejConsumerDefined;
            receive_rejection(identity, rejection);
            break;
        }
        case Exchange::kEstablished:
        case Exchange::kDreqSent:
        case Exchange::kDreqReceived:
            enter_time_wait(identity);
            end_connection(identity, 0);
            break;
        default:
            break;
    }
}

}  // namespace tagwire::vhca::cm
