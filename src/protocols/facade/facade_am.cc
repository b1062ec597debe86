// SPDX-License-Identifier: BSD-3-Clause
// The C API: active messages. Arguments are checked here.
#include "protocols/api/tw_am.h"
#include "protocols/facade/called_endpoint.hpp"
#include "protocols/facade/check_call.hpp"
#include "protocols/request/refuse.hpp"
#include "protocols/worker/am_fast_path.hpp"
#include "protocols/worker/entry.hpp"
#include "protocols/worker/fast_path.hpp"
#include "ucs/memory/reserve.hpp"

using namespace tagwire::proto;

namespace {

/// An active message whose data is in one piece, or a list, and how it is sent.
struct AmSend {
    unsigned id;
    const void* header;
    size_t header_bytes;
    const void* data;
    size_t length;
    const tw_iov_t* list;
    size_t count;
    const tw_op_t* op;
    tw_request_h* request_p;

    AmPart part() const { return {id, header, header_bytes}; }
};

tw_status_t check(const char* call, const AmSend& wanted) {
    if (wanted.id > TW_AM_ID_MAX) {
        TW_LOG_ERROR("%s: id is %u; the highest is %d", call, wanted.id, TW_AM_ID_MAX);
        return TW_ERR_INVALID_PARAM;
    }
    if (wanted.header_bytes > TW_AM_HEADER_MAX) {
        TW_LOG_ERROR("%s: a header of %zu bytes; the limit is %d", call, wanted.header_bytes,
                     TW_AM_HEADER_MAX);
        return TW_ERR_EXCEEDS_LIMIT;
    }
    if (wanted.header == nullptr && wanted.header_bytes > 0)
        return refuse_null(call, "header");
    if (wanted.data == nullptr && wanted.length > 0 && wanted.list == nullptr)
        return refuse_null(call, "buffer");
    return TW_OK;
}

[[gnu::noinline]] tw_status_t send_slowly(const char* call, tw_ep_h handle,
                                          const AmSend& wanted) try {
    if (handle == nullptr)
        return refuse_null(call, "ep");
    tw_status_t status = check(call, wanted);
    if (status != TW_OK)
        return status;
    if (tagwire::ucs::reserve_is_low())
        return TW_ERR_NO_MEMORY;
    Endpoint& ep = way_of(endpoint_of(handle));
    const Entry entry(ep.worker);
    const LeavesWork work(ep.worker);
    const AmPart am = wanted.part();
    const WholeOp op(wanted.op);
    status = op.check(call);
    const Outgoing message{wanted.data, wanted.length, wanted.list,      wanted.count, am.word(),
                           false,       op.get(),      wanted.request_p, &am};
    if (op.get() != nullptr)
        status = check_send(call, ep.worker.context(), message);
    return status == TW_OK ? ep.send(message) : status;
} catch (const std::bad_alloc&) {
    return refuse_no_memory(call);
}

/// Nothing but header and data was asked for.
[[gnu::always_inline]] inline bool is_plain(tw_ep_h handle, unsigned id, const void* header,
                                            size_t header_length, const void* data, size_t length,
                                            const tw_op_t* op) {
    return handle != nullptr && is_plain_send(op, kPlainAmFlags) && id <= TW_AM_ID_MAX &&
           (data != nullptr || length == 0) && (header != nullptr || header_length == 0);
}

/// The fast path of a worker with a lock. False: the call takes the slow path.
[[gnu::noinline]] bool try_send_locked(Endpoint& ep, const AmPart& am, const void* data,
                                       size_t length) {
    WorkerLock& lock = ep.worker.lock;
    if (!lock.try_lock_briefly())
        lock.lock_briefly();
    const bool is_sent =
        ep.may_send_short(bytes_of(am, length)) && try_send_am_short(ep, am, data, length);
    lock.unlock_briefly();
    return is_sent;
}

}  // namespace

extern "C" {

tw_status_t tw_am_register(tw_worker_h worker, unsigned id, tw_am_cb_t callback, void* arg) try {
    TW_REFUSE_NULL(worker);
    if (id > TW_AM_ID_MAX)
        TW_REFUSE(TW_ERR_INVALID_PARAM, "id is %u; the highest is %d", id, TW_AM_ID_MAX);
    const Entry entry(core_of(worker));
    core_of(worker).ams().set(id, callback, arg);
    return TW_OK;
} catch (const std::bad_alloc&) {
    return refuse_no_memory(__func__);
}

tw_status_t tw_am_send(tw_ep_h ep, unsigned id, const void* header, size_t header_length,
                       const void* buffer, size_t length, const tw_op_t* op,
                       tw_request_h* request_p) {
    if (is_plain(ep, id, header, header_length, buffer, length, op)) [[likely]] {
        const AmPart am{id, header, header_length};
        if (endpoint_of(ep).may_send_unlocked(bytes_of(am, length)) &&
            try_send_am_short(endpoint_of(ep), am, buffer, length)) [[likely]]
            return TW_OK;
        if (endpoint_of(ep).worker.is_multi &&
            try_send_locked(way_of(endpoint_of(ep)), am, buffer, length))
            return TW_OK;
    }
    return send_slowly(__func__, ep,
                       {id, header, header_length, buffer, length, nullptr, 0, op, request_p});
}

tw_status_t tw_am_sendv(tw_ep_h ep, unsigned id, const void* header, size_t header_length,
                        const tw_iov_t* iov, size_t iovcnt, const tw_op_t* op,
                        tw_request_h* request_p) {
    size_t length = 0;
    const tw_status_t status = check_list(__func__, iov, iovcnt, &length);
    if (status != TW_OK)
        return status;
    return send_slowly(__func__, ep,
                       {id, header, header_length, nullptr, length, iov, iovcnt, op, request_p});
}

tw_status_t tw_am_keep(tw_am_t* am, tw_message_h* message_p) try {
    TW_REFUSE_NULL(am);
    TW_REFUSE_NULL(message_p);
    WorkerCore& worker = core_of(am->worker);
    const Entry entry(worker);
    const LeavesWork work(worker);
    return worker.ams().keep(*static_cast<AmCall*>(am), message_p);
} catch (const std::bad_alloc&) {
    return refuse_no_memory(__func__);
}

}  // extern "C"
