// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/worker/peer_table.hpp"

#include <new>
#include <utility>

#include "protocols/eager/receiver.hpp"
#include "protocols/offload/device_tags.hpp"
#include "protocols/transfer/stripe.hpp"
#include "protocols/worker/endpoint.hpp"
#include "protocols/worker/tx_contexts.hpp"
#include "protocols/worker/worker_core.hpp"
#include "ucs/log/log.hpp"
#include "ucs/time/clock.hpp"

namespace tagwire::proto {

Endpoint* PeerTable::endpoint_to(std::uint64_t peer_id) const {
    const auto found = endpoints_.find(peer_id);
    return found == endpoints_.end() ? nullptr : found->second.get();
}

/// Peers that a message is kept of, or that the program has an endpoint to, are in use.
void PeerTable::find_used(UsedSources& used) const {
    const auto is_used = [&](const Endpoint& ep) {
        used.sources.insert(ep.source);
        if (is_to_tx_context(ep))
            used.sources.insert(records_.known_source(ep.peer_id));
    };
    for (const auto& [id, ep] : endpoints_)
        is_used(*ep);
    for (const auto& [ep, owned] : detached_)
        is_used(*ep);
    for (const bool is_tagged : {false, true}) {
        MatchSpace& in = worker_.space(is_tagged);
        for (const UnexpectedMessage* at = in.unexpected.oldest(); at != nullptr; at = at->newer) {
            used.sources.insert(at->source);
            ++used.messages;
        }
    }
}

Endpoint* PeerTable::make_endpoint(std::uint64_t peer_id, std::uint64_t worker_id) {
    auto owned = std::make_unique<Endpoint>(worker_, peer_id, worker_id);
    owned->id = worker_.endpoints().add(*owned);
    if (owned->id == 0)
        return nullptr;
    records_.source_of(peer_id);
    Endpoint* ep = (endpoints_[peer_id] = std::move(owned)).get();
    ep->source = records_.source_of(worker_id);
    return ep;
}

ucs_status_t PeerTable::connect(const Address& address, unsigned flags, void* user_data,
                                Endpoint** ep_p) {
    Endpoint* ep = endpoint_to(address.id);
    if (ep != nullptr && ep->closing().is_open())
        return UCS_ERR_ALREADY_EXISTS;
    // One that has left is the past; its destruction follows.
    if (ep != nullptr && ep->closing().has_left()) {
        detach(*ep);
        ep = nullptr;
    }
    if (ep == nullptr) {
        ep = make_endpoint(address.id, address.id);
        if (ep == nullptr)
            return UCS_ERR_NO_MEMORY;
        std::string why;
        ucs_status_t status = UCS_ERR_NO_MEMORY;
        try {
            status = ep->connector().contact(address, &why);
        } catch (const std::bad_alloc&) {
            why = "now";  // the reason took memory, too
        }
        if (status != UCS_OK) {
            log_unreachable(address.id, why);
            destroy(*ep);
            return status;
        }
    }
    ep->closing().open(user_data);
    ucs_status_t status = UCS_OK;
    if (worker_.tx_contexts() != nullptr && (flags & TW_EP_ORDERED) == 0) {
        try {
            status = worker_.tx_contexts()->add(*ep);
        } catch (const std::bad_alloc&) {
            status = UCS_ERR_NO_MEMORY;
        }
    }
    if (status != UCS_OK)
        close(*ep);
    else
        *ep_p = ep;
    return status;
}

bool PeerTable::is_engaged(std::uint64_t worker_id) const {
    Endpoint* const ep = endpoint_to(worker_id);
    return ep != nullptr && worker_id != worker_.id() &&
           (ep->closing().is_closing() || !ep->closing().peer_is_closed());
}

/// The program's endpoint fails, so that it hears of the end, and closes that one. The peer hears
/// of it by the hello of the next one.
void PeerTable::end_left(std::uint64_t worker_id, bool is_asked) {
    Endpoint* ep = endpoint_to(worker_id);
    if (ep == nullptr || worker_id == worker_.id() || ep->closing().is_closing())
        return;
    const bool was_left = is_asked ? ep->closing().peer_is_closed() : ep->closing().is_closed();
    if (!was_left || ep->closing().has_left())
        return;
    if (!ep->closing().is_open())
        tell_end(*ep, UCS_OK);
    ep->fail(UCS_ERR_NOT_CONNECTED);
}

/// A program that tries again and again gets the status each time, the log has the reason once.
void PeerTable::log_unreachable(std::uint64_t worker_id, const std::string& why) {
    if (std::exchange(unreachable_, worker_id) == worker_id)
        TW_LOG_DEBUG("worker %016lx cannot be reached %s", worker_id, why.c_str());
    else
        TW_LOG_WARN("worker %016lx cannot be reached %s", worker_id, why.c_str());
}

ucs_status_t PeerTable::open_tx(Endpoint& front, TxPart& part) {
    Endpoint* ep = endpoint_to(front.worker_id);
    if (ep != nullptr && ep->closing().has_left()) {
        detach(*ep);
        ep = nullptr;
    }
    if (ep == nullptr)
        ep = make_endpoint(front.worker_id, front.worker_id);
    if (ep == nullptr)
        return UCS_ERR_NO_MEMORY;
    TW_ASSERT(!ep->closing().is_open());
    ep->tx.front = &front;
    ep->tx.part = &part;
    ep->closing().open(nullptr);
    part.ep = ep;
    return UCS_OK;
}

ucs_status_t PeerTable::connect_to(std::uint64_t worker_id, void* user_data, Endpoint** ep_p) {
    Endpoint* ep = endpoint_to(worker_id);
    if (ep == nullptr)
        return UCS_ERR_NO_ELEM;
    const Address address = ep->connector().address();
    return connect(address, 0, user_data, ep_p);
}

/// Messages of its peer find no endpoint from now on.
void PeerTable::release_id(Endpoint& ep) {
    if (worker_.endpoints().find(ep.id) != &ep)
        return;
    worker_.endpoints().remove(ep.id);
    if (worker_.device_tags() != nullptr)
        worker_.device_tags()->gone(ep);
}

void PeerTable::retire_id(const Endpoint& ep) {
    if (ep.peer_names != 0)
        records_.retire(ep.peer_id, ep.peer_names);
}

/// The endpoint is the program's, and its connection has gone: it makes a new one. Messages that it
/// was receiving, which the peer had sent before it went, do not arrive.
void PeerTable::reconnect(Endpoint& ep) {
    tell_end(ep, UCS_OK);
    retire_id(ep);
    release_id(ep);
    worker_.receiver().drop_incoming(ep, UCS_ERR_CONNECTION_RESET, false);
    while (Request* request = ep.receiving.front())
        worker_.finish(*request, UCS_ERR_CONNECTION_RESET);
    if (ep.failure() != UCS_OK)
        return;  // a callback has closed it
    ep.id = worker_.endpoints().add(ep);
    if (ep.id == 0)
        return ep.fail(UCS_ERR_NO_MEMORY);
    ep.begin_anew();
}

bool PeerTable::on_hello(std::uint64_t from, HelloMessage message) {
    const Hello& hello = message.hello;
    // Connections of one peer may overtake each other on their way, and a hello that was repeated
    // may come when its connection is over.
    Endpoint* ep = endpoint_to(from);
    // It is of that worker for ever.
    if (ep != nullptr && ep->worker_id != (hello.tx_context == 0 ? from : hello.worker))
        return false;
    // Our own one may be of an endpoint that was closed before it came: nobody has that name.
    if (from == worker_.id() && (ep == nullptr || hello.id != ep->id))
        return true;
    const bool is_current = ep != nullptr && (ep->peer_names == hello.id ||
                                              (ep->peer_names == 0 && hello.known == ep->id));
    if (!records_.admit(from, hello, is_current))
        return true;
    if (ep != nullptr && ep->peer_names == 0 && ep->id == hello.retired_id) {
        reconnect(*ep);
        ep = endpoint_to(from);
    }
    if (ep != nullptr && ep->peer_names != 0 && ep->peer_names != hello.id) {
        // The peer has begun anew: what it had with us before has ended.
        if (ep->closing().has_asked()) {
            ep->closing().on_left(true);
        } else if (ep->closing().is_closed() && ep->is_quiet()) {
            tell_end(*ep, UCS_OK);
            ep->fail(UCS_ERR_NOT_CONNECTED);
        } else {
            ep->fail(UCS_ERR_CONNECTION_RESET);
        }
        ep = endpoint_to(from);
    }
    // It answers an endpoint of ours that is over. Any other in its place would be news to the
    // peer, which would answer in its turn that what it has just made is over, and so on without
    // end. The peer hears of the end by a first hello of ours.
    const bool is_late = hello.known != 0 && (ep == nullptr || ep->id != hello.known);
    if (is_late && ep != nullptr && ep->peer_names == 0)
        return true;  // that hello is on its way
    const bool is_made = ep == nullptr;
    const bool is_refused = is_made && unasked_ >= worker_.options().unasked_peers_max;
    if (is_refused && !may_be_refused(from))
        return false;
    if (is_made &&
        (ep = make_endpoint(from, hello.tx_context == 0 ? from : hello.worker)) == nullptr)
        return false;
    if (is_made)
        note_unasked(*ep);
    if (!is_late || !is_made) {
        ep->connector().on_hello(hello, std::move(message.rails));
        if (is_refused)
            refuse_in_progress(*ep);
        return true;
    }
    ep->connector().greet(hello, std::move(message.rails));
    if (ep->failure() == UCS_OK)
        ep->closing().closed();  // no program has asked for it
    return true;
}

/// One peer more than the worker takes: it connects, and hears that it has to go. False: there are
/// many such, which hear nothing; a flood has no more effect than that.
bool PeerTable::may_be_refused(std::uint64_t from) {
    TW_LOG_REPEATED(ucs::LogLevel::kWarn, refused_.due("unasked"),
                    "worker %016lx is refused: the program has no endpoint to %zu of its peers, "
                    "and TAGWIRE_UNASKED_PEERS_MAX=%lu",
                    from, unasked_, worker_.options().unasked_peers_max);
    return refusals_ < kRefusalsMax;
}

void PeerTable::refuse_in_progress(Endpoint& ep) {
    if (ep.failure() != UCS_OK)
        return;
    endings_.push_back(
        {ep.peer_id, ep.peer_names, UCS_ERR_CANCELED, 0, ucs::clock_now_ns() + kRefusalNs, false});
    ++refusals_;
    worker_.ask_slow_work();
}

void PeerTable::note_unasked(Endpoint& ep) {
    ep.marks.is_unasked = true;
    ++unasked_;
}

void PeerTable::asked(Endpoint& ep) {
    if (std::exchange(ep.marks.is_unasked, false))
        --unasked_;
}

void PeerTable::connection_is_over(Endpoint& ep, std::uint32_t number, ucs_status_t status) {
    records_.note_over(ep.peer_id, number);
    if (ep.closing().has_asked())
        return ep.closing().on_left(true);
    if (ep.peer_names == 0)
        return reconnect(ep);
    ep.closing().farewell = status;
    end_in_progress(ep, status);
}

/// The peer has gone. Earlier events of its transports are seen first: the arrival of a message may
/// be reported after a later message of the peer, or after the end of another transport.
void PeerTable::end_in_progress(Endpoint& ep, ucs_status_t status) {
    endings_.push_back({ep.peer_id, ep.peer_names, status, kPassesToEnd, 0, false});
    worker_.ask_slow_work();
}

/// A peer that is refused is told by its lane, which goes when the message has got through. If the
/// program has asked for it meanwhile it stays.
bool PeerTable::is_due(Ending& ending) {
    if (ending.refused_until == 0)
        return --ending.passes == 0;
    Endpoint* const ep = endpoint_to(ending.peer_id);
    if (ep == nullptr || ep->peer_names != ending.peer_names || ep->closing().is_open())
        return true;
    if (ep->state() == EpState::kReady) {
        ending.is_told = ending.is_told || ep->closing().say_reset(false);
        const ucs_status_t flushed = uct_ep_flush(ep->lane(), UCT_FLUSH_FLAG_LOCAL, nullptr);
        if (ending.is_told && flushed != UCS_INPROGRESS && flushed != UCS_ERR_NO_RESOURCE)
            return true;
    }
    return ucs::clock_now_ns() >= ending.refused_until;
}

unsigned PeerTable::end_connections() {
    ucs::ReserveVector<Ending> due;
    std::erase_if(endings_, [&](Ending& ending) {
        if (!is_due(ending))
            return false;
        due.push_back(ending);
        return true;
    });
    if (!endings_.empty())
        worker_.ask_slow_work();
    for (const Ending& ending : due) {
        Endpoint* const ep = endpoint_to(ending.peer_id);
        const bool is_refusal = ending.refused_until != 0;
        refusals_ -= is_refusal ? 1 : 0;
        if (ep != nullptr && ep->peer_names == ending.peer_names &&
            !(is_refusal && ep->closing().is_open()))
            ep->fail(ending.status);
    }
    return static_cast<unsigned>(due.size());
}

/// Another endpoint to the same worker may be made.
void PeerTable::detach(Endpoint& ep) {
    retire_id(ep);
    const auto found = endpoints_.find(ep.peer_id);
    if (found != endpoints_.end() && found->second.get() == &ep) {
        detached_.emplace(&ep, std::move(found->second));
        endpoints_.erase(found);
    }
}

void PeerTable::map_lane(uct_ep_h lane, Endpoint* ep) {
    if (ep != nullptr) {
        lanes_[lane] = ep;
    } else {
        lanes_.erase(lane);
        std::erase_if(lane_failures_, [&](const auto& failure) { return failure.lane == lane; });
    }
}

/// The transport may see it in any call, in arm() for instance; callbacks run in progress.
void PeerTable::lane_failed(uct_ep_h lane, ucs_status_t status) {
    if (!lanes_.contains(lane))
        return;
    if (worker_.is_in_progress_here())
        return fail_lane({lane, status});
    lane_failures_.push_back({lane, status});
    worker_.ask_slow_work();
}

void PeerTable::fail_lane(const LaneFailure& failure) {
    const auto found = lanes_.find(failure.lane);
    if (found == lanes_.end())
        return;  // it has gone meanwhile
    Endpoint& ep = *found->second;
    if (Stripes* stripes = ep.chosen_stripes();
        stripes != nullptr && stripes->lane_failed(failure.lane, failure.status))
        return;
    if (ep.connector().contact_elsewhere(failure.lane, failure.status))
        return;
    // Not what its messages go by: what took first contact.
    if (ep.state() == EpState::kReady && failure.lane != ep.lane())
        return end_in_progress(ep, failure.status);
    ep.fail(failure.status);
}

void PeerTable::ask_wireup(Endpoint& ep) {
    worker_.ask_slow_work();
    if (!std::exchange(ep.marks.wants_wireup, true))
        wireup_.push_back(&ep);
}

void PeerTable::report_failure(Endpoint& ep, ucs_status_t status) {
    if (!ep.closing().is_open() || ep.closing().is_closing()) {
        ep.closing().lose();
        retire(ep);
    } else if (ep.tx.front != nullptr) {
        worker_.own_tx->has_failed(ep, status);
    } else if (!worker_.requests().is_silent()) {
        notices_.add_failure(ep, static_cast<tw_status_t>(status),
                             worker_.requests().told_and_deferred());
        worker_.ask_slow_work();
    }
    tell_end(ep, status);
}

void PeerTable::tell_up(Endpoint& ep) {
    // The program sees nothing of transmit contexts.
    const bool is_own = is_to_tx_context(ep) || ep.worker_id == worker_.id();
    if (is_own || std::exchange(ep.marks.is_up, true))
        return;
    notices_.add_event(ep.worker_id, TW_PEER_UP, TW_OK, worker_.requests().told_and_deferred());
    worker_.ask_slow_work();
}

void PeerTable::tell_event(const Endpoint& ep, tw_peer_event_t event) {
    if (!ep.marks.is_up)
        return;
    notices_.add_event(ep.worker_id, event, TW_OK, worker_.requests().told_and_deferred());
    worker_.ask_slow_work();
}

void PeerTable::tell_end(Endpoint& ep, ucs_status_t status) {
    if (!std::exchange(ep.marks.is_up, false) || worker_.requests().is_silent())
        return;
    const bool is_in_order =
        status == UCS_OK || status == UCS_ERR_NOT_CONNECTED || status == UCS_ERR_CANCELED;
    notices_.add_event(ep.worker_id, is_in_order ? TW_PEER_CLOSED : TW_PEER_FAILED,
                       static_cast<tw_status_t>(status), worker_.requests().told_and_deferred());
    worker_.ask_slow_work();
}

void PeerTable::close(Endpoint& ep) {
    ep.closing().lose();
    ep.closing().end(UCS_ERR_CANCELED);
    retire(ep);
}

void PeerTable::tell_anew(Endpoint& closed) {
    if (endpoint_to(closed.peer_id) != nullptr)
        return;  // a callback has made that connection
    Endpoint* ep = make_endpoint(closed.peer_id, closed.worker_id);
    if (ep == nullptr) {
        TW_LOG_WARN("worker %016lx does not hear that its connection was closed: out of memory",
                    closed.worker_id);
        return;
    }
    note_unasked(*ep);
    ep->connector().begin(closed.connector().address());
    if (ep->failure() == UCS_OK)
        ep->closing().closed();
}

void PeerTable::retire(Endpoint& ep) {
    worker_.ask_slow_work();
    if (!std::exchange(ep.marks.is_retired, true))
        retired_.push_back(&ep);
}

unsigned PeerTable::destroy_retired() {
    ucs::ReserveVector<Endpoint*> candidates;
    candidates.swap(retired_);
    if (candidates.empty())
        return 0;
    ucs::ReserveHashSet<const Endpoint*> awaited;  // by callbacks that are to be told of ends
    worker_.requests().visit_deferred([&](const Request& told) { awaited.insert(told.ep); });
    unsigned count = 0;
    for (Endpoint* ep : candidates) {
        ep->marks.is_retired = false;
        if (awaited.contains(ep)) {
            retire(*ep);  // callbacks that are told of its ends may still ask for it
        } else if (ep->closing().leave()) {
            destroy(*ep);
            ++count;
        }
    }
    return count;
}

void PeerTable::destroy(Endpoint& ep) {
    tell_end(ep, UCS_OK);
    notices_.drop(ep);
    asked(ep);
    worker_.detach_draining(ep);
    const bool is_last = endpoint_to(ep.peer_id) == &ep;
    detach(ep);  // what the ends of its receives call may make another one
    if (ep.failure() == UCS_OK)
        worker_.receiver().drop_incoming(ep, UCS_ERR_CANCELED, is_last && !is_to_tx_context(ep));
    if (ep.marks.wants_wireup)
        std::erase(wireup_, &ep);
    if (ep.marks.is_retired)
        std::erase(retired_, &ep);
    release_id(ep);
    if (ep.tx.part != nullptr)
        ep.tx.part->ep = nullptr;
    detached_.erase(&ep);
}

void PeerTable::linger(uct_ep_h lane) {
    lingering_.add(lane, ucs::clock_now_ns());
    worker_.ask_slow_work();
}

bool PeerTable::destroy_arrived() {
    if (lingering_.empty()) [[likely]]
        return false;
    lingering_.destroy_arrived(ucs::clock_now_ns());
    if (!lingering_.empty())
        worker_.ask_slow_work();
    return !lingering_.empty();
}

void PeerTable::clear() {
    lingering_.clear();
    endpoints_.clear();
    detached_.clear();
}

// ---- Slow work of progress

unsigned PeerTable::fail_lanes() {
    unsigned count = 0;
    for (const LaneFailure& failure : std::exchange(lane_failures_, {})) {
        fail_lane(failure);
        ++count;
    }
    return count;
}

unsigned PeerTable::run_notices() {
    RequestTable& requests = worker_.requests();
    const unsigned told = notices_.empty() ? 0 : notices_.run(requests.told());
    if (notices_.is_due(requests.told()))
        worker_.ask_slow_work();
    return told;
}

void PeerTable::run_wireup() {
    ucs::ReserveVector<Endpoint*> asked;
    asked.swap(wireup_);
    for (Endpoint* ep : asked) {
        ep->marks.wants_wireup = false;
        if (!ep->work_slowly())
            ask_wireup(*ep);
    }
}

}  // namespace tagwire::proto
