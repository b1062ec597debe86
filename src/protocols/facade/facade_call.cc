// SPDX-License-Identifier: BSD-3-Clause
// The C API: remote calls. Arguments are checked here.
#include <memory>

#include "protocols/api/tw_call.h"
#include "protocols/api/tw_data.h"
#include "protocols/api/tw_message.h"
#include "protocols/call/calls.hpp"
#include "protocols/facade/called_endpoint.hpp"
#include "protocols/facade/check_call.hpp"
#include "protocols/request/outgoing.hpp"
#include "protocols/request/refuse.hpp"
#include "protocols/wire/am_part.hpp"
#include "protocols/worker/endpoint.hpp"
#include "protocols/worker/entry.hpp"
#include "protocols/worker/tx_contexts.hpp"
#include "protocols/worker/worker.hpp"
#include "ucs/memory/reserve.hpp"
#include "ucs/time/clock.hpp"

using namespace tagwire::proto;
using tagwire::ucs::read_sized;

namespace {

constexpr const char* kCall = "tw_call";

Worker& as_worker(void* owner) {
    return *static_cast<Worker*>(owner);
}

/// With the worker's own endpoint to the peer: the program may have none.
tw_status_t send_to(void* owner, std::uint64_t worker_id, const CallMessage& wanted,
                    const tw_op_t& op, tw_request_h* request_p) try {
    Worker& worker = as_worker(owner);
    if (tagwire::ucs::reserve_is_low())
        return TW_ERR_NO_MEMORY;
    const Entry entry(worker);
    const LeavesWork work(worker);
    PeerEndpoint* const ep = worker.peers().endpoint_to(worker_id);
    if (ep == nullptr)
        return TW_ERR_NOT_CONNECTED;
    const AmPart am{wanted.id, wanted.header, wanted.header_bytes};
    const Outgoing message{wanted.data, wanted.length, nullptr,   0,  am.word(),
                           false,       &op,           request_p, &am};
    const tw_status_t status = check_send("tw_reply", worker.context(), message);
    return status == TW_OK ? static_cast<Endpoint&>(*ep).send(message) : status;
} catch (const std::bad_alloc&) {
    return refuse_no_memory("tw_reply");
}

/// As tw_am_send(), with an id of the library's.
tw_status_t send(void*, tw_ep_h handle, const CallMessage& wanted, const tw_op_t& op,
                 tw_request_h* request_p) try {
    if (tagwire::ucs::reserve_is_low())
        return TW_ERR_NO_MEMORY;
    Endpoint& ep = way_of(endpoint_of(handle));
    const Entry entry(ep.worker);
    const LeavesWork work(ep.worker);
    const AmPart am{wanted.id, wanted.header, wanted.header_bytes};
    const Outgoing message{wanted.data, wanted.length, nullptr,   0,  am.word(),
                           false,       &op,           request_p, &am};
    const tw_status_t status = check_send(kCall, ep.worker.context(), message);
    return status == TW_OK ? ep.send(message) : status;
} catch (const std::bad_alloc&) {
    return refuse_no_memory(kCall);
}

constexpr CallFunctions kFunctions{
    .send = &send,
    .send_to = &send_to,
    .receive =
        [](void* owner, tw_message_h message, void* buffer, std::size_t length, const tw_op_t& op) {
            return tw_message_recv(&as_worker(owner), message, buffer, length, &op, nullptr);
        },
    .keep = [](void*, tw_am_t& am, tw_message_h* message_p) { return tw_am_keep(&am, message_p); },
    .release = [](void* owner,
                  tw_message_h message) { tw_message_drop(&as_worker(owner), message); },
    .cancel = [](void*, tw_request_h request) { tw_request_cancel(request); },
    .count =
        [](void* owner, WorkerCounter counter) {
            const Entry entry(as_worker(owner));
            as_worker(owner).count(counter);
        },
    .now_ns = [](void*) { return tagwire::ucs::clock_now_ns(); },
};

/// Made when the worker needs them first. Throws std::bad_alloc.
ucs_status_t calls_of(Worker& worker, Calls** calls_p) {
    const Entry entry(worker);
    if (worker.lookout(LookoutOf::kCalls) == nullptr) {
        std::unique_ptr<Calls> made;
        const Options& options = worker.options();
        const ucs_status_t status = Calls::create(
            {.port = {.worker = &worker,
                      .is_multi = worker.is_multi,
                      .owner = &worker,
                      .calls = kFunctions},
             .limits = {.requests_max = options.call_requests_max, .bytes_max = options.call_bytes},
             .callbacks = worker.callbacks()},
            &made);
        if (status != UCS_OK)
            return status;
        worker.ams().set_own(kCallAmId, &Calls::on_request, made.get());
        worker.ams().set_own(kReplyAmId, &Calls::on_reply, made.get());
        set_lookout(worker, LookoutOf::kCalls, std::move(made));
    }
    *calls_p = static_cast<Calls*>(worker.lookout(LookoutOf::kCalls));
    return UCS_OK;
}

/// nullptr: the worker has made and served none.
Calls* calls_so_far(Worker& worker) {
    const Entry entry(worker);
    return static_cast<Calls*>(worker.lookout(LookoutOf::kCalls));
}

/// The worker of the program: an endpoint's own may be a transmit context.
Worker& front_of(Endpoint& ep) {
    return worker_of(ep.worker.own_tx == nullptr ? ep.worker : ep.worker.own_tx->front);
}

/// The request is checked here, since a copy may be sent in its place.
tw_status_t check_buffers(const Context& context, const tw_call_params_t& params, const void* data,
                          size_t length) {
    constexpr const char* kReplyMem = "params->reply_mem";
    tw_op_t op{};
    op.mem = params.mem;
    tw_status_t status = check_memory(kCall, context, op, data, length, nullptr, 0, "params->mem");
    op.mem = params.reply_mem;
    if (status == TW_OK)
        status = check_memory(kCall, context, op, params.reply, params.reply_bytes, nullptr, 0,
                              kReplyMem);
    return status == TW_OK ? check_target(kCall, op, kReplyMem) : status;
}

}  // namespace

