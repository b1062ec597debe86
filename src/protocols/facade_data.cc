// SPDX-License-Identifier: BSD-3-Clause
// The C API: sending, receiving, requests. Arguments are checked here.
#include "protocols/api/tw_data.h"
#include "protocols/memory.hpp"
#include "protocols/refuse.hpp"
#include "protocols/worker.hpp"

using namespace tagwire::proto;

namespace {

constexpr std::uint32_t kAnyFlags = TW_OP_COMPLETION | TW_OP_MORE;
constexpr std::uint32_t kSendFlags = kAnyFlags | TW_OP_INJECT | TW_OP_IMM | TW_OP_INJECT_COMPLETE |
                                     TW_OP_TRANSMIT_COMPLETE | TW_OP_DELIVERY_COMPLETE |
                                     TW_OP_MATCH_COMPLETE | TW_OP_FENCE;
constexpr std::uint32_t kRecvFlags = kAnyFlags | TW_OP_TRANSMIT_COMPLETE | TW_OP_PEEK |
                                     TW_OP_CLAIM | TW_OP_DISCARD | TW_OP_MULTI_RECV;

tw_status_t check_list(const char* call, const tw_iov_t* iov, size_t iovcnt, size_t* length_p) {
    if (iovcnt > TW_IOV_MAX || (iov == nullptr && iovcnt > 0)) {
        TW_LOG_ERROR("%s: iov of %zu elements: at most %d, and not NULL", call, iovcnt, TW_IOV_MAX);
        return TW_ERR_INVALID_PARAM;
    }
    *length_p = 0;
    for (size_t i = 0; i < iovcnt; ++i) {
        if (__builtin_add_overflow(*length_p, iov[i].length, length_p)) {
            TW_LOG_ERROR("%s: the elements of iov are longer than any memory", call);
            return TW_ERR_INVALID_PARAM;
        }
    }
    return TW_OK;
}

tw_status_t check_op(const char* call, const tw_op_t& op, std::uint32_t allowed) {
    if ((op.flags & ~allowed) != 0) {
        TW_LOG_ERROR("%s: flags 0x%x: it takes 0x%x only", call, op.flags, allowed);
        return TW_ERR_INVALID_PARAM;
    }
    if (op.request != nullptr && op.complete == nullptr && (op.flags & TW_OP_COMPLETION) == 0) {
        TW_LOG_ERROR("%s: a request of the program's memory needs a callback or TW_OP_COMPLETION",
                     call);
        return TW_ERR_INVALID_PARAM;
    }
    return TW_OK;
}

tw_status_t check_memory(const char* call, const Worker& worker, const tw_op_t& op,
                         const void* base, size_t length, const tw_iov_t* list, size_t count) {
    if (op.mem == nullptr)
        return TW_OK;
    const Memory& memory = memory_of(op.mem);
    bool is_inside = &memory.context() == &worker.context();
    if (list == nullptr)
        is_inside = is_inside && memory.covers(base, length);
    for (size_t i = 0; i < count && list != nullptr; ++i)
        is_inside = is_inside && memory.covers(list[i].base, list[i].length);
    if (is_inside)
        return TW_OK;
    TW_LOG_ERROR("%s: the buffer is not inside the memory of its handle", call);
    return TW_ERR_INVALID_PARAM;
}

[[gnu::noinline]] tw_status_t check_send(const char* call, const Endpoint& ep,
                                         const Outgoing& message) {
    const tw_op_t& op = *message.op;
    tw_status_t status = check_op(call, op, kSendFlags);
    if (status == TW_OK) {
        status = check_memory(call, ep.worker, op, message.base, message.length, message.list,
                              message.count);
    }
    if (status == TW_OK && (op.flags & TW_OP_INJECT) != 0 &&
        message.length > ep.worker.options().inject_bytes) {
        TW_LOG_ERROR("%s: an injected message of %zu bytes; the limit is %zu", call, message.length,
                     static_cast<size_t>(ep.worker.options().inject_bytes));
        status = TW_ERR_EXCEEDS_LIMIT;
    }
    return status;
}

tw_status_t send(const char* call, tw_ep_h handle, const Outgoing& message) {
    if (handle == nullptr ||
        (message.base == nullptr && message.length > 0 && message.list == nullptr)) [[unlikely]] {
        TW_LOG_ERROR("%s: %s is NULL", call, handle == nullptr ? "ep" : "buffer");
        return TW_ERR_INVALID_PARAM;
    }
    Endpoint& ep = endpoint_of(handle);
    const Entry entry(ep.worker);
    if (message.op != nullptr) {
        const tw_status_t status = check_send(call, ep, message);
        if (status != TW_OK) [[unlikely]]
            return status;
    }
    return ep.send(message);
}

tw_status_t check_receive_flags(const char* call, const Incoming& wanted) {
    const tw_op_t& op = *wanted.op;
    const bool peeks = (op.flags & TW_OP_PEEK) != 0;
    const bool claims = (op.flags & TW_OP_CLAIM) != 0;
    const bool discards = (op.flags & TW_OP_DISCARD) != 0;
    const bool takes_many = (op.flags & TW_OP_MULTI_RECV) != 0;
    const char* wrong = nullptr;
    if (discards && !peeks && !claims) {
        wrong = "DISCARD goes with PEEK or with CLAIM";
    } else if (discards && peeks && claims) {
        wrong = "PEEK goes with CLAIM or with DISCARD";
    } else if (claims && !peeks && op.message == nullptr) {
        wrong = "CLAIM without PEEK needs a message";
    } else if (takes_many && (peeks || claims)) {
        wrong = "MULTI_RECV goes with neither PEEK nor CLAIM";
    } else if (takes_many && wanted.is_tagged) {
        wrong = "MULTI_RECV is for messages without a tag";
    } else if (takes_many && wanted.list != nullptr) {
        wrong = "MULTI_RECV takes one buffer";
    } else if (takes_many && op.complete == nullptr && (op.flags & TW_OP_COMPLETION) == 0) {
        wrong = "MULTI_RECV needs a callback or TW_OP_COMPLETION";
    }
    if (wrong == nullptr)
        return TW_OK;
    TW_LOG_ERROR("%s: %s", call, wrong);
    return TW_ERR_INVALID_PARAM;
}

[[gnu::noinline]] tw_status_t check_receive(const char* call, const Worker& worker,
                                            const Incoming& wanted) {
    const tw_op_t& op = *wanted.op;
    tw_status_t status = check_op(call, op, kRecvFlags);
    if (status == TW_OK)
        status = check_receive_flags(call, wanted);
    if (status == TW_OK) {
        status =
            check_memory(call, worker, op, wanted.base, wanted.length, wanted.list, wanted.count);
    }
    if (status == TW_OK && op.source != nullptr && &endpoint_of(op.source).worker != &worker) {
        TW_LOG_ERROR("%s: source is an endpoint of another worker", call);
        status = TW_ERR_INVALID_PARAM;
    }
    return status;
}

tw_status_t receive(const char* call, tw_worker_h handle, const Incoming& wanted) {
    if (handle == nullptr ||
        (wanted.base == nullptr && wanted.length > 0 && wanted.list == nullptr)) [[unlikely]] {
        TW_LOG_ERROR("%s: %s is NULL", call, handle == nullptr ? "worker" : "buffer");
        return TW_ERR_INVALID_PARAM;
    }
    Worker& worker = worker_of(handle);
    const Entry entry(worker);
    if (wanted.op != nullptr) {
        const tw_status_t status = check_receive(call, worker, wanted);
        if (status != TW_OK) [[unlikely]]
            return status;
    }
    return worker.receive(wanted);
}

}  // namespace

