// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/facade/receive_call.hpp"

#include "protocols/facade/check_call.hpp"
#include "protocols/request/refuse.hpp"
#include "protocols/worker/endpoint.hpp"
#include "protocols/worker/entry.hpp"
#include "protocols/worker/worker.hpp"
#include "ucs/memory/reserve.hpp"

namespace tagwire::proto {

namespace {

/// Somebody is told of each message of a receive that stays posted, and where the library has put a
/// message.
tw_status_t check_report(const char* call, const Incoming& wanted) {
    const tw_op_t& op = wanted.op == nullptr ? kPlainOp : *wanted.op;
    if (wanted.kind == 0 || op.complete != nullptr || op.cq != nullptr ||
        (op.flags & TW_OP_COMPLETION) != 0)
        return TW_OK;
    const bool is_multi = (wanted.kind & kMultiReceive) != 0;
    if (!is_multi && wanted.request_p != nullptr)
        return TW_OK;
    TW_LOG_ERROR("%s needs op->complete, op->cq%s or TW_OP_COMPLETION", call,
                 is_multi ? "" : ", request_p");
    return TW_ERR_INVALID_PARAM;
}

[[gnu::noinline]] tw_status_t check_receive(const char* call, const WorkerCore& worker,
                                            const Incoming& wanted) {
    const tw_op_t& op = *wanted.op;
    tw_status_t status = check_op(call, worker.context(), op, kRecvFlags);
    if (status == TW_OK && (wanted.kind & kBufferedReceive) == 0) {
        status = check_memory(call, worker.context(), op, wanted.base, wanted.length, wanted.list,
                              wanted.count);
        status = status == TW_OK ? check_target(call, op) : status;
    }
    if (status == TW_OK && op.info != nullptr && !ucs::has_size(*op.info))
        status = refuse_size(call, "op->info", op.info->struct_bytes, sizeof *op.info);
    if (status == TW_OK && op.source != nullptr && wanted.message == nullptr)
        status = check_source(call, worker, op.source);
    return status;
}

}  // namespace

tw_status_t check_source(const char* call, const WorkerCore& worker, tw_ep_h source) {
    if (source == nullptr || &endpoint_of(source).worker == &worker)
        return TW_OK;
    TW_LOG_ERROR("%s: source is an endpoint of another worker", call);
    return TW_ERR_INVALID_PARAM;
}

Unexpected* check_message(const char* call, const WorkerCore& worker, tw_message_h message) {
    Unexpected* const claimed = worker.matches().claimed(message);
    if (claimed == nullptr) {
        TW_LOG_ERROR("%s: message %p is not a message of this worker that the program has", call,
                     static_cast<void*>(message));
    }
    return claimed;
}

tw_status_t receive_long(const char* call, Worker& worker, Incoming wanted) try {
    const WholeOp op(wanted.op);
    if (const tw_status_t status = op.check(call); status != TW_OK)
        return status;
    wanted.op = op.get();
    if (wanted.base == nullptr && wanted.length > 0 && wanted.list == nullptr)
        return refuse_null(call, "buffer");
    if (ucs::reserve_is_low())
        return TW_ERR_NO_MEMORY;
    const Entry entry(worker);
    const LeavesWork work(worker);
    tw_status_t status = wanted.op == nullptr ? TW_OK : check_receive(call, worker, wanted);
    if (status == TW_OK)
        status = check_report(call, wanted);
    if (status == TW_OK && wanted.message != nullptr &&
        check_message(call, worker, wanted.message) == nullptr)
        status = TW_ERR_INVALID_PARAM;
    return status == TW_OK ? worker.receiver().receive(wanted) : status;
} catch (const std::bad_alloc&) {
    return refuse_no_memory(call);
}

tw_status_t receive_list(const char* call, tw_worker_h worker, Incoming wanted) {
    if (worker == nullptr)
        return refuse_null(call, "worker");
    const tw_status_t status = check_list(call, wanted.list, wanted.count, &wanted.length);
    if (status != TW_OK)
        return status;
    return receive_long(call, worker_of(worker), wanted);
}

}  // namespace tagwire::proto
