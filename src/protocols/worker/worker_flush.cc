// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/worker/worker_flush.hpp"

#include "protocols/worker/endpoint.hpp"
#include "protocols/worker/worker.hpp"

namespace tagwire::proto {

namespace {

/// Request::children counts the parts that have not ended, Request::closing is the first failure.
void part_ended(const tw_completion_t* done) {
    Request& all = *static_cast<Request*>(done->context);
    if (done->status != TW_OK && all.closing == UCS_OK)
        all.closing = static_cast<ucs_status_t>(done->status);
    if (--all.children == 0)
        all.worker->finish(all, all.closing);
}

bool is_to_be_flushed(const Endpoint& ep) {
    return ep.closing().is_open() && !ep.closing().is_closing() && ep.failure() == UCS_OK;
}

/// The parts are made before any of them begins: a call that is refused has begun none.
tw_status_t make_parts(Worker& worker, tw_flush_level_t level, Request& all, RequestQueue& parts) {
    tw_op_t how{};
    how.complete = part_ended;
    how.context = &all;
    tw_status_t status = TW_OK;
    worker.endpoints().for_each([&](Endpoint& ep) {
        if (status != TW_OK || !is_to_be_flushed(ep))
            return;
        status = ep.flushes().flush_contexts(level, (all.flags & TW_OP_QUEUE) != 0);
        if (status != TW_OK || ep.flushes().is_flushed(level))
            return;
        Request* part = worker.requests().make_internal(RequestKind::kFlush, how);
        if (part == nullptr) {
            status = TW_ERR_NO_MEMORY;
            return;
        }
        part->ep = &ep;
        parts.push_back(*part);
    });
    return status;
}

}  // namespace

tw_status_t flush_endpoints(Worker& worker, tw_flush_level_t level, const tw_op_t* op,
                            tw_request_h* request_p) {
    RequestTable& requests = worker.requests();
    Request* all = requests.make(RequestKind::kFlush, op, request_p);
    if (all == nullptr)
        return TW_ERR_NO_RESOURCE;
    all->flags &= ~std::uint32_t{TW_OP_FENCE};
    all->done.flags = TW_DONE_FLUSH;
    RequestQueue parts;
    const tw_status_t status = make_parts(worker, level, *all, parts);
    if (status != TW_OK) {
        while (Request* part = parts.pop_front())
            requests.release(*part);
        requests.release(*all);
        return status;
    }
    all->closing = UCS_OK;
    all->children = static_cast<std::uint32_t>(parts.size());
    if (parts.empty())
        worker.finish(*all, UCS_OK);
    while (Request* part = parts.pop_front())
        part->ep->flushes().begin(*part, level);
    return requests.answer(*all, op, request_p);
}

}  // namespace tagwire::proto
