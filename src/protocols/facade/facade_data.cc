// SPDX-License-Identifier: BSD-3-Clause
// The C API: sending, receiving, requests. Arguments are checked here.
#include <cstring>

#include "protocols/api/tw_data.h"
#include "protocols/api/tw_endpoint.h"
#include "protocols/facade/called_endpoint.hpp"
#include "protocols/facade/check_call.hpp"
#include "protocols/facade/receive_call.hpp"
#include "protocols/request/refuse.hpp"
#include "protocols/worker/entry.hpp"
#include "protocols/worker/fast_path.hpp"
#include "protocols/worker/worker.hpp"
#include "ucs/memory/reserve.hpp"
#include "ucs/sys/keep_in_memory.hpp"

using namespace tagwire::proto;

namespace {

[[gnu::noinline]] tw_status_t send_long(const char* call, Endpoint& to, Outgoing message) try {
    const WholeOp op(message.op);
    if (const tw_status_t status = op.check(call); status != TW_OK)
        return status;
    message.op = op.get();
    Endpoint& ep = way_of(to);
    if (message.base == nullptr && message.length > 0 && message.list == nullptr)
        return refuse_null(call, "buffer");
    if (tagwire::ucs::reserve_is_low())
        return TW_ERR_NO_MEMORY;
    const Entry entry(ep.worker);
    if (message.list == nullptr && is_plain_send_with_imm(message.op) &&
        ep.may_send_short_imm(message.length) && ep.try_send_short_imm(message))
        return TW_OK;
    const LeavesWork work(ep.worker);
    if (message.op != nullptr) {
        const tw_status_t status = check_send(call, ep.worker.context(), message);
        if (status != TW_OK)
            return status;
    }
    return ep.send(message);
} catch (const std::bad_alloc&) {
    return refuse_no_memory(call);
}

/// A plain send may take the fast path.
[[gnu::always_inline]] inline bool is_plain(tw_ep_h handle, const void* data, size_t length,
                                            const tw_op_t* op) {
    return handle != nullptr && is_plain_send(op) && (data != nullptr || length == 0);
}

/// Another thread has the lock. False: it sends the message.
[[gnu::noinline]] bool lock_for_send(const Endpoint& ep, const void* data, size_t length,
                                     uint64_t tag, bool is_tagged) {
    WorkerLock& lock = ep.worker.lock;
    if (length > kDelegatedBytesMax || !ep.may_send_short(length)) {
        lock.lock_briefly();
        return true;
    }
    const auto fill = [&](DelegatedCall& call) {
        call.ep = const_cast<Endpoint*>(&ep);
        call.tag = tag;
        call.is_tagged = is_tagged ? 1 : 0;
        call.data_bytes = static_cast<std::uint32_t>(length);
        if (length > 0)
            std::memcpy(call.data, data, length);
    };
    return lock.lock_briefly_or_delegate(fill) == tagwire::ucs::Delegated::kNo;
}

/// In one buffer. An injected message may be too long for that; the slow path says so.
[[gnu::always_inline]] inline bool try_send_buffered(Endpoint& ep, const void* data, size_t length,
                                                     uint64_t tag, bool is_tagged,
                                                     const tw_op_t* op) {
    const bool is_injected = op != nullptr && (op->flags & TW_OP_INJECT) != 0;
    return (!is_injected || length <= ep.worker.options().inject_bytes) &&
           ep.try_send_plain(data, length, tag, is_tagged);
}

/// The fast path of what is_plain(), but not short, or of a worker with a lock. Nothing here
/// throws. False: the call takes the slow path.
[[gnu::always_inline]] inline bool try_send_otherwise(Endpoint& ep, const void* data, size_t length,
                                                      uint64_t tag, bool is_tagged,
                                                      const tw_op_t* op) {
    WorkerCore& worker = ep.worker;
    if (!worker.is_multi)
        return try_send_buffered(ep, data, length, tag, is_tagged, op);
    if (!worker.lock.try_lock_briefly() && !lock_for_send(ep, data, length, tag, is_tagged))
        return true;
    const bool is_sent = ep.may_send_short(length)
                             ? ep.try_send_short(data, length, tag, is_tagged)
                             : try_send_buffered(ep, data, length, tag, is_tagged, op);
    worker.lock.unlock_briefly();
    return is_sent;
}

// These have the arguments of the calls of the API, so that those, and each the next one, jump:
// whatever is in one piece; a plain message that is not short, or of a worker with a lock.
[[gnu::noinline]] tw_status_t tag_send_slowly(tw_ep_h handle, const void* data, size_t length,
                                              uint64_t tag, const tw_op_t* op,
                                              tw_request_h* request_p) {
    if (handle == nullptr)
        return refuse_null("tw_tag_send", "ep");
    return send_long("tw_tag_send", endpoint_of(handle),
                     {data, length, nullptr, 0, tag, true, op, request_p});
}

[[gnu::noinline]] tw_status_t msg_send_slowly(tw_ep_h handle, const void* data, size_t length,
                                              const tw_op_t* op, tw_request_h* request_p) {
    if (handle == nullptr)
        return refuse_null("tw_msg_send", "ep");
    return send_long("tw_msg_send", endpoint_of(handle),
                     {data, length, nullptr, 0, 0, false, op, request_p});
}

[[gnu::noinline]] tw_status_t tag_send_otherwise(tw_ep_h handle, const void* data, size_t length,
                                                 uint64_t tag, const tw_op_t* op,
                                                 tw_request_h* request_p) {
    if (try_send_otherwise(way_of(endpoint_of(handle)), data, length, tag, true, op))
        return TW_OK;
    return tag_send_slowly(handle, data, length, tag, op, request_p);
}

/// The arguments of a plain send, in memory while the transport is called.
struct SendCall {
    tw_ep_h ep;
    const void* data;
    size_t length;
    uint64_t tag;
    const tw_op_t* op;
    tw_request_h* request_p;
};

/// The worker has a lock, and that is free; else, and where the lane is not, the next one.
[[gnu::noinline]] tw_status_t tag_send_long(tw_ep_h handle, const void* data, size_t length,
                                            uint64_t tag, const tw_op_t* op,
                                            tw_request_h* request_p) {
    Endpoint& ep = endpoint_of(handle);
    if (ep.tx.contexts != nullptr || !ep.worker.is_multi || !ep.worker.lock.try_lock_briefly())
        [[unlikely]]
        return tag_send_otherwise(handle, data, length, tag, op, request_p);
    SendCall call{handle, data, length, tag, op, request_p};
    tagwire::ucs::keep_in_memory(call);
    bool is_sent = false;
    if (ep.may_send_short(length)) [[likely]] {
        is_sent = ep.try_transmit_short(data, length, tag, true);
        if (is_sent) [[likely]]
            endpoint_of(call.ep).note_short(call.length);
    } else {
        is_sent = try_send_buffered(ep, data, length, tag, true, op);
    }
    endpoint_of(call.ep).worker.lock.unlock_briefly();
    if (is_sent) [[likely]]
        return TW_OK;
    return tag_send_slowly(call.ep, call.data, call.length, call.tag, call.op, call.request_p);
}

[[gnu::noinline]] tw_status_t msg_send_long(tw_ep_h handle, const void* data, size_t length,
                                            const tw_op_t* op, tw_request_h* request_p) {
    if (try_send_otherwise(way_of(endpoint_of(handle)), data, length, 0, false, op))
        return TW_OK;
    return msg_send_slowly(handle, data, length, op, request_p);
}

tw_status_t send_list(const char* call, tw_ep_h handle, const tw_iov_t* iov, size_t iovcnt,
                      uint64_t tag, bool is_tagged, const tw_op_t* op, tw_request_h* request_p) {
    if (handle == nullptr)
        return refuse_null(call, "ep");
    size_t length = 0;
    const tw_status_t status = check_list(call, iov, iovcnt, &length);
    if (status != TW_OK)
        return status;
    return send_long(call, endpoint_of(handle),
                     {nullptr, length, iov, iovcnt, tag, is_tagged, op, request_p});
}

/// Another thread has the lock. False: it posts the receive.
[[gnu::noinline]] bool lock_for_receive(Worker& worker, void* buffer, size_t length, uint64_t tag,
                                        uint64_t mask, bool is_tagged, const tw_op_t& how,
                                        const tw_request_h* request_p) {
    if (request_p != nullptr || how.source != nullptr) {
        worker.lock.lock_briefly();
        return true;
    }
    const auto fill = [&](DelegatedCall& call) {
        call.ep = nullptr;
        call.tag = tag;
        call.is_tagged = is_tagged ? 1 : 0;
        call.length = length;
        call.receive = {buffer, mask, how.complete, how.context, how.flags};
    };
    return worker.lock.lock_briefly_or_delegate(fill) == tagwire::ucs::Delegated::kNo;
}

/// The end of a receive by the fast path.
enum class ShortReceive : std::uint8_t {
    kNo,  // it takes the slow path, which looks at everything again
    kPosted,
    kTaken  // its message was there
};

/// The fast path of a worker with a lock, or from one source, or of a message that is there.
/// Nothing here throws.
[[gnu::always_inline]] inline ShortReceive try_receive_short(Worker& worker, void* buffer,
                                                             size_t length, uint64_t tag,
                                                             uint64_t ignore, bool is_tagged,
                                                             const tw_op_t* op,
                                                             tw_request_h* request_p) {
    const tw_op_t& how = op == nullptr ? kPlainOp : *op;
    if (worker.device_tags() != nullptr || !is_plain_but_for_source(how) ||
        (buffer == nullptr && length > 0))
        return ShortReceive::kNo;
    if (worker.is_multi && !worker.lock.try_lock_briefly() &&
        !lock_for_receive(worker, buffer, length, tag, ~ignore, is_tagged, how, request_p))
        return ShortReceive::kPosted;
    std::uint32_t source = kAnySource;
    bool may_post = true;
    if (how.source != nullptr) {
        const Endpoint& from = endpoint_of(how.source);
        may_post = &from.worker == &worker && from.failure() == UCS_OK;
        source = may_post ? from.source : kAnySource;
    }
    auto how_ended = ShortReceive::kNo;
    if (may_post && try_take_plain(worker, buffer, length, tag, ~ignore, is_tagged, how, source))
        how_ended = ShortReceive::kTaken;
    else if (may_post && try_post_short(worker, buffer, length, tag, ~ignore, is_tagged, how,
                                        request_p, source))
        how_ended = ShortReceive::kPosted;
    if (worker.is_multi)
        worker.lock.unlock_briefly();
    return how_ended;
}

// These have the arguments of the calls of the API, so that those jump here.
[[gnu::noinline]] tw_status_t tag_recv_long(tw_worker_h handle, void* buffer, size_t length,
                                            uint64_t tag, uint64_t ignore, const tw_op_t* op,
                                            tw_request_h* request_p) {
    if (handle == nullptr)
        return refuse_null("tw_tag_recv", "worker");
    const ShortReceive ended =
        try_receive_short(worker_of(handle), buffer, length, tag, ignore, true, op, request_p);
    if (ended != ShortReceive::kNo)
        return ended == ShortReceive::kTaken ? TW_OK : TW_INPROGRESS;
    return receive_long("tw_tag_recv", worker_of(handle),
                        {buffer, length, nullptr, 0, tag, ~ignore, true, op, request_p});
}

[[gnu::noinline]] tw_status_t msg_recv_long(tw_worker_h handle, void* buffer, size_t length,
                                            const tw_op_t* op, tw_request_h* request_p) {
    if (handle == nullptr)
        return refuse_null("tw_msg_recv", "worker");
    const ShortReceive ended =
        try_receive_short(worker_of(handle), buffer, length, 0, 0, false, op, request_p);
    if (ended != ShortReceive::kNo)
        return ended == ShortReceive::kTaken ? TW_OK : TW_INPROGRESS;
    return receive_long("tw_msg_recv", worker_of(handle),
                        {buffer, length, nullptr, 0, 0, kExactMask, false, op, request_p});
}

/// A receive that may take the fast path.
[[gnu::always_inline]] inline bool is_plain(tw_worker_h handle, const void* buffer, size_t length,
                                            const tw_op_t* op) {
    return handle != nullptr && is_plain_receive(op == nullptr ? kPlainOp : *op) &&
           (buffer != nullptr || length == 0);
}

/// ... of a worker without a lock. False: the call takes the slow one.
[[gnu::always_inline]] inline bool try_receive(tw_worker_h handle, void* buffer, size_t length,
                                               uint64_t tag, uint64_t ignore, bool is_tagged,
                                               const tw_op_t* op, tw_request_h* request_p) {
    return try_post_short(worker_of(handle), buffer, length, tag, ~ignore, is_tagged,
                          op == nullptr ? kPlainOp : *op, request_p, kAnySource);
}

/// ... of a worker with a lock, if that is free.
[[gnu::always_inline]] inline bool try_receive_locked(tw_worker_h handle, void* buffer,
                                                      size_t length, uint64_t tag, uint64_t ignore,
                                                      bool is_tagged, const tw_op_t* op,
                                                      tw_request_h* request_p) {
    WorkerLock& lock = worker_of(handle).lock;
    if (!lock.try_lock_briefly())
        return false;
    const bool is_posted =
        try_receive(handle, buffer, length, tag, ignore, is_tagged, op, request_p);
    lock.unlock_briefly();
    return is_posted;
}

[[gnu::noinline]] tw_status_t tag_recv_locked(tw_worker_h handle, void* buffer, size_t length,
                                              uint64_t tag, uint64_t ignore, const tw_op_t* op,
                                              tw_request_h* request_p) {
    if (worker_of(handle).receive_path == ReceivePath::kLocked &&
        try_receive_locked(handle, buffer, length, tag, ignore, true, op, request_p)) [[likely]]
        return TW_INPROGRESS;
    return tag_recv_long(handle, buffer, length, tag, ignore, op, request_p);
}

[[gnu::noinline]] tw_status_t msg_recv_locked(tw_worker_h handle, void* buffer, size_t length,
                                              const tw_op_t* op, tw_request_h* request_p) {
    if (try_receive_locked(handle, buffer, length, 0, 0, false, op, request_p)) [[likely]]
        return TW_INPROGRESS;
    return msg_recv_long(handle, buffer, length, op, request_p);
}

}  // namespace

