// SPDX-License-Identifier: BSD-3-Clause
// The ports by which the table of peers, the receivers of messages (receiver.hpp), of active
// messages (am_receiver.hpp) and of what a device matches (device_tags.hpp), and other parts reach
// their worker.
#include <cstddef>
#include <memory>
#include <new>
#include <span>

#include "protocols/api/tw_endpoint.h"
#include "protocols/eager/receiver.hpp"
#include "protocols/match/arrival.hpp"
#include "protocols/offload/device_tags.hpp"
#include "protocols/transfer/stripe.hpp"
#include "protocols/worker/am_fast_path.hpp"
#include "protocols/worker/endpoint.hpp"
#include "protocols/worker/peer_table.hpp"
#include "protocols/worker/politeness.hpp"
#include "protocols/worker/tx_contexts.hpp"
#include "protocols/worker/worker.hpp"

namespace tagwire::proto {

namespace {

Worker& worker_at(void* owner) {
    return *static_cast<Worker*>(owner);
}

const Worker& worker_at(const void* owner) {
    return *static_cast<const Worker*>(owner);
}

/// The program has the endpoint: its other threads send by endpoints of their own.
ucs_status_t open_contexts(const Worker& worker, Endpoint& ep, unsigned flags) try {
    if (worker.tx_contexts() == nullptr || (flags & TW_EP_ORDERED) != 0)
        return UCS_OK;
    return worker.tx_contexts()->add(ep);
} catch (const std::bad_alloc&) {
    return UCS_ERR_NO_MEMORY;
}

}  // namespace

constinit const PeerTableCalls Worker::kPeerTableCalls{
    .make = [](void* worker, std::uint64_t peer_id, std::uint64_t worker_id) -> PeerEndpoint* {
        return std::make_unique<Endpoint>(worker_at(worker), peer_id, worker_id).release();
    },
    .destroy = [](PeerEndpoint& ep) { delete &endpoint_of(ep); },
    .add_id = [](void* worker,
                 PeerEndpoint& ep) { return worker_at(worker).endpoints_.add(endpoint_of(ep)); },
    .release_id =
        [](void* owner, PeerEndpoint& ep) {
            Worker& worker = worker_at(owner);
            if (worker.endpoints_.find(ep.id) != &ep)
                return;
            worker.endpoints_.remove(ep.id);
            if (worker.device_tags() != nullptr)
                worker.device_tags()->gone(ep);
        },
    .begin_anew = [](PeerEndpoint& ep) { endpoint_of(ep).begin_anew(); },
    .work = [](PeerEndpoint& ep) { return endpoint_of(ep).work_slowly(); },
    .stripe_failed =
        [](PeerEndpoint& ep, uct_ep_h lane, ucs_status_t status) {
            Stripes* const stripes = endpoint_of(ep).chosen_stripes();
            return stripes != nullptr && stripes->lane_failed(lane, status);
        },
    .drop_incoming =
        [](void* worker, PeerEndpoint& ep, ucs_status_t status, bool is_last) {
            worker_at(worker).own_receiver_.drop_incoming(endpoint_of(ep), status, is_last);
        },
    .end_receives =
        [](void* worker, PeerEndpoint& ep, ucs_status_t status) {
            while (Request* request = endpoint_of(ep).receiving.front())
                worker_at(worker).finish(*request, status);
        },
    .open_contexts =
        [](void* worker, PeerEndpoint& ep, unsigned flags) {
            return open_contexts(worker_at(worker), endpoint_of(ep), flags);
        },
    .fail_front =
        [](void* worker, PeerEndpoint& ep, ucs_status_t status) {
            if (endpoint_of(ep).tx.front == nullptr)
                return false;
            worker_at(worker).own_tx->has_failed(endpoint_of(ep), status);
            return true;
        },
    .ended =
        [](void* worker, std::uint64_t worker_id, ucs_status_t status) {
            for (const auto& lookout : worker_at(worker).lookouts)
                if (lookout != nullptr)
                    lookout->peer_ended(worker_id, static_cast<tw_status_t>(status));
        },
};

PeerTablePorts Worker::peer_table_ports() {
    return {.id = id_,
            .options = options(),
            .attention = attention_,
            .requests = requests_,
            .matches = matches_,
            .callbacks = callbacks_,
            .params = params_,
            .owner = this,
            .calls = kPeerTableCalls};
}

constinit const PolitenessCalls Worker::kPolitenessCalls{
    .has_contexts = [](const void* worker) { return worker_at(worker).tx_contexts() != nullptr; },
    .ends_of_contexts = [](const void* worker) { return worker_at(worker).tx_contexts()->ends(); },
    .awaited_lanes =
        [](void* owner, std::span<uct_ep_h> lanes) {
            Worker& worker = worker_at(owner);
            return worker.awaited.lanes_of(worker.matches_, worker.requests_.in_use(), lanes);
        },
    .enter = [](void* worker) { worker_at(worker).enter(); },
    .leave = [](void* worker) { worker_at(worker).leave(); },
    .has_news =
        [](void* worker) {
            Waiting& waiting = worker_at(worker).waiting_;
            return waiting.has_work() || waiting.has_news_for_nap();
        },
    .arm_nap = [](void* worker, int* fd_p) { return worker_at(worker).waiting_.arm_nap(fd_p); },
    .event_for_nap = [](void* worker) { return worker_at(worker).waiting_.event_for_nap(); },
    .begin_nap = [](void* worker,
                    const NapWord* word) { worker_at(worker).waiting_.begin_nap(word); },
    .end_nap = [](void* worker) { worker_at(worker).waiting_.end_nap(); },
};

PolitenessPorts Worker::politeness_ports() {
    return {.attention = attention_,
            .counters = counters_,
            .is_multi = is_multi,
            .is_context = own_tx != nullptr,
            .owner = this,
            .calls = kPolitenessCalls};
}

// ---- Receivers

constinit const ReceiverCalls Worker::kReceiverCalls{
    .begin_rndv =
        [](void*, Request& request, MatchPeer& from, const Rts& rts,
           std::span<const std::byte> keys) {
            static_cast<Endpoint&>(from).rndv_receiver().begin(request, rts, keys);
        },
    .learn =
        [](void*, MatchPeer& from, std::size_t bytes, const Timing& timing) {
            static_cast<Endpoint&>(from).rndv_receiver().learning().add(false, bytes, timing);
        },
    .complete_am = [](void* worker,
                      Unexpected& message) { worker_at(worker).ams().complete(message); },
    .posted = [](void* worker,
                 Request& request) { worker_at(worker).device_tags_->posted(request); },
    .unposted = [](void* worker,
                   Request& request) { worker_at(worker).device_tags_->left(request); },
};

AmReceiverPorts am_port_of(WorkerCore& worker, const WorkerPort& port, MatchTable& matches) {
    return {.worker = port,
            .matches = matches,
            .handle = &worker,
            .owner = &worker,
            .call = [](void* owner, const AmHandler& handler, AmCall& call) {
                call_am(*static_cast<WorkerCore*>(owner), handler, call);
            }};
}

constinit const DeviceTagCalls Worker::kDeviceTagCalls{
    .find = [](void* worker, std::uint32_t sender) -> MatchPeer* {
        return worker_at(worker).endpoints_.find(sender);
    },
    .arrive =
        [](void* worker, MatchPeer& from, const Arrival& arrival, Request* request) {
            worker_at(worker).own_receiver_.arrive(from, arrival, request);
        },
    .arrive_unmatched =
        [](void* worker, MatchPeer& from, const Arrival& arrival) {
            worker_at(worker).own_receiver_.arrive_unmatched(from, arrival);
        },
    .end_in_place =
        [](void* worker, Request& request, MatchPeer& from, const Arrival& arrival) {
            worker_at(worker).own_receiver_.end_in_place(request, from, arrival);
        },
    .take_announced =
        [](void* worker, MatchPeer& from, const Placeholder& place, std::uint64_t tag,
           Request* request) {
            return worker_at(worker).own_receiver_.take_announced(from, place, tag, request);
        },
    .garbage = [](void* worker, const char* what,
                  std::size_t length) { return worker_at(worker).garbage(what, length); },
    .drop_from_unknown =
        [](void* worker, std::uint32_t sender, const char* what, std::size_t length) {
            return worker_at(worker).drop_from_unknown(sender, what, length);
        },
};

}  // namespace tagwire::proto
