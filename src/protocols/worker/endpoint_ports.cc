// SPDX-License-Identifier: BSD-3-Clause
// The ports of an endpoint, by which its parts reach it.
#include <uct/api/tagwire_uct.h>
#include <uct/api/uct.h>

#include <utility>

#include "protocols/worker/endpoint.hpp"
#include "protocols/worker/peer_table.hpp"
#include "protocols/worker/worker_core.hpp"

namespace tagwire::proto {

namespace {

Endpoint& as_endpoint(void* owner) {
    return *static_cast<Endpoint*>(owner);
}
const Endpoint& as_endpoint(const void* owner) {
    return *static_cast<const Endpoint*>(owner);
}

/// The request is one of the endpoint, as the program hears of it.
void adopt(Endpoint& ep, Request& request) {
    request.ep = &ep;
    request.done.ep = sender_handle(ep);
}

}  // namespace

constinit const LaneCalls Endpoint::kLaneCalls{
    .control = [](void* ep,
                  const Control& message) { as_endpoint(ep).queue_.push_control(message); },
    .add_control = [](void* ep,
                      const Control& message) { as_endpoint(ep).queue_.add_control(message); },
    .send_now = [](void* ep,
                   const Control& message) { return as_endpoint(ep).queue_.send_now(message); },
    .run = [](void* ep) { as_endpoint(ep).queue_.run(); },
    .stall = [](void* ep) { as_endpoint(ep).queue_.stall(); },
    .state = [](const void* ep) { return as_endpoint(ep).lane_.state; },
    .is_quiet = [](const void* ep) { return as_endpoint(ep).is_quiet(); },
    .has_waiting = [](const void* ep) { return !as_endpoint(ep).queue_.is_empty(); },
    .is_free = [](const void* ep) { return as_endpoint(ep).queue_.has_nothing(); },
    .flush =
        [](void* ep) {
            return uct_ep_flush(as_endpoint(ep).lane_.ep, UCT_FLUSH_FLAG_LOCAL, nullptr);
        },
    .flush_sent =
        [](void* ep, uct_completion_t* done) {
            return uct_ep_flush(as_endpoint(ep).lane_.ep, TAGWIRE_UCT_FLUSH_FLAG_SENT, done);
        },
    .has_operations = [](const void* ep) { return as_endpoint(ep).queue_.has_operations(); },
    .has_controls = [](const void* ep) { return as_endpoint(ep).queue_.controls() > 0; },
    .connection = [](const void* ep) { return as_endpoint(ep).connector_.number(); },
    .opened = [](void* ep) { as_endpoint(ep).opened(); },
    .update_direct = [](void* ep) { as_endpoint(ep).update_direct(); },
    .fail = [](void* ep, ucs_status_t status) { as_endpoint(ep).fail(status); },
    .end = [](void* ep, ucs_status_t status) { as_endpoint(ep).closing_.end(status); },
    .failure = [](const void* ep) { return as_endpoint(ep).lane_.failure; },
    .adopt = [](void* ep, Request& request) { adopt(as_endpoint(ep), request); },
    .push = [](void* ep, Request& request) { as_endpoint(ep).queue_.push(request); },
    .finish = [](void* ep, Request& request,
                 ucs_status_t status) { as_endpoint(ep).worker.finish(request, status); },
    .add_data = [](void* ep, Request& request) { as_endpoint(ep).queue_.add_data(request); },
    .remove = [](void* ep, Request& request) { as_endpoint(ep).queue_.remove(request); },
    .begin_transfer =
        [](void* ep, Request& request, std::span<const std::byte> packed, bool only_connections) {
            as_endpoint(ep).begin_transfer(request, packed, only_connections);
        },
    .send_placeholder =
        [](void* ep, Request& request) { return as_endpoint(ep).eager_.send_placeholder(request); },
    .cancel = [](void* ep, Request& request) { as_endpoint(ep).cancel(request); },
    .note_sending = [](void* ep) { as_endpoint(ep).note_sending(); },
    .write_out = [](void* ep, const tw_op_t* op) { as_endpoint(ep).write_out(op); },
    .submit =
        [](void* ep, Request& request) {
            adopt(as_endpoint(ep), request);
            return as_endpoint(ep).queue_.submit(request);
        },
    .push_data = [](void* ep, Request& request) { as_endpoint(ep).queue_.push_data(request); },
    .request_ended = [](void* ep) { as_endpoint(ep).request_ended(); },
    .set_ready = [](void* ep, uct_ep_h lane, Rail& rail,
                    std::uint8_t peer_rail) { as_endpoint(ep).set_ready(lane, rail, peer_rail); },
    .lane = [](const void* ep) { return as_endpoint(ep).lane_.ep; },
    .set_eager_max = [](void* ep,
                        std::uint64_t bytes) { as_endpoint(ep).rndv_.set_eager_max(bytes); },
    .handle = [](void* ep) { return as_endpoint(ep).handle(); },
    .want_keys = [](void* ep, RemoteKey& key) { as_endpoint(ep).want_keys(key); },
};

constinit const SendCalls Endpoint::kSendCalls{
    .start = [](void* ep, Request& request) { return as_endpoint(ep).start(request); },
    .begun =
        [](void* ep, Request& request) {
            if (request.kind == RequestKind::kRma)
                as_endpoint(ep).rma.begun(request);
        },
    .step =
        [](void* ep, Request& request) {
            if (request.kind == RequestKind::kRma)
                return as_endpoint(ep).rma.resume(request);
            return request.kind == RequestKind::kReceive
                       ? as_endpoint(ep).rndv_receiver_.send_rtr(request)
                       : as_endpoint(ep).rndv_.send_piece(request);
        },
    .is_asked = [](const void* ep,
                   const Request& request) { return as_endpoint(ep).rma.is_asked(request); },
    .may_ask = [](const void* ep) { return as_endpoint(ep).rma.may_ask(); },
    .awaits_replies = [](const void* ep) { return as_endpoint(ep).rma.awaits_replies(); },
    .send_get =
        [](void* ep) {
            RmaTarget& target = as_endpoint(ep).rma_target;
            return target.has_gets() ? target.send_piece() : UCS_ERR_NO_ELEM;
        },
    .reply_has_gone = [](void* ep) { as_endpoint(ep).rma_target.reply_has_gone(); },
};

constinit const PeerCalls Endpoint::kPeerCalls{
    .asked = [](void* ep) { as_endpoint(ep).worker.peers().asked(as_endpoint(ep)); },
    .retire = [](void* ep) { as_endpoint(ep).worker.peers().retire(as_endpoint(ep)); },
    .linger = [](void* ep) { as_endpoint(ep).worker.peers().linger(as_endpoint(ep).take_lane()); },
    .reconnect = [](void* ep) { as_endpoint(ep).worker.peers().reconnect(as_endpoint(ep)); },
    .tell_anew = [](void* ep) { as_endpoint(ep).worker.peers().tell_anew(as_endpoint(ep)); },
    .tell_event =
        [](void* ep, tw_peer_event_t event) {
            as_endpoint(ep).worker.peers().tell_event(as_endpoint(ep), event);
        },
    .tell_end =
        [](void* ep, ucs_status_t status) {
            as_endpoint(ep).worker.peers().tell_end(as_endpoint(ep), status);
        },
    .release_contexts =
        [](void* ep) {
            if (TxParts* contexts = std::exchange(as_endpoint(ep).tx.contexts, nullptr))
                contexts->release();
        },
    .flush_contexts =
        [](void* ep, bool closes, tw_flush_level_t level, bool is_kept) {
            TxParts* contexts = as_endpoint(ep).tx.contexts;
            return contexts == nullptr ? TW_OK : contexts->flush(closes, level, is_kept);
        },
    .awaits_contexts =
        [](const void* ep) {
            const TxParts* contexts = as_endpoint(ep).tx.contexts;
            return contexts != nullptr && contexts->awaits_ends();
        },
    .map_lane =
        [](void* ep, uct_ep_h lane, bool is_made) {
            as_endpoint(ep).worker.peers().map_lane(lane, is_made ? &as_endpoint(ep) : nullptr);
        },
    .ask_wireup = [](void* ep) { as_endpoint(ep).worker.peers().ask_wireup(as_endpoint(ep)); },
    .next_connection = [](void* ep) { return as_endpoint(ep).worker.peers().next_connection(); },
    .retired_id =
        [](void* ep) {
            return as_endpoint(ep).worker.peers().retired_id_of(as_endpoint(ep).peer_id);
        },
};

}  // namespace tagwire::proto