extern "C" {

tw_status_t tw_tag_send(tw_ep_h ep, const void* buffer, size_t length, uint64_t tag,
                        const tw_op_t* op, tw_request_h* request_p) {
    if (!is_plain(ep, buffer, length, op)) [[unlikely]]
        return tag_send_slowly(ep, buffer, length, tag, op, request_p);
    if (!endpoint_of(ep).may_send_unlocked(length)) [[unlikely]]
        return tag_send_long(ep, buffer, length, tag, op, request_p);
    SendCall call{ep, buffer, length, tag, op, request_p};
    tagwire::ucs::keep_in_memory(call);
    if (!endpoint_of(ep).try_transmit_short(buffer, length, tag, true)) [[unlikely]]
        return tag_send_slowly(call.ep, call.data, call.length, call.tag, call.op, call.request_p);
    endpoint_of(call.ep).note_short(call.length);
    return TW_OK;
}

tw_status_t tw_tag_sendv(tw_ep_h ep, const tw_iov_t* iov, size_t iovcnt, uint64_t tag,
                         const tw_op_t* op, tw_request_h* request_p) {
    return send_list(__func__, ep, iov, iovcnt, tag, true, op, request_p);
}

tw_status_t tw_msg_send(tw_ep_h ep, const void* buffer, size_t length, const tw_op_t* op,
                        tw_request_h* request_p) {
    if (!is_plain(ep, buffer, length, op)) [[unlikely]]
        return msg_send_slowly(ep, buffer, length, op, request_p);
    if (endpoint_of(ep).may_send_unlocked(length) &&
        endpoint_of(ep).try_send_short(buffer, length, 0, false)) [[likely]]
        return TW_OK;
    return msg_send_long(ep, buffer, length, op, request_p);
}

tw_status_t tw_msg_sendv(tw_ep_h ep, const tw_iov_t* iov, size_t iovcnt, const tw_op_t* op,
                         tw_request_h* request_p) {
    return send_list(__func__, ep, iov, iovcnt, 0, false, op, request_p);
}

tw_status_t tw_tag_recv(tw_worker_h worker, void* buffer, size_t length, uint64_t tag,
                        uint64_t ignore, const tw_op_t* op, tw_request_h* request_p) {
    if (!is_plain(worker, buffer, length, op)) [[unlikely]]
        return tag_recv_long(worker, buffer, length, tag, ignore, op, request_p);
    if (worker_of(worker).receive_path != ReceivePath::kFast) [[unlikely]]
        return tag_recv_locked(worker, buffer, length, tag, ignore, op, request_p);
    if (try_receive(worker, buffer, length, tag, ignore, true, op, request_p)) [[likely]]
        return TW_INPROGRESS;
    return tag_recv_long(worker, buffer, length, tag, ignore, op, request_p);
}

tw_status_t tw_tag_recvv(tw_worker_h worker, const tw_iov_t* iov, size_t iovcnt, uint64_t tag,
                         uint64_t ignore, const tw_op_t* op, tw_request_h* request_p) {
    return receive_list(__func__, worker,
                        {nullptr, 0, iov, iovcnt, tag, ~ignore, true, op, request_p});
}

tw_status_t tw_msg_recv(tw_worker_h worker, void* buffer, size_t length, const tw_op_t* op,
                        tw_request_h* request_p) {
    if (!is_plain(worker, buffer, length, op)) [[unlikely]]
        return msg_recv_long(worker, buffer, length, op, request_p);
    const ReceivePath path = worker_of(worker).receive_path;
    if (path == ReceivePath::kFast) [[likely]] {
        if (try_receive(worker, buffer, length, 0, 0, false, op, request_p)) [[likely]]
            return TW_INPROGRESS;
    } else if (path == ReceivePath::kLocked) {
        return msg_recv_locked(worker, buffer, length, op, request_p);
    }
    return msg_recv_long(worker, buffer, length, op, request_p);
}

tw_status_t tw_msg_recvv(tw_worker_h worker, const tw_iov_t* iov, size_t iovcnt, const tw_op_t* op,
                         tw_request_h* request_p) {
    return receive_list(__func__, worker,
                        {nullptr, 0, iov, iovcnt, 0, kExactMask, false, op, request_p});
}

tw_status_t tw_request_cancel(tw_request_h request) try {
    TW_REFUSE_NULL(request);
    Worker& worker = worker_of(*request_of(request).worker);
    const Entry entry(worker);
    const LeavesWork work(worker);
    worker.cancel(request_of(request));
    return TW_OK;
} catch (const std::bad_alloc&) {
    return refuse_no_memory(__func__);
}

tw_status_t tw_request_test(tw_request_h request, tw_completion_t* done) {
    TW_REFUSE_NULL(request);
    if (!request_of(request).worker->is_multi) [[likely]]  // no lock is kept for it: that costs
        return request_of(request).test(done);
    const BriefEntry entry(*request_of(request).worker);
    return request_of(request).test(done);
}

void tw_request_free(tw_request_h request) {
    if (request == nullptr)
        return;
    WorkerCore& worker = *request_of(request).worker;
    const BriefEntry entry(worker);
    worker.requests().abandon(request_of(request));
}

}  // extern "C"
