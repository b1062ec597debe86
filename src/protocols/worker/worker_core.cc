// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/worker/worker_core.hpp"

#include <sys/random.h>

#include <utility>

#include "protocols/offload/device_tags.hpp"
#include "protocols/transfer/transfer.hpp"
#include "protocols/wire/memory_key.hpp"
#include "protocols/worker/endpoint.hpp"
#include "protocols/worker/tx_contexts.hpp"
#include "ucs/debug/check.hpp"
#include "ucs/log/log.hpp"

namespace tagwire::proto {

namespace {

// Until tw_worker_set_limits() changes them.
constexpr std::size_t kMultiRecvBytesMin = 4096;
constexpr std::size_t kBufferedBytesLimit = std::size_t{64} << 10;
constexpr std::size_t kBufferedBytesMin = 1024;

/// It begins with the owner's bits of the context, by which keys of its memory tell their owner.
std::uint64_t random_id(const Context& context) {
    constexpr std::uint64_t kOwn = ~std::uint64_t{0} >> kOwnerBits;
    std::uint64_t id = 0;
    while ((id & kOwn) == 0)
        TW_CHECK(getrandom(&id, sizeof id, 0) == sizeof id);
    return (context.name() & ~kOwn) | (id & kOwn);
}

WorkerCore& as_core(void* owner) {
    return *static_cast<WorkerCore*>(owner);
}

/// WorkerCore::arrivals() of the worker, or of the one whose transmit context it is.
std::uint64_t arrivals_of(const WorkerCore& worker) {
    return worker.own_tx == nullptr ? worker.arrivals() : worker.own_tx->front.arrivals();
}

}  // namespace

WorkerCore::WorkerCore(Context& context, const tw_worker_params_t& params, TxContext* tx,
                       PeerTable& peers, Receiver& receiver)
    : is_multi(params.thread_mode == TW_THREAD_MULTI),
      guards(static_cast<std::uint8_t>((is_multi ? kLocked : 0) |
                                       (context.log_id() != 0 ? kHeard : 0))),
      own_tx(tx),
      limits{.multi_recv_bytes_min = kMultiRecvBytesMin,
             .buffered_bytes_limit = kBufferedBytesLimit,
             .buffered_bytes_min = kBufferedBytesMin},
      receive_path(is_multi ? ReceivePath::kLocked : ReceivePath::kFast),
      lock(is_multi),
      context_(context),
      params_(params),
      id_(random_id(context)),
      peers_(peers),
      receiver_(receiver),
      wireup_world_{.id = id_,
                    .rails = rails_,
                    .options = context.options(),
                    .counters = counters_,
                    .refusals = refusals,
                    .tx = tx == nullptr ? TxName{} : TxName{tx->number, tx->front.id()},
                    .owner = this,
                    .may_greet = [](void* owner) {
                        DeviceTags* tags = as_core(owner).device_tags();
                        return tags == nullptr || tags->may_greet();
                    }} {
    if (context.cache() != nullptr)
        leases_ = std::make_unique<RegLeases>(*context.cache());
    if (is_heard())
        attention_.set_heard();
    ++context_.users;
}

WorkerCore::~WorkerCore() {
    --context_.users;
}

constinit const WorkerCalls WorkerCore::kWorkerCalls{
    .set_outstanding =
        [](void* worker, Request& request, MatchPeer& peer) {
            as_core(worker).set_outstanding(request, static_cast<Endpoint&>(peer));
        },
    .finish = [](void* worker, Request& request,
                 ucs_status_t status) { as_core(worker).finish(request, status); },
    .cache_region = [](void* worker, const Request& request, std::size_t domain,
                       RegUse use) { return as_core(worker).cache_region(request, domain, use); },
    .arrivals =
        [](const void* worker) { return arrivals_of(*static_cast<const WorkerCore*>(worker)); },
    .drained = [](void* worker, Request& request,
                  ucs_status_t status) { as_core(worker).drained(request, status); },
};

MatchPort match_port_of(WorkerCore& worker, WorkerCounters& counters, const IdCount& peers) {
    return {.counters = counters,
            .peers = peers,
            .is_multi = worker.is_multi,
            .owner = &worker,
            .visit_peers =
                [](void* owner, MatchTable& table, void (*visit)(MatchTable&, MatchPeer&)) {
                    as_core(owner).endpoints().for_each([&](Endpoint& ep) { visit(table, ep); });
                },
            .release = [](void* owner,
                          Request& receive) { as_core(owner).requests().release(receive); }};
}

RequestPort request_port_of(WorkerCore& worker, Attention& attention) {
    return {.attention = attention,
            .worker = &worker,
            .is_multi = worker.is_multi,
            .owner = &worker,
            .transmitted =
                [](void* owner, Request& request, ucs_status_t status) {
                    const ucs_status_t failure = request.ep->failure();
                    if (request.is_sent_level) {
                        if (failure == UCS_OK)  // else fail() ends it
                            request.ep->flushes().on_transmitted(request, status);
                        return;
                    }
                    as_core(owner).finish(request, failure != UCS_OK ? failure : status);
                },
            .end_rma = [](void* owner, Request& request) { as_core(owner).rma_ops.end(request); },
            .count_extra = [](void* owner) { as_core(owner).count(WorkerCounter::kOpsKept); },
            .add_notice = [](void* owner) { as_core(owner).matches().add_notice(); },
            .remove_notice =
                [](void* owner) {
                    MatchTable& matches = as_core(owner).matches();
                    matches.remove_notice();
                    // Its peer may have been paused.
                    if (!as_core(owner).requests().is_silent())
                        matches.resume_if_free(nullptr);
                },
            .leave = [](void* owner) { as_core(owner).leave(); },
            .enter_again = [](void* owner) { as_core(owner).enter_again(); },
            .drop_kept =
                [](void* owner, const KeptReturns<CompletionEnv>& home) {
                    as_core(owner).context().drop_kept_of(home);
                }};
}

CallbackPort callback_port_of(WorkerCore& worker, Attention& attention) {
    return {.attention = attention,
            .is_multi = worker.is_multi,
            .owner = &worker,
            .leave = [](void* owner) { as_core(owner).leave(); },
            .enter_again = [](void* owner) { as_core(owner).enter_again(); }};
}

RegLease* WorkerCore::cache_region(const Request& request, std::size_t domain, RegUse use) {
    const Buffer& buffer = request.buffer;
    const std::size_t bytes =
        request.kind == RequestKind::kReceive ? request.wanted : buffer.length;
    if (leases_ == nullptr || buffer.list != nullptr || bytes == 0)
        return nullptr;
    bool is_new = false;
    RegLease* lease = leases_->acquire(domain, buffer.base, bytes, use, &is_new);
    count(lease == nullptr ? WorkerCounter::kRegRefused
          : is_new         ? WorkerCounter::kRegMade
                           : WorkerCounter::kRegCached);
    return lease;
}

/// Messages of a peer may be on their way, or wait in a queue of ours, when its endpoint goes.
ucs_status_t WorkerCore::drop_from_unknown(std::uint32_t sender, const char* what,
                                           std::size_t length) {
    if (!endpoints_.is_past(sender))
        return garbage(what, length);
    count(WorkerCounter::kLate);
    TW_LOG_DEBUG("%s of %zu bytes is late: its endpoint has gone", what, length);
    return UCS_OK;
}

bool WorkerCore::drop(const char* what, std::size_t length) {
    return port_.drop(what, length);
}

ucs_status_t WorkerCore::garbage(const char* what, std::size_t length) {
    port_.drop(what, length);
    return UCS_OK;
}

// ---- The ends of requests

void WorkerCore::set_outstanding(Request& request, Endpoint& ep) {
    request.ep = &ep;
    request.is_outstanding = true;
    list_of(ep, request).push_back(request);
    awaited.begin(ep);
}

void WorkerCore::finish(Request& request, ucs_status_t status) {
    if (!request.is_whole)
        request.make_whole();
    requests_.release_id(request);
    end_transfer(request);
    if (request.transmission != nullptr)
        std::exchange(request.transmission, nullptr)->request = nullptr;
    Endpoint* ep = request.ep;
    const bool was_outstanding = request.is_outstanding;
    request.is_outstanding = false;
    if (was_outstanding) {
        if (request.is_queued)
            ep->queue().remove(request);
        list_of(*ep, request).erase(request);
        awaited.end(*ep);
    }
    if (ep != nullptr && ep->incoming.request == &request)
        ep->incoming.request = nullptr;
    if (request.rma != nullptr)
        rma_ops.end(request);
    if (request.registration != nullptr) {
        uct_md_mem_dereg(context_.domains()[request.registered_in].md,
                         std::exchange(request.registration, nullptr));
    }
    if (request.cached != nullptr)
        RegLeases::release(*std::exchange(request.cached, nullptr), status == UCS_OK);
    request.done.status = static_cast<tw_status_t>(status);
    const bool was_sent = request.kind != RequestKind::kReceive;
    Request* parent = request.parent;
    if (request.in_call)
        request.has_ended = true;
    else
        requests_.report(request);
    if (parent != nullptr && --parent->children == 0 && parent->closing != UCS_INPROGRESS)
        finish(*parent, parent->closing);
    if (was_outstanding && was_sent)
        ep->request_ended(&request);
}

void WorkerCore::tell_rma(Endpoint& from, tw_completion_t done, bool is_counted) {
    done.ep = from.handle();
    if (params_.rma_event != nullptr) {
        attention_.count_events();
        const Unlocked callback(*this);
        return params_.rma_event(params_.rma_event_arg, &done);
    }
    if (is_counted)
        return attention_.count_events();
    if (!matches_.admit(from, MatchTable::kNoticeBytes))
        return;
    if (!requests_.add_notice(done)) {
        TW_LOG_ERROR("no memory for the notice of a put of %zu bytes: its endpoint fails",
                     done.length);
        return from.closing().end(UCS_ERR_NO_MEMORY);
    }
    matches_.pause_if_full(from);
}

void WorkerCore::finish_drained(Request& request, ucs_status_t status) {
    Transfer* transfer = request.transfer;
    if (transfer == nullptr || !transfer->is_busy() || requests_.is_silent())
        return finish(request, status);
    transfer->failed_ep = request.ep;
    ++request.ep->marks.draining;
    list_of(*request.ep, request).erase(request);
    awaited.end(*request.ep);
    request.is_outstanding = false;
    request.ep = nullptr;
    transfer->ending = status;
    draining_.push_back(request);
}

void WorkerCore::drained(Request& request, ucs_status_t status) {
    if (Endpoint* ep = std::exchange(request.transfer->failed_ep, nullptr)) {
        --ep->marks.draining;
        ask_slow_work();  // the failure may be told
    }
    draining_.erase(request);
    finish(request, status);
}

void WorkerCore::detach_draining(const Endpoint& ep) {
    if (ep.marks.draining == 0)
        return;
    for (Request* request = draining_.front(); request != nullptr;
         request = RequestList::next(*request))
        if (request->transfer->failed_ep == &ep)
            request->transfer->failed_ep = nullptr;
}

}  // namespace tagwire::proto