extern "C" {

tw_status_t tw_tag_send(tw_ep_h ep, const void* buffer, size_t length, uint64_t tag,
                        const tw_op_t* op, tw_request_h* request_p) {
    return send(__func__, ep, {buffer, length, nullptr, 0, tag, true, op, request_p});
}

tw_status_t tw_tag_sendv(tw_ep_h ep, const tw_iov_t* iov, size_t iovcnt, uint64_t tag,
                         const tw_op_t* op, tw_request_h* request_p) {
    size_t length = 0;
    const tw_status_t status = check_list(__func__, iov, iovcnt, &length);
    return status != TW_OK
               ? status
               : send(__func__, ep, {nullptr, length, iov, iovcnt, tag, true, op, request_p});
}

tw_status_t tw_msg_send(tw_ep_h ep, const void* buffer, size_t length, const tw_op_t* op,
                        tw_request_h* request_p) {
    return send(__func__, ep, {buffer, length, nullptr, 0, 0, false, op, request_p});
}

tw_status_t tw_msg_sendv(tw_ep_h ep, const tw_iov_t* iov, size_t iovcnt, const tw_op_t* op,
                         tw_request_h* request_p) {
    size_t length = 0;
    const tw_status_t status = check_list(__func__, iov, iovcnt, &length);
    return status != TW_OK
               ? status
               : send(__func__, ep, {nullptr, length, iov, iovcnt, 0, false, op, request_p});
}

tw_status_t tw_tag_recv(tw_worker_h worker, void* buffer, size_t length, uint64_t tag,
                        uint64_t ignore, const tw_op_t* op, tw_request_h* request_p) {
    return receive(__func__, worker,
                   {buffer, length, nullptr, 0, tag, ~ignore, true, op, request_p});
}

tw_status_t tw_tag_recvv(tw_worker_h worker, const tw_iov_t* iov, size_t iovcnt, uint64_t tag,
                         uint64_t ignore, const tw_op_t* op, tw_request_h* request_p) {
    size_t length = 0;
    const tw_status_t status = check_list(__func__, iov, iovcnt, &length);
    return status != TW_OK
               ? status
               : receive(__func__, worker,
                         {nullptr, length, iov, iovcnt, tag, ~ignore, true, op, request_p});
}

tw_status_t tw_msg_recv(tw_worker_h worker, void* buffer, size_t length, const tw_op_t* op,
                        tw_request_h* request_p) {
    return receive(__func__, worker,
                   {buffer, length, nullptr, 0, 0, kExactMask, false, op, request_p});
}

tw_status_t tw_msg_recvv(tw_worker_h worker, const tw_iov_t* iov, size_t iovcnt, const tw_op_t* op,
                         tw_request_h* request_p) {
    size_t length = 0;
    const tw_status_t status = check_list(__func__, iov, iovcnt, &length);
    return status != TW_OK
               ? status
               : receive(__func__, worker,
                         {nullptr, length, iov, iovcnt, 0, kExactMask, false, op, request_p});
}

tw_status_t tw_ep_flush(tw_ep_h ep, const tw_op_t* op, tw_request_h* request_p) {
    TW_REFUSE_NULL(ep);
    if (op != nullptr) {
        const tw_status_t status = check_op(__func__, *op, kAnyFlags);
        if (status != TW_OK)
            return status;
    }
    const Entry entry(endpoint_of(ep).worker);
    return endpoint_of(ep).flush(RequestKind::kFlush, op, request_p);
}

tw_status_t tw_ep_close(tw_ep_h handle, unsigned flags, const tw_op_t* op,
                        tw_request_h* request_p) {
    TW_REFUSE_NULL(handle);
    Endpoint& ep = endpoint_of(handle);
    if ((flags & ~unsigned{TW_EP_CLOSE_FORCE}) != 0)
        TW_REFUSE(TW_ERR_INVALID_PARAM, "flags 0x%x has unknown bits", flags);
    if (op != nullptr) {
        const tw_status_t status = check_op(__func__, *op, kAnyFlags);
        if (status != TW_OK)
            return status;
    }
    const Entry entry(ep.worker);
    if ((flags & TW_EP_CLOSE_FORCE) != 0 || ep.failure() != UCS_OK) {
        ep.worker.close(ep);
        return TW_OK;
    }
    if (ep.is_closing)
        TW_REFUSE(TW_ERR_INVALID_PARAM, "the endpoint is being closed");
    return ep.flush(RequestKind::kClose, op, request_p);
}

tw_status_t tw_request_cancel(tw_request_h request) {
    TW_REFUSE_NULL(request);
    Worker& worker = *request_of(request).worker;
    const Entry entry(worker);
    worker.cancel(request_of(request));
    return TW_OK;
}

tw_status_t tw_request_test(tw_request_h request, tw_completion_t* done) {
    TW_REFUSE_NULL(request);
    Worker& worker = *request_of(request).worker;
    const Entry entry(worker);
    return worker.test(request_of(request), done);
}

void tw_request_free(tw_request_h request) {
    if (request == nullptr)
        return;
    Worker& worker = *request_of(request).worker;
    const Entry entry(worker);
    worker.give_up(request_of(request));
}

size_t tw_request_bytes(void) {
    return sizeof(Request);
}

}  // extern "C"
