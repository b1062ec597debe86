// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/transfer/flushes.hpp"

#include <algorithm>

#include "protocols/wire/control_message.hpp"
#include "protocols/worker/endpoint.hpp"
#include "protocols/worker/worker_core.hpp"

namespace tagwire::proto {

tw_status_t Flushes::call(RequestKind kind, const tw_op_t* op, tw_request_h* request_p) {
    WorkerCore& worker = ep_.worker;
    if (ep_.failure() != UCS_OK && kind == RequestKind::kFlush)
        return static_cast<tw_status_t>(ep_.failure());
    if (const tw_status_t status = flush_tx(ep_, kind); status != TW_OK)
        return status;
    Request* request = worker.requests().make(kind, op, request_p);
    if (request == nullptr)
        return TW_ERR_NO_RESOURCE;
    request->ep = &ep_;
    request->order = order_;
    request->done.flags = TW_DONE_FLUSH;
    request->done.ep = sender_handle(ep_);
    request->flags &= ~std::uint32_t{TW_OP_FENCE};
    if (kind == RequestKind::kClose)
        ep_.closing().begin();
    // Messages that left on the fast path are not numbered; there are none before it is ready.
    if (ep_.state() != EpState::kReady && order_ == 0 && !awaits_tx(ep_)) {
        if (kind == RequestKind::kClose)
            ep_.closing().closed();
        worker.finish(*request, UCS_OK);
    } else {
        ++order_;
        ep_.queue().push(*request);
    }
    return worker.requests().answer(*request, op, request_p);
}

ucs_status_t Flushes::start(Request& request) {
    if (request.id == 0 && ep_.worker.requests().assign_id(request) == 0)
        return UCS_ERR_NO_MEMORY;
    const bool is_close = request.kind == RequestKind::kClose;
    const ucs_status_t status =
        ep_.queue().send_now(Control::of(Flush{request.id, is_close ? 1U : 0U}));
    if (status != UCS_OK)
        return status;
    sent_.push_back(request);
    return UCS_INPROGRESS;
}

void Flushes::check() {
    while (Request* flush = sent_.front()) {
        std::uint64_t earliest = UINT64_MAX;
        for (const RequestList& list : ep_.outstanding)
            if (!list.empty())
                earliest = std::min(earliest, list.front()->order);
        if (!flush->is_answered || earliest < flush->order || awaits_tx(ep_))
            return;
        sent_.erase(*flush);
        if (flush->kind == RequestKind::kClose)
            ep_.closing().closed();
        ep_.worker.finish(*flush, ep_.rma.take_refusal());
    }
}

void Flushes::on_flushed(Request& request) {
    request.is_answered = true;
    check();
}

}  // namespace tagwire::proto
