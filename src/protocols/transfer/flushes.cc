// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/transfer/flushes.hpp"

#include <utility>

#include "protocols/wire/control_message.hpp"

namespace tagwire::proto {

tw_status_t Flushes::call(RequestKind kind, const tw_op_t* op, tw_request_h* request_p) {
    if (const ucs_status_t failure = to_.lane.failure();
        failure != UCS_OK && kind == RequestKind::kFlush)
        return static_cast<tw_status_t>(failure);
    if (const tw_status_t status = to_.peer.flush_contexts(kind == RequestKind::kClose);
        status != TW_OK)
        return status;
    Request* request = to_.requests.make(kind, op, request_p);
    if (request == nullptr)
        return TW_ERR_NO_RESOURCE;
    to_.lane.adopt(*request);
    request->order = order_;
    request->done.flags = TW_DONE_FLUSH;
    request->flags &= ~std::uint32_t{TW_OP_FENCE};
    if (kind == RequestKind::kClose)
        to_.closing.begin();
    // Messages that left on the fast path are not numbered; there are none before it is ready.
    if (to_.lane.state() != EpState::kReady && order_ == 0 && !to_.peer.awaits_contexts()) {
        if (kind == RequestKind::kClose)
            to_.closing.closed();
        to_.lane.finish(*request, UCS_OK);
    } else {
        ++order_;
        to_.lane.push(*request);
    }
    return to_.requests.answer(*request, op, request_p);
}

ucs_status_t Flushes::start(Request& request) {
    if (request.id == 0 && to_.requests.assign_id(request) == 0)
        return UCS_ERR_NO_MEMORY;
    const bool is_close = request.kind == RequestKind::kClose;
    const ucs_status_t status = to_.lane.send_now(Flush{request.id, is_close ? 1U : 0U});
    if (status != UCS_OK)
        return status;
    sent_.push_back(request);
    return UCS_INPROGRESS;
}

void Flushes::check() {
    while (Request* flush = sent_.front()) {
        if (!flush->is_answered || to_.outstanding.earliest() < flush->order ||
            to_.peer.awaits_contexts())
            return;
        sent_.erase(*flush);
        if (flush->kind == RequestKind::kClose)
            to_.closing.closed();
        to_.lane.finish(*flush, std::exchange(refusal_, UCS_OK));
    }
}

void Flushes::on_flushed(Request& request) {
    request.is_answered = true;
    check();
}

}  // namespace tagwire::proto
