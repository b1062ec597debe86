// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/worker/peer_table.hpp"

#include <new>
#include <utility>

#include "ucs/log/log.hpp"
#include "ucs/time/clock.hpp"

namespace tagwire::proto {

PeerEndpoint* PeerTable::endpoint_to(std::uint64_t peer_id) const {
    const auto found = endpoints_.find(peer_id);
    return found == endpoints_.end() ? nullptr : found->second.get();
}

tw_ep_h PeerTable::handle_to(std::uint64_t peer_id) const {
    PeerEndpoint* ep = endpoint_to(peer_id);
    if (ep != nullptr && is_to_tx_context(*ep))
        ep = endpoint_to(ep->worker_id);
    return ep == nullptr ? nullptr : ep->own_handle();
}

/// Peers that a message is kept of, or that the program has an endpoint to, are in use.
void PeerTable::find_used(UsedSources& used) const {
    const auto is_used = [&](const PeerEndpoint& ep) {
        used.sources.insert(ep.source);
        if (is_to_tx_context(ep))
            used.sources.insert(records_.known_source(ep.peer_id));
    };
    for (const auto& [id, ep] : endpoints_)
        is_used(*ep);
    for (const auto& [ep, owned] : detached_)
        is_used(*ep);
    for (const bool is_tagged : {false, true}) {
        MatchSpace& in = to_.matches.space(is_tagged);
        for (const UnexpectedMessage* at = in.unexpected.oldest(); at != nullptr; at = at->newer) {
            used.sources.insert(at->source);
            ++used.messages;
        }
    }
}

PeerEndpoint* PeerTable::make_endpoint(std::uint64_t peer_id, std::uint64_t worker_id) {
    Owned owned(to_.calls.make(to_.owner, peer_id, worker_id), {to_.calls.destroy});
    owned->id = to_.calls.add_id(to_.owner, *owned);
    if (owned->id == 0)
        return nullptr;
    records_.source_of(peer_id);
    PeerEndpoint* ep = (endpoints_[peer_id] = std::move(owned)).get();
    ep->source = records_.source_of(worker_id);
    return ep;
}

/// One that has left is the past; its destruction follows.
PeerEndpoint* PeerTable::present(std::uint64_t peer_id) {
    PeerEndpoint* ep = endpoint_to(peer_id);
    if (ep == nullptr || !ep->closing().has_left())
        return ep;
    detach(*ep);
    return nullptr;
}

PeerEndpoint* PeerTable::found_or_made(std::uint64_t worker_id) {
    PeerEndpoint* ep = present(worker_id);
    return ep == nullptr ? make_endpoint(worker_id, worker_id) : ep;
}

ucs_status_t PeerTable::connect(const Address& address, unsigned flags, void* user_data,
                                PeerEndpoint** ep_p) {
    PeerEndpoint* ep = endpoint_to(address.id);
    if (ep != nullptr && ep->closing().is_open())
        return UCS_ERR_ALREADY_EXISTS;
    ep = present(address.id);
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
    const ucs_status_t status = to_.calls.open_contexts(to_.owner, *ep, flags);
    if (status != UCS_OK)
        close(*ep);
    else
        *ep_p = ep;
    return status;
}

bool PeerTable::is_engaged(std::uint64_t worker_id) const {
    PeerEndpoint* const ep = endpoint_to(worker_id);
    return ep != nullptr && worker_id != to_.id &&
           (ep->closing().is_closing() || !ep->closing().peer_is_closed());
}

/// The program's endpoint fails, so that it hears of the end, and closes that one. The peer hears
/// of it by the hello of the next one.
void PeerTable::end_left(std::uint64_t worker_id, bool is_asked) {
    PeerEndpoint* ep = endpoint_to(worker_id);
    if (ep == nullptr || worker_id == to_.id || ep->closing().is_closing())
        return;
    const bool was_left = is_asked ? ep->closing().peer_is_closed() : ep->closing().is_closed();
    if (!was_left || ep->closing().has_left())
        return;
    if (!ep->closing().is_open())
        tell_end(*ep, UCS_OK);
    ep->lane.fail(UCS_ERR_NOT_CONNECTED);
}

/// A program that tries again and again gets the status each time, the log has the reason once.
void PeerTable::log_unreachable(std::uint64_t worker_id, const std::string& why) {
    if (std::exchange(unreachable_, worker_id) == worker_id)
        TW_LOG_DEBUG("worker %016lx cannot be reached %s", worker_id, why.c_str());
    else
        TW_LOG_WARN("worker %016lx cannot be reached %s", worker_id, why.c_str());
}

ucs_status_t PeerTable::connect_to(std::uint64_t worker_id, void* user_data, PeerEndpoint** ep_p) {
    PeerEndpoint* ep = endpoint_to(worker_id);
    if (ep == nullptr)
        return UCS_ERR_NO_ELEM;
    const Address address = ep->connector().address();
    return connect(address, 0, user_data, ep_p);
}

void PeerTable::retire_id(const PeerEndpoint& ep) {
    if (ep.peer_names != 0)
        records_.retire(ep.peer_id, ep.peer_names);
}

/// The endpoint is the program's, and its connection has gone: it makes a new one. Messages that it
/// was receiving, which the peer had sent before it went, do not arrive.
void PeerTable::reconnect(PeerEndpoint& ep) {
    tell_end(ep, UCS_OK);
    retire_id(ep);
    release_id(ep);
    to_.calls.drop_incoming(to_.owner, ep, UCS_ERR_CONNECTION_RESET, false);
    to_.calls.end_receives(to_.owner, ep, UCS_ERR_CONNECTION_RESET);
    if (ep.lane.failure() != UCS_OK)
        return;  // a callback has closed it
    ep.id = to_.calls.add_id(to_.owner, ep);
    if (ep.id == 0)
        return ep.lane.fail(UCS_ERR_NO_MEMORY);
    to_.calls.begin_anew(ep);
}

bool PeerTable::on_hello(std::uint64_t from, HelloMessage message) {
    const Hello& hello = message.hello;
    // Connections of one peer may overtake each other on their way, and a hello that was repeated
    // may come when its connection is over.
    PeerEndpoint* ep = endpoint_to(from);
    // It is of that worker for ever.
    if (ep != nullptr && ep->worker_id != (hello.tx_context == 0 ? from : hello.worker))
        return false;
    // Our own one may be of an endpoint that was closed before it came: nobody has that name.
    if (from == to_.id && (ep == nullptr || hello.id != ep->id))
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
        } else if (ep->closing().is_closed() && ep->lane.is_quiet()) {
            tell_end(*ep, UCS_OK);
            ep->lane.fail(UCS_ERR_NOT_CONNECTED);
        } else {
            ep->lane.fail(UCS_ERR_CONNECTION_RESET);
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
    const bool is_refused = is_made && unasked_ >= to_.options.unasked_peers_max;
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
    if (ep->lane.failure() == UCS_OK)
        ep->closing().closed();  // no program has asked for it
    return true;
}

/// One peer more than the worker takes: it connects, and hears that it has to go. False: there are
/// many such, which hear nothing; a flood has no more effect than that.
bool PeerTable::may_be_refused(std::uint64_t from) {
    TW_LOG_REPEATED(ucs::LogLevel::kWarn, refused_.due("unasked"),
                    "worker %016lx is refused: the program has no endpoint to %zu of its peers, "
                    "and TAGWIRE_UNASKED_PEERS_MAX=%lu",
                    from, unasked_, to_.options.unasked_peers_max);
    return refusals_ < kRefusalsMax;
}

void PeerTable::refuse_in_progress(PeerEndpoint& ep) {
    if (ep.lane.failure() != UCS_OK)
        return;
    endings_.push_back(
        {ep.peer_id, ep.peer_names, UCS_ERR_CANCELED, 0, ucs::clock_now_ns() + kRefusalNs, false});
    ++refusals_;
    to_.attention.ask_slow_work();
}

void PeerTable::note_unasked(PeerEndpoint& ep) {
    ep.marks.is_unasked = true;
    ++unasked_;
}

void PeerTable::asked(PeerEndpoint& ep) {
    if (std::exchange(ep.marks.is_unasked, false))
        --unasked_;
}

void PeerTable::connection_is_over(PeerEndpoint& ep, std::uint32_t number, ucs_status_t status) {
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
void PeerTable::end_in_progress(PeerEndpoint& ep, ucs_status_t status) {
    endings_.push_back({ep.peer_id, ep.peer_names, status, kPassesToEnd, 0, false});
    to_.attention.ask_slow_work();
}

/// A peer that is refused is told by its lane, which goes when the message has got through. If the
/// program has asked for it meanwhile it stays.
bool PeerTable::is_due(Ending& ending) {
    if (ending.refused_until == 0)
        return --ending.passes == 0;
    PeerEndpoint* const ep = endpoint_to(ending.peer_id);
    if (ep == nullptr || ep->peer_names != ending.peer_names || ep->closing().is_open())
        return true;
    if (ep->lane.state() == EpState::kReady) {
        ending.is_told = ending.is_told || ep->closing().say_reset(false);
        const ucs_status_t flushed = ep->lane.flush();
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
        to_.attention.ask_slow_work();
    for (const Ending& ending : due) {
        PeerEndpoint* const ep = endpoint_to(ending.peer_id);
        const bool is_refusal = ending.refused_until != 0;
        refusals_ -= is_refusal ? 1 : 0;
        if (ep != nullptr && ep->peer_names == ending.peer_names &&
            !(is_refusal && ep->closing().is_open()))
            ep->lane.fail(ending.status);
    }
    return static_cast<unsigned>(due.size());
}

/// Another endpoint to the same worker may be made.
void PeerTable::detach(PeerEndpoint& ep) {
    retire_id(ep);
    const auto found = endpoints_.find(ep.peer_id);
    if (found != endpoints_.end() && found->second.get() == &ep) {
        detached_.emplace(&ep, std::move(found->second));
        endpoints_.erase(found);
    }
}

void PeerTable::map_lane(uct_ep_h lane, PeerEndpoint* ep) {
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
    if (to_.attention.is_in_progress_here())
        return fail_lane({lane, status});
    lane_failures_.push_back({lane, status});
    to_.attention.ask_slow_work();
}

void PeerTable::fail_lane(const LaneFailure& failure) {
    const auto found = lanes_.find(failure.lane);
    if (found == lanes_.end())
        return;  // it has gone meanwhile
    PeerEndpoint& ep = *found->second;
    if (to_.calls.stripe_failed(ep, failure.lane, failure.status) ||
        ep.connector().contact_elsewhere(failure.lane, failure.status))
        return;
    // Not what its messages go by: what took first contact.
    if (ep.lane.state() == EpState::kReady && failure.lane != ep.lane.lane())
        return end_in_progress(ep, failure.status);
    ep.lane.fail(failure.status);
}

void PeerTable::ask_wireup(PeerEndpoint& ep) {
    to_.attention.ask_slow_work();
    if (!std::exchange(ep.marks.wants_wireup, true))
        wireup_.push_back(&ep);
}

void PeerTable::report_failure(PeerEndpoint& ep, ucs_status_t status) {
    if (!ep.closing().is_open() || ep.closing().is_closing()) {
        ep.closing().lose();
        retire(ep);
    } else if (!to_.calls.fail_front(to_.owner, ep, status) && !to_.requests.is_silent()) {
        notices_.add_failure(ep, static_cast<tw_status_t>(status),
                             to_.requests.told_and_deferred());
        to_.attention.ask_slow_work();
    }
    tell_end(ep, status);
}

void PeerTable::tell_up(PeerEndpoint& ep) {
    // The program sees nothing of transmit contexts.
    const bool is_own = is_to_tx_context(ep) || ep.worker_id == to_.id;
    if (is_own || std::exchange(ep.marks.is_up, true))
        return;
    notices_.add_event(ep.worker_id, TW_PEER_UP, TW_OK, to_.requests.told_and_deferred());
    to_.attention.ask_slow_work();
}

void PeerTable::tell_event(const PeerEndpoint& ep, tw_peer_event_t event) {
    if (!ep.marks.is_up)
        return;
    notices_.add_event(ep.worker_id, event, TW_OK, to_.requests.told_and_deferred());
    to_.attention.ask_slow_work();
}

void PeerTable::tell_end(PeerEndpoint& ep, ucs_status_t status) {
    if (to_.calls.ended != nullptr && !is_to_tx_context(ep) && !to_.requests.is_silent())
        to_.calls.ended(to_.owner, ep.worker_id, status);
    if (!std::exchange(ep.marks.is_up, false) || to_.requests.is_silent())
        return;
    const bool is_in_order =
        status == UCS_OK || status == UCS_ERR_NOT_CONNECTED || status == UCS_ERR_CANCELED;
    notices_.add_event(ep.worker_id, is_in_order ? TW_PEER_CLOSED : TW_PEER_FAILED,
                       static_cast<tw_status_t>(status), to_.requests.told_and_deferred());
    to_.attention.ask_slow_work();
}

void PeerTable::close(PeerEndpoint& ep) {
    ep.closing().lose();
    ep.closing().end(UCS_ERR_CANCELED);
    retire(ep);
}

void PeerTable::tell_anew(PeerEndpoint& closed) {
    if (endpoint_to(closed.peer_id) != nullptr)
        return;  // a callback has made that connection
    PeerEndpoint* ep = make_endpoint(closed.peer_id, closed.worker_id);
    if (ep == nullptr) {
        TW_LOG_WARN("worker %016lx does not hear that its connection was closed: out of memory",
                    closed.worker_id);
        return;
    }
    note_unasked(*ep);
    ep->connector().begin(closed.connector().address());
    if (ep->lane.failure() == UCS_OK)
        ep->closing().closed();
}

void PeerTable::retire(PeerEndpoint& ep) {
    to_.attention.ask_slow_work();
    if (!std::exchange(ep.marks.is_retired, true))
        retired_.push_back(&ep);
}

unsigned PeerTable::destroy_retired() {
    ucs::ReserveVector<PeerEndpoint*> candidates;
    candidates.swap(retired_);
    if (candidates.empty())
        return 0;
    ucs::ReserveHashSet<const void*> awaited;  // by callbacks that are to be told of ends
    to_.requests.visit_deferred([&](const Request& told) { awaited.insert(told.ep); });
    unsigned count = 0;
    for (PeerEndpoint* ep : candidates) {
        ep->marks.is_retired = false;
        if (awaited.contains(ep->lane.owner())) {
            retire(*ep);  // callbacks that are told of its ends may still ask for it
        } else if (ep->closing().leave()) {
            destroy(*ep);
            ++count;
        }
    }
    return count;
}

void PeerTable::destroy(PeerEndpoint& ep) {
    tell_end(ep, UCS_OK);
    notices_.drop(ep);
    asked(ep);
    const bool is_last = endpoint_to(ep.peer_id) == &ep;
    detach(ep);  // what the ends of its receives call may make another one
    if (ep.lane.failure() == UCS_OK)
        to_.calls.drop_incoming(to_.owner, ep, UCS_ERR_CANCELED, is_last && !is_to_tx_context(ep));
    if (ep.marks.wants_wireup)
        std::erase(wireup_, &ep);
    if (ep.marks.is_retired)
        std::erase(retired_, &ep);
    release_id(ep);
    detached_.erase(&ep);
}

void PeerTable::linger(uct_ep_h lane) {
    lingering_.add(lane, ucs::clock_now_ns());
    to_.attention.ask_slow_work();
}

bool PeerTable::destroy_arrived() {
    if (lingering_.empty()) [[likely]]
        return false;
    lingering_.destroy_arrived(ucs::clock_now_ns());
    if (!lingering_.empty())
        to_.attention.ask_slow_work();
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
    const RequestTable& requests = to_.requests;
    const unsigned told = notices_.empty() ? 0 : notices_.run(requests.told());
    if (notices_.is_due(requests.told()))
        to_.attention.ask_slow_work();
    return told;
}

void PeerTable::run_wireup() {
    ucs::ReserveVector<PeerEndpoint*> asked;
    asked.swap(wireup_);
    for (PeerEndpoint* ep : asked) {
        ep->marks.wants_wireup = false;
        if (!to_.calls.work(*ep))
            ask_wireup(*ep);
    }
}

}  // namespace tagwire::proto
