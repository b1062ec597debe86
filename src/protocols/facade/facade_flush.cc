// SPDX-License-Identifier: BSD-3-Clause
// The C API: flush and close. Arguments are checked here.
#include "protocols/api/tw_endpoint.h"
#include "protocols/facade/check_call.hpp"
#include "protocols/request/refuse.hpp"
#include "protocols/worker/endpoint.hpp"
#include "protocols/worker/entry.hpp"
#include "protocols/worker/worker.hpp"
#include "protocols/worker/worker_flush.hpp"

using namespace tagwire::proto;

namespace {

bool is_level_of_flush(tw_flush_level_t level) {
    return level == TW_FLUSH_DELIVERED || level == TW_FLUSH_SENT;
}

tw_status_t check_whole(const char* call, const WorkerCore& worker, const WholeOp& whole) {
    const tw_op_t* const op = whole.get();
    return op == nullptr ? whole.check(call) : check_op(call, worker.context(), *op, kFlushFlags);
}

/// Checks the level and the operation of a call on the worker.
tw_status_t check_flush(const char* call, const WorkerCore& worker, tw_flush_level_t level,
                        const WholeOp& whole) {
    if (!is_level_of_flush(level)) {
        TW_LOG_ERROR("%s: level is %d; expected TW_FLUSH_DELIVERED or TW_FLUSH_SENT", call,
                     static_cast<int>(level));
        return TW_ERR_INVALID_PARAM;
    }
    return check_whole(call, worker, whole);
}

/// Its flush has failed before it was asked for. TW_ERR_NO_MEMORY would say that it is not closed.
tw_status_t close_failed(Worker& worker, Endpoint& ep) {
    const ucs_status_t status = ep.close_failure();
    worker.peers().close(ep);
    return status == UCS_ERR_NO_MEMORY ? TW_ERR_CONNECTION_RESET : tw(status);
}

tw_status_t close_at_once(Endpoint& ep, const tw_op_t* op, tw_request_h* request_p) {
    Worker& worker = worker_of(ep.worker);
    if (op == nullptr && request_p == nullptr) {
        worker.peers().close(ep);
        ep.forget_program();
        return TW_OK;
    }
    Request* request = worker.requests().make(RequestKind::kClose, op, request_p);
    if (request == nullptr)
        return TW_ERR_NO_RESOURCE;
    request->done.flags = TW_DONE_FLUSH;
    worker.peers().close(ep);
    ep.forget_program();
    worker.finish(*request, UCS_OK);
    return worker.requests().answer(*request, op, request_p);
}

constexpr const char* kFlushCall = "tw_ep_flush";

/// tw_ep_flush(), where something may be under way.
[[gnu::noinline]] tw_status_t flush_slowly(tw_ep_h handle, tw_flush_level_t level,
                                           const tw_op_t* given, tw_request_h* request_p) try {
    if (handle == nullptr)
        return refuse_null(kFlushCall, "ep");
    Endpoint& ep = endpoint_of(handle);
    const WholeOp whole(given);
    const tw_op_t* const op = whole.get();
    const tw_status_t status = check_flush(kFlushCall, ep.worker, level, whole);
    if (status != TW_OK)
        return status;
    const Entry entry(ep.worker);
    const LeavesWork work(ep.worker);
    const bool is_plain = op == nullptr && ep.tx.contexts == nullptr && ep.failure() == UCS_OK;
    if (is_plain && ep.flushes().is_flushed(level))
        return TW_OK;
    return ep.flushes().call(RequestKind::kFlush, level, op, request_p);
} catch (const std::bad_alloc&) {
    return refuse_no_memory(kFlushCall);
}

}  // namespace

extern "C" {

tw_status_t tw_ep_flush(tw_ep_h ep, tw_flush_level_t level, const tw_op_t* op,
                        tw_request_h* request_p) {
    if (level == TW_FLUSH_SENT && op == nullptr && ep != nullptr && endpoint_of(ep).has_all_left())
        [[likely]]
        return TW_OK;
    return flush_slowly(ep, level, op, request_p);
}

tw_status_t tw_worker_flush(tw_worker_h worker, tw_flush_level_t level, const tw_op_t* given,
                            tw_request_h* request_p) try {
    TW_REFUSE_NULL(worker);
    const WholeOp whole(given);
    const tw_status_t status = check_flush(__func__, worker_of(worker), level, whole);
    if (status != TW_OK)
        return status;
    const Entry entry(worker_of(worker));
    const LeavesWork work(worker_of(worker));
    return flush_endpoints(worker_of(worker), level, whole.get(), request_p);
} catch (const std::bad_alloc&) {
    return refuse_no_memory(__func__);
}

tw_status_t tw_ep_close(tw_ep_h handle, tw_flush_level_t level, const tw_op_t* given,
                        tw_request_h* request_p) try {
    TW_REFUSE_NULL(handle);
    Endpoint& ep = endpoint_of(handle);
    const bool is_forced = level == TW_CLOSE_FORCE;
    if (!is_forced && !is_level_of_flush(level))
        TW_REFUSE(TW_ERR_INVALID_PARAM,
                  "level is %d; expected TW_FLUSH_DELIVERED, TW_FLUSH_SENT or TW_CLOSE_FORCE",
                  static_cast<int>(level));
    const WholeOp whole(given);
    const tw_op_t* const op = whole.get();
    if (const tw_status_t right = check_whole(__func__, ep.worker, whole); right != TW_OK)
        return right;
    const Entry entry(ep.worker);
    const LeavesWork work(ep.worker);
    if (!is_forced && ep.close_failure() != UCS_OK)
        return close_failed(worker_of(ep.worker), ep);
    if (is_forced || ep.failure() != UCS_OK)
        return close_at_once(ep, op, request_p);
    if (ep.closing().is_closing())
        TW_REFUSE(TW_ERR_INVALID_PARAM, "the endpoint is being closed already");
    const tw_status_t status = ep.flushes().call(RequestKind::kClose, level, op, request_p);
    if (ep.closing().is_closing() || !ep.closing().is_open())
        ep.forget_program();
    return status;
} catch (const std::bad_alloc&) {
    return refuse_no_memory(__func__);
}

}  // extern "C"
