// SPDX-License-Identifier: BSD-3-Clause
// One-sided operations by messages, at the initiator.
#include <algorithm>
#include <cstring>

#include "protocols/request/envelope.hpp"
#include "protocols/request/rail.hpp"
#include "protocols/request/request_table.hpp"
#include "protocols/rma/remote_key.hpp"
#include "protocols/rma/rma_sender.hpp"

namespace tagwire::proto {

namespace {

/// Messages of one struct.
template <class Message>
ucs_status_t send_alone(uct_ep_h lane, AmId id, const Message& message) {
    const auto pack = [](void* to, void* arg) {
        std::memcpy(to, arg, sizeof(Message));
        return sizeof(Message);
    };
    return status_of(uct_ep_am_bcopy(lane, static_cast<std::uint8_t>(id), pack,
                                     const_cast<Message*>(&message), 0));
}

bool waits_for_reply(const Request& request) {
    const RmaOp& op = *request.rma;
    return op.kind == RmaKind::kGet || op.kind == RmaKind::kKeys || op.result != nullptr ||
           is_acked(request);
}

}  // namespace

ucs_status_t RmaSender::put_by_messages(Request& request) {
    struct Packing {
        PutPart head;
        const Request* request;
        std::size_t bytes;
        static std::size_t pack(void* to, void* arg) {
            const auto& packing = *static_cast<const Packing*>(arg);
            std::memcpy(to, &packing.head, sizeof packing.head);
            packing.request->buffer.gather(static_cast<std::byte*>(to) + sizeof packing.head,
                                           packing.request->offset, packing.bytes);
            return sizeof packing.head + packing.bytes;
        }
    };
    RmaOp& op = *request.rma;
    if (waits_for_reply(request) && request.id == 0 && to_.worker.requests.assign_id(request) == 0)
        return UCS_ERR_NO_MEMORY;
    const std::size_t length = request.buffer.length;
    while (request.offset < length) {
        Packing packing{};
        packing.request = &request;
        packing.bytes =
            std::min(to_.lane.rail().bcopy_max - sizeof(PutPart), length - request.offset);
        packing.head = {to_.peer.peer_names,
                        request.id,
                        {op.key->memory().memory, op.address + request.offset},
                        request.offset + packing.bytes == length ? 1U : 0U,
                        0};
        const ssize_t sent = uct_ep_am_bcopy(to_.lane.ep, static_cast<std::uint8_t>(AmId::kPut),
                                             Packing::pack, &packing, 0);
        if (sent < 0)
            return static_cast<ucs_status_t>(sent);
        op.by_messages = true;
        request.offset += packing.bytes;
    }
    ++unanswered_;
    to_.worker.count(WorkerCounter::kRmaAsked);
    return UCS_OK;
}

/// A get, an atomic, or the keys of the owner.
ucs_status_t RmaSender::ask(Request& request) {
    RmaOp& op = *request.rma;
    const bool waits = waits_for_reply(request);
    if (waits && request.id == 0 && to_.worker.requests.assign_id(request) == 0)
        return UCS_ERR_NO_MEMORY;
    RmaRequest message{};
    message.sender = to_.peer.peer_names;
    message.op_id = request.id;
    message.at = {op.key->memory().memory, op.address};
    message.length = op.kind == RmaKind::kAtomic ? op.number_bytes() : request.buffer.length;
    message.operand = op.operand;
    message.compare = op.compare;
    message.kind = op.kind;
    message.operation = op.operation;
    message.type = op.type;
    const ucs_status_t status = send_alone(to_.lane.ep, AmId::kRmaRequest, message);
    if (status != UCS_OK)
        return status;
    op.by_messages = true;
    ++unanswered_;
    if (op.kind != RmaKind::kKeys)
        to_.worker.count(WorkerCounter::kRmaAsked);
    return waits ? UCS_INPROGRESS : UCS_OK;
}

ucs_status_t RmaSender::send_request(const RmaRequest& message) {
    return send_alone(to_.lane.ep, AmId::kRmaRequest, message);
}

ucs_status_t RmaSender::send_notice(const Request& request) {
    const RmaOp& op = *request.rma;
    Notice message{};
    message.sender = to_.peer.peer_names;
    message.kind = op.kind;
    message.at = {op.key->memory().memory, op.address};
    message.length = request.buffer.length;
    message.imm = request.done.imm;
    message.is_list = op.list != nullptr ? 1 : 0;
    return send_alone(to_.lane.ep, AmId::kNotice, message);
}

// ---- Messages of the owner

bool RmaSender::on_data(const GetMessage& message, Request* request) {
    if (request == nullptr || !to_.peer.lane.is_of(request->ep) || request->rma == nullptr)
        return false;
    const RmaOp& op = *request->rma;
    if (op.list != nullptr)
        return on_list_data(message, *request);
    const bool has_data = op.kind == RmaKind::kGet || op.kind == RmaKind::kKeys;
    if (!has_data || !op.by_messages || op.has_reply || message.head.offset != request->offset ||
        message.data.size() > request->buffer.length - request->offset)
        return false;
    request->buffer.scatter(request->offset, message.data.data(), message.data.size());
    request->offset += message.data.size();
    return true;
}

bool RmaSender::on_reply(RmaReply message, Request* request) {
    if (unanswered_ == 0)
        return false;
    ucs_status_t status = UCS_OK;
    if (message.status < 0) {
        status = message.status > UCS_ERR_LAST ? static_cast<ucs_status_t>(message.status)
                                               : UCS_ERR_IO_ERROR;
    }
    if (message.op_id == 0) {
        --unanswered_;
        if (status != UCS_OK)
            to_.flushes.note_refusal(status);
        to_.peer.lane.request_ended();
        return true;
    }
    if (request == nullptr || !to_.peer.lane.is_of(request->ep) || request->rma == nullptr ||
        !request->rma->by_messages || request->rma->has_reply)
        return false;
    RmaOp& op = *request->rma;
    if (op.list != nullptr && op.kind == RmaKind::kGet) {
        if (op.list->replies == 0)
            return false;
        on_list_reply(*request, status);
        return true;
    }
    --unanswered_;
    op.has_reply = true;
    if (status == UCS_OK && op.kind == RmaKind::kGet && request->offset != request->buffer.length)
        status = UCS_ERR_IO_ERROR;
    if (status == UCS_OK && op.kind == RmaKind::kAtomic)
        store_result(op, message.before);
    if (op.kind == RmaKind::kKeys)
        op.key->owner_told(status == UCS_OK ? request->offset : 0);
    settle(*request, status);
    return true;
}

}  // namespace tagwire::proto
