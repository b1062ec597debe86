// SPDX-License-Identifier: BSD-3-Clause
// The ends of requests.
#include <utility>

#include "protocols/transfer/transfer.hpp"
#include "protocols/worker/endpoint.hpp"
#include "protocols/worker/worker_core.hpp"
#include "ucs/log/log.hpp"

namespace tagwire::proto {

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
        ep->request_ended();
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
