// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/worker/endpoint.hpp"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "protocols/eager/receiver.hpp"
#include "protocols/request/rail.hpp"
#include "protocols/transfer/stripe.hpp"
#include "protocols/worker/peer_table.hpp"
#include "protocols/worker/tx_contexts.hpp"
#include "protocols/worker/worker_core.hpp"
#include "ucs/log/log.hpp"

namespace tagwire::proto {

namespace {

/// The only place where the reason is told in any case. A close, by whomever, is none.
void log_failure(Endpoint& ep) {
    if (ep.failure() == UCS_ERR_CANCELED)
        return;
    if (ep.failure() == UCS_ERR_NOT_CONNECTED) {
        TW_LOG_DEBUG("endpoint to worker %016lx: the peer has gone in order", ep.worker_id);
        return;
    }
    const Rail* rail = ep.lane() != nullptr ? &ep.rail() : ep.connector().contact_rail();
    std::string state;
    try {
        state = ep.description();
    } catch (const std::bad_alloc&) {
        state = "no memory";  // short enough to need none
    }
    TW_LOG_WARN("endpoint to worker %016lx over %s fails: %s (%s)", ep.worker_id,
                rail == nullptr ? "no transport" : rail->transport(),
                ucs_status_string(ep.failure()), state.c_str());
}

void tell_rma(void* worker, MatchPeer& from, const tw_completion_t& done, bool is_counted) {
    static_cast<WorkerCore*>(worker)->tell_rma(static_cast<Endpoint&>(from), done, is_counted);
}

/// nullptr: the peer is another worker.
MemTable* own_memory(WorkerCore& owner, std::uint64_t peer) {
    const WorkerCore& front = owner.own_tx == nullptr ? owner : owner.own_tx->front;
    return front.id() == peer ? &owner.context().memories() : nullptr;
}

}  // namespace

Endpoint::Endpoint(WorkerCore& owner, std::uint64_t peer, std::uint64_t of_worker)
    : PeerEndpoint({owner.id(), peer, of_worker}, port_, peer_port_, connector_),
      rma({owner.port(), owner.rma_ops, *this, lane_, rma_lane, window_, flushes_,
           own_memory(owner, of_worker)}),
      rma_target(
          {owner.context().memories(), owner.port().counters, *this, lane_, &owner, tell_rma}),
      worker(owner),
      queue_({owner.port(), *this, peer_port_, lane_, closing_, outstanding, window_, flushes_,
              this, kSendCalls}),
      eager_({owner.port(), *this, lane_, copies.in, queue_.steps(), this,
              [](void* ep, const Request& request, std::uint64_t* begun) {
                  return static_cast<Endpoint*>(ep)->rndv_.is_timed(request, begun);
              }}),
      flushes_({port_, peer_port_, owner.requests(), outstanding, closing_}),
      rndv_(
          {owner.port(), *this, lane_, copies.in, window_, outstanding[index_of(Line::kMessages)]}),
      // Messages of a transmit context are answered by another endpoint.
      rndv_receiver_({owner.port(), *this, lane_, rndv_, owner.id() < peer && peer == of_worker}),
      connector_({*this, peer, peer_port_, owner.wireup_world()}) {
    rma_lane.key_use = key_use(owner.id(), owner_of(of_worker));
}

Endpoint::~Endpoint() {
    forget_keys();
    disconnect();
    worker.detach_draining(*this);
    if (tx.part != nullptr)
        tx.part->ep = nullptr;
}

tw_ep_h handle_of_worker(const Endpoint& ep) {
    return ep.worker.peers().handle_to(ep.worker_id);
}

// ---- Life

void Endpoint::set_ready(uct_ep_h lane, Rail& rail, std::uint8_t peer_rail) {
    lane_.ep = lane;
    lane_.over = &rail;
    lane_.peer_rail = peer_rail;
    lane_.peer_domain = connector_.domain_of_peer(peer_rail);
    rma_lane.peer_domain =
        static_cast<std::uint8_t>(std::min<std::size_t>(lane_.peer_domain, kKeyDomainsMax));
    copies.in.begin(rail.copies().in, rail.chooses_copies());
    copies.out = rail.copies().out;
    lane_.state = EpState::kReady;
    worker.awaited.know(*this);
    const std::size_t most = rail.short_max;
    // The fast path does not check whether a message is injected.
    direct_.short_data_max = std::min<std::size_t>(
        most > sizeof(Header) ? most - sizeof(Header) : 0, worker.options().inject_bytes);
    const auto matches = [](const PeerRail& other) {
        return (other.flags & kRailMatchesTags) != 0;
    };
    if (std::ranges::any_of(connector_.peer_rails(), matches))
        control(Lane{peer_rail});
    worker.peers().tell_up(*this);
    if (tx.contexts != nullptr)
        tx.contexts->begin();
    queue_.run();
}

/// In progress, whatever the caller is amid of.
void Endpoint::want_keys(RemoteKey& key) {
    if (!key.wants_keys({worker.requests(), worker.rma_ops, *this, lane_, rma_lane, connector_}))
        [[likely]]
        return;
    key.hold();
    wanted_keys_.push_back(key);
    worker.peers().ask_wireup(*this);
}

/// Those that there is no memory to ask for wait on.
void Endpoint::ask_for_keys() {
    const Walk walk(worker.attention());
    for (std::size_t left = wanted_keys_.size(); left > 0; --left) {
        RemoteKey* const key = wanted_keys_.pop_front();
        if (key == nullptr)
            return;
        if (key->ask_owner({worker.requests(), worker.rma_ops, *this, lane_, rma_lane, connector_}))
            key->let_go();
        else
            wanted_keys_.push_back(*key);
    }
}

/// Another endpoint may ask for them.
void Endpoint::forget_keys() {
    while (RemoteKey* key = wanted_keys_.pop_front()) {
        key->question_ended();
        key->let_go();
    }
}

void Endpoint::forget_program() {
    worker.requests().forget(this);
}

bool Endpoint::work_slowly() {
    if (!wanted_keys_.empty() && lane_.state == EpState::kReady)
        ask_for_keys();
    if (queue_.take_stall()) {
        queue_.run();
        if (stripes_ != nullptr)
            stripes_->drain();
    }
    return connector_.work() && !queue_.is_stalled() && wanted_keys_.empty();
}

void Endpoint::begin_anew() {
    disconnect();
    stripes_.reset();
    lane_.state = EpState::kConnecting;
    closing_.begin_anew();
    lane_.eager_is_paused = lane_.is_paused = false;
    budget.begin_anew();
    queue_.clear_controls();
    announced.begin_anew();
    window_.begin_anew();
    eager_.begin_anew();
    rndv_.begin_anew();
    rndv_receiver_.learning().begin_anew();
    rma.begin_anew();
    rma_target.clear();
    forget_keys();
    update_direct();
    connector_.begin_anew();
}

void Endpoint::stop_sending() {
    if (lane_.ep == nullptr)
        return;
    uct_ep_pending_purge(
        lane_.ep, [](uct_pending_req_t*, void*) {}, nullptr);
    queue_.disarm();
}

uct_ep_h Endpoint::take_lane() {
    stop_sending();
    worker.awaited.forget(*this);
    connector_.forget(lane_.ep);
    worker.peers().map_lane(lane_.ep, nullptr);
    return std::exchange(lane_.ep, nullptr);
}

void Endpoint::disconnect() {
    worker.awaited.forget(*this);
    if (stripes_ != nullptr)
        stripes_->disconnect();
    if (const uct_ep_h lane = std::exchange(lane_.ep, nullptr)) {
        connector_.forget(lane);
        connector_.destroy_ep(lane);
    }
    connector_.disconnect();
    queue_.disarm();
}

bool Endpoint::has_no_work() const {
    return needs_no_peer() && flushes_.is_empty();
}

bool Endpoint::needs_no_peer() const {
    return outstanding_count(*this) == 0 && receiving.empty() && !queue_.has_operations() &&
           !flushes_.await_peer();
}

void Endpoint::fail(ucs_status_t status) {
    if (lane_.state == EpState::kFailed)
        return;
    // The transport may see that the peer has gone before this side acts upon its farewell. One
    // that has closed may go once it has the answer to that, or behind its Bye, whatever it had
    // under way: where nothing of ours is, nothing is lost here. Its farewell is not waited for: it
    // may be lost with what its transports had under way.
    if (closing_.may_be_left() && needs_no_peer() && status != UCS_ERR_CANCELED)
        status = UCS_ERR_NOT_CONNECTED;
    else if (closing_.farewell != UCS_OK && status != UCS_ERR_CANCELED)
        status = closing_.farewell;
    const Walk walk(worker.attention());
    lane_.failure = status;
    log_failure(*this);
    lane_.state = EpState::kFailed;
    // Another one may have taken its place when it had left; its receives go on.
    const bool is_last = worker.peers().endpoint_to(peer_id) == this;
    worker.peers().detach(*this);
    if (tx.contexts != nullptr)
        tx.contexts->fail(status);
    update_direct();
    disconnect();
    queue_.clear_controls();
    connector_.clear();
    queue_.clear_data();
    rma_target.clear();
    forget_keys();
    // The worker that a transmit context is of has a connection of its own, whose end counts.
    worker.receiver().drop_incoming(*this, status, is_last && !is_to_tx_context(*this));
    worker.peers().release_id(*this);
    while (Request* request = receiving.front())
        worker.finish_drained(*request, status);
    for (RequestList& list : outstanding)
        while (Request* request = list.front())
            worker.finish_drained(*request, status);
    const auto end = [&](Request& request) {
        worker.finish(request, request.kind == RequestKind::kClose ? close_failure() : status);
    };
    while (Request* request = flushes_.pop())
        end(*request);
    while (Request* request = queue_.pop())
        end(*request);
    worker.peers().report_failure(*this, status);
}

std::string Endpoint::description() const {
    const char* connecting = connector_.is_offering() ? "offering" : "greeting";
    std::string text = lane_.state == EpState::kReady    ? "ready"
                       : lane_.state == EpState::kFailed ? "failed"
                                                         : connecting;
    if (lane_.state == EpState::kReady)
        text += fmt::format(" over {}", lane_.over->transport());
    if (stripes_ != nullptr && stripes_->ready() > 0)
        text += fmt::format(", long messages over {} more rails", stripes_->ready());
    text += closing_.description();
    if (lane_.is_paused || lane_.eager_is_paused)
        text += lane_.is_paused ? ", all messages paused by the peer"
                                : ", eager data paused by the peer";
    for (const auto& [number, what] : {std::pair{queue_.operations(), "waiting"},
                                       {outstanding_count(*this), "outstanding"},
                                       {receiving.size(), "being received"},
                                       {flushes_.size(), "flushes"},
                                       {queue_.controls(), "control messages to send"}}) {
        if (number > 0)
            text += fmt::format(", {} {}", number, what);
    }
    return text;
}

void Endpoint::check() {
    const uct_ep_h asked = lane_.ep != nullptr ? lane_.ep : connector_.contact_ep();
    const Rail* rail = lane_.ep != nullptr ? lane_.over : connector_.contact_rail();
    if (asked == nullptr || (rail->attr().cap.flags & UCT_IFACE_FLAG_EP_CHECK) == 0)
        return;
    const ucs_status_t status = uct_ep_check(asked, 0, nullptr);
    if (status < 0 && status != UCS_ERR_NO_RESOURCE && !connector_.contact_elsewhere(asked, status))
        fail(status);
}

}  // namespace tagwire::proto
