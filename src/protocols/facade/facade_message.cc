// SPDX-License-Identifier: BSD-3-Clause
// The C API: messages that are here before their receive, and receives in buffers of the library.
// Arguments are checked here.
#include "protocols/api/tw_data.h"
#include "protocols/api/tw_message.h"
#include "protocols/facade/check_call.hpp"
#include "protocols/facade/receive_call.hpp"
#include "protocols/request/refuse.hpp"
#include "protocols/worker/endpoint.hpp"
#include "protocols/worker/entry.hpp"
#include "protocols/worker/worker.hpp"
#include "ucs/memory/reserve.hpp"

using namespace tagwire::proto;

namespace {

/// The messages that a probe looks for.
struct Probe {
    uint64_t tag;
    uint64_t mask;
    bool is_tagged;
    tw_ep_h source;
};

tw_status_t probe(const char* call, tw_worker_h handle, const Probe& wanted,
                  tw_message_info_t* info, tw_message_h* message_p) try {
    if (handle == nullptr)
        return refuse_null(call, "worker");
    if (info != nullptr && !tagwire::ucs::has_size(*info))
        return refuse_size(call, "info", info->struct_bytes, sizeof *info);
    WorkerCore& worker = core_of(handle);
    const Entry entry(worker);
    if (const tw_status_t status = check_source(call, worker, wanted.source); status != TW_OK)
        return status;
    const Endpoint* const from = wanted.source == nullptr ? nullptr : &endpoint_of(wanted.source);
    Receiver& receiver = worker.receiver();
    Unexpected* const found = receiver.probe(wanted.is_tagged, wanted.tag, wanted.mask, from);
    if (found == nullptr)
        return TW_ERR_NO_MESSAGE;
    if (message_p != nullptr) {
        receiver.claim(*found);
        *message_p = found;
    }
    if (info != nullptr)
        tagwire::ucs::write_sized(Receiver::info_of(*found), info);
    return TW_OK;
} catch (const std::bad_alloc&) {
    return refuse_no_memory(call);
}

tw_status_t receive(const char* call, tw_worker_h worker, const Incoming& wanted) {
    return worker == nullptr ? refuse_null(call, "worker")
                             : receive_long(call, worker_of(worker), wanted);
}

tw_status_t receive_without_buffer(const char* call, tw_worker_h worker, const Probe& wanted,
                                   std::uint32_t kind, const tw_op_t* op, tw_request_h* request_p) {
    return receive(call, worker,
                   {nullptr, 0, nullptr, 0, wanted.tag, wanted.mask, wanted.is_tagged, op,
                    request_p, kBufferedReceive | kind});
}

constexpr Probe kUntagged{0, kExactMask, false, nullptr};

}  // namespace

extern "C" {

tw_status_t tw_tag_probe(tw_worker_h worker, uint64_t tag, uint64_t ignore, tw_ep_h source,
                         tw_message_info_t* info, tw_message_h* message_p) {
    return probe(__func__, worker, {tag, ~ignore, true, source}, info, message_p);
}

tw_status_t tw_msg_probe(tw_worker_h worker, tw_ep_h source, tw_message_info_t* info,
                         tw_message_h* message_p) {
    return probe(__func__, worker, {0, kExactMask, false, source}, info, message_p);
}

tw_status_t tw_message_recv(tw_worker_h worker, tw_message_h message, void* buffer, size_t length,
                            const tw_op_t* op, tw_request_h* request_p) {
    TW_REFUSE_NULL(message);
    return receive(__func__, worker,
                   {buffer, length, nullptr, 0, 0, 0, false, op, request_p, 0,
                    static_cast<Unexpected*>(message)});
}

tw_status_t tw_message_recvv(tw_worker_h worker, tw_message_h message, const tw_iov_t* iov,
                             size_t iovcnt, const tw_op_t* op, tw_request_h* request_p) {
    TW_REFUSE_NULL(message);
    return receive_list(__func__, worker,
                        {nullptr, 0, iov, iovcnt, 0, 0, false, op, request_p, 0,
                         static_cast<Unexpected*>(message)});
}

tw_status_t tw_message_drop(tw_worker_h handle, tw_message_h message) try {
    TW_REFUSE_NULL(handle);
    TW_REFUSE_NULL(message);
    WorkerCore& worker = core_of(handle);
    const Entry entry(worker);
    const LeavesWork work(worker);
    if (check_message(__func__, worker, message) == nullptr)
        return TW_ERR_INVALID_PARAM;
    worker.matches().drop(message);
    return TW_OK;
} catch (const std::bad_alloc&) {
    return refuse_no_memory(__func__);
}

tw_status_t tw_tag_recv_buffered(tw_worker_h worker, uint64_t tag, uint64_t ignore,
                                 const tw_op_t* op, tw_request_h* request_p) {
    return receive_without_buffer(__func__, worker, {tag, ~ignore, true, nullptr}, 0, op,
                                  request_p);
}

tw_status_t tw_msg_recv_buffered(tw_worker_h worker, const tw_op_t* op, tw_request_h* request_p) {
    return receive_without_buffer(__func__, worker, kUntagged, 0, op, request_p);
}

tw_status_t tw_msg_recv_buffered_multi(tw_worker_h worker, const tw_op_t* op,
                                       tw_request_h* request_p) {
    return receive_without_buffer(__func__, worker, kUntagged, kMultiReceive, op, request_p);
}

tw_status_t tw_msg_recv_multi(tw_worker_h worker, void* buffer, size_t length, const tw_op_t* op,
                              tw_request_h* request_p) {
    return receive(
        __func__, worker,
        {buffer, length, nullptr, 0, 0, kExactMask, false, op, request_p, kMultiReceive});
}

}  // extern "C"
