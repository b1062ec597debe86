// SPDX-License-Identifier: BSD-3-Clause
// Identities whose time is over, and peers that are gone.
#include <cerrno>

#include "vhca/cm/manager.hpp"

namespace tagwire::vhca::cm {

Time Manager::progress(Time now) {
    if (now < outbox_.next_deadline())
        return outbox_.next_deadline();
    outbox_.begin_round();
    for (auto& [local_id, identity] : identities_) {
        if (!outbox_.service(*identity, now))
            time_out(*identity);
        outbox_.note_deadline(*identity);
    }
    bury_orphans();
    return outbox_.next_deadline();
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
    outbox_.expire_in(identity, Time{4096} << (identity.timeout + 1));
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