extern "C" {

tw_status_t tw_call(tw_ep_h ep, uint32_t method, const void* data, size_t length,
                    const tw_call_params_t* params, uint64_t* id_p) try {
    TW_REFUSE_NULL(ep);
    TW_REFUSE_NULL(params);
    TW_REFUSE_SIZE(params);
    const tw_call_params_t chosen = read_sized(*params);
    if (chosen.done == nullptr)
        TW_REFUSE(TW_ERR_INVALID_PARAM, "params->done is NULL");
    if (length > 0)
        TW_REFUSE_NULL(data);
    if (chosen.reply_bytes > 0 && chosen.reply == nullptr)
        TW_REFUSE(TW_ERR_INVALID_PARAM, "params->reply is NULL, and reply_bytes is %zu",
                  chosen.reply_bytes);
    Endpoint& own = endpoint_of(ep);
    Worker& worker = front_of(own);
    const tw_status_t checked = check_buffers(worker.context(), chosen, data, length);
    if (checked != TW_OK)
        return checked;
    Calls* calls = nullptr;
    const ucs_status_t status = calls_of(worker, &calls);
    if (status != UCS_OK)
        return tw(status);
    return calls->outgoing().begin({ep, own.worker_id, method, data, length}, chosen, id_p);
} catch (const std::bad_alloc&) {
    return refuse_no_memory(__func__);
}

tw_status_t tw_call_cancel(tw_worker_h worker, uint64_t id) {
    TW_REFUSE_NULL(worker);
    Calls* const calls = calls_so_far(worker_of(worker));
    return calls != nullptr && calls->outgoing().cancel(id) ? TW_OK : TW_ERR_NO_ELEM;
}

tw_status_t tw_call_register(tw_worker_h worker, uint32_t method, tw_call_cb_t callback,
                             void* arg) try {
    TW_REFUSE_NULL(worker);
    Calls* calls = nullptr;
    const ucs_status_t status = calls_of(worker_of(worker), &calls);
    if (status != UCS_OK)
        return tw(status);
    calls->incoming().set(method, callback, arg);
    return TW_OK;
} catch (const std::bad_alloc&) {
    return refuse_no_memory(__func__);
}

tw_status_t tw_call_keep(tw_call_request_t* request) {
    TW_REFUSE_NULL(request);
    return IncomingCalls::keep(*request);
}

tw_status_t tw_reply(tw_worker_h worker, uint64_t request, int32_t status, const void* data,
                     size_t length, const tw_op_t* op, tw_request_h* request_p) {
    TW_REFUSE_NULL(worker);
    if (length > 0)
        TW_REFUSE_NULL(data);
    const WholeOp whole(op);
    if (const tw_status_t refused = whole.check(__func__); refused != TW_OK)
        return refused;
    Calls* const calls = calls_so_far(worker_of(worker));
    if (calls == nullptr)
        TW_REFUSE(TW_ERR_NO_ELEM, "the worker has no requests");
    return calls->incoming().reply({request, status, data, length}, whole.get(), request_p);
}

}  // extern "C"
