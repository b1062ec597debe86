// SPDX-License-Identifier: BSD-3-Clause
// Lists of puts and gets, at the initiator. A list goes one way as a whole:
//
//   by a transfer   where the lane reaches the memory of each key, and each piece can be moved
//                   where it is (transfer_list.cc)
//   by copies       where the lane reaches the memory, and needs handles that some pieces lack
//   by messages     a put in parts, which may be of different memories, with one reply; a get as
//                   many that are asked for, some at a time, of one number: replies keep the order
#include <algorithm>
#include <cstring>

#include "protocols/request/envelope.hpp"
#include "protocols/request/rail.hpp"
#include "protocols/request/request_table.hpp"
#include "protocols/rma/remote_key.hpp"
#include "protocols/rma/rma_sender.hpp"
#include "protocols/wire/limits.hpp"

namespace tagwire::proto {

namespace {

/// Gets of one list without a reply.
constexpr unsigned kListAsksMax = 64;

}  // namespace

/// Looked for once: keys that the owner tells later serve the next list.
bool RmaSender::is_list_reached(const RmaOp& op) const {
    ListOp& own = *op.list;
    const Rail& rail = to_.lane.rail();
    const std::uint8_t domain = to_.rma_lane.peer_domain;
    if (own.list.bytes == 0)
        return true;
    if (own.domain == domain)
        return own.is_reached;
    own.domain = domain;
    own.is_reached = rail.can_get() && rail.can_put() && own.list.for_keys([&](tw_key_h handle) {
        RemoteKey& key = key_of(handle);
        if (key.found(domain) != nullptr || key.resolve(domain, rail.domain()) != nullptr)
            return true;
        to_.peer.lane.want_keys(key);
        return false;
    });
    return own.is_reached;
}

ucs_status_t RmaSender::move_list(Request& request) {
    RmaOp& op = *request.rma;
    const bool is_put = op.kind == RmaKind::kPut;
    if (op.by_messages || !is_list_reached(op))
        return is_put ? put_list_by_messages(request) : ask_list(request);
    const bool needs_handles =
        (to_.lane.rail().domain().attr.cap.flags & UCT_MD_FLAG_NEED_MEMH) != 0;
    if (request.offset == 0 && (op.list->list.has_all_handles || !needs_handles))
        return make_transfer(request, nullptr);
    return is_put ? put_list_copied(request) : get_list_copied(request);
}

// ---- By copies

ucs_status_t RmaSender::put_list_copied(Request& request) {
    const auto pack = [](void* to, void* arg) {
        const ListPart& part = *static_cast<const ListPart*>(arg);
        std::memcpy(to, part.local, part.length);
        return part.length;
    };
    ListOp& own = *request.rma->list;
    const auto& cap = to_.lane.rail().attr().cap.put;
    for (;;) {
        ListPart part{};
        ListCursor behind = own.next;
        if (!behind.take(own.list, cap.max_bcopy, &part))
            return UCS_OK;
        if (request.wants_cancel)
            return UCS_ERR_CANCELED;
        const uct_rkey_t key = key_of(part.key).found(own.domain)->bundle.rkey;
        const ucs_status_t status =
            part.length <= cap.max_short
                ? uct_ep_put_short(to_.lane.ep, part.local, static_cast<unsigned>(part.length),
                                   part.remote, key)
                : status_of(uct_ep_put_bcopy(to_.lane.ep, pack, &part, part.remote, key));
        if (status != UCS_OK)
            return status;
        own.next = behind;
        request.offset += part.length;
    }
}

ucs_status_t RmaSender::get_list_copied(Request& request) {
    const auto unpack = [](void* arg, const void* data, std::size_t bytes) {
        const RmaPiece& piece = *static_cast<const RmaPiece*>(arg);
        if (piece.request != nullptr)
            std::memcpy(piece.to, data, bytes);
    };
    RmaOp& op = *request.rma;
    ListOp& own = *op.list;
    while (op.status == UCS_OK) {
        ListPart part{};
        ListCursor behind = own.next;
        if (!behind.take(own.list, to_.lane.rail().attr().cap.get.max_bcopy, &part))
            break;
        if (request.wants_cancel)
            return UCS_ERR_CANCELED;
        RmaPiece* piece = to_.ops.make_piece(request, *this);
        if (piece == nullptr)
            return UCS_ERR_NO_RESOURCE;
        piece->to = part.local;
        const ucs_status_t status =
            uct_ep_get_bcopy(to_.lane.ep, unpack, piece, part.length, part.remote,
                             key_of(part.key).found(own.domain)->bundle.rkey, piece);
        if (status != UCS_INPROGRESS)
            to_.ops.release_piece(*piece);
        if (status != UCS_INPROGRESS && status != UCS_OK)
            return status;
        own.next = behind;
        request.offset += part.length;
    }
    return op.pieces.empty() ? op.status : UCS_INPROGRESS;
}

// ---- By messages

/// Not cancelled among its parts: the owner waits for the last.
ucs_status_t RmaSender::put_list_by_messages(Request& request) {
    struct Packing {
        PutPart head;
        ListPart part;
        static std::size_t pack(void* to, void* arg) {
            const auto& packing = *static_cast<const Packing*>(arg);
            std::memcpy(to, &packing.head, sizeof packing.head);
            std::memcpy(static_cast<std::byte*>(to) + sizeof packing.head, packing.part.local,
                        packing.part.length);
            return sizeof packing.head + packing.part.length;
        }
    };
    RmaOp& op = *request.rma;
    ListOp& own = *op.list;
    if (is_acked(request) && request.id == 0 && to_.worker.requests.assign_id(request) == 0)
        return UCS_ERR_NO_MEMORY;
    const std::size_t length = request.buffer.length;
    while (request.offset < length) {
        Packing packing{};
        ListCursor behind = own.next;
        if (!behind.take(own.list, to_.lane.rail().bcopy_max - sizeof(PutPart), &packing.part))
            return UCS_ERR_IO_ERROR;  // the program has changed it
        const std::size_t end = request.offset + packing.part.length;
        packing.head = {to_.peer.peer_names,
                        request.id,
                        {key_of(packing.part.key).memory().memory, packing.part.remote},
                        end == length ? 1U : 0U,
                        0};
        const ssize_t sent = uct_ep_am_bcopy(to_.lane.ep, static_cast<std::uint8_t>(AmId::kPut),
                                             Packing::pack, &packing, 0);
        if (sent < 0)
            return static_cast<ucs_status_t>(sent);
        op.by_messages = true;
        own.next = behind;
        request.offset = end;
    }
    ++unanswered_;
    to_.worker.count(WorkerCounter::kRmaAsked);
    return UCS_OK;
}

/// Asks for the next pieces. UCS_INPROGRESS: replies are to come.
ucs_status_t RmaSender::ask_list(Request& request) {
    RmaOp& op = *request.rma;
    ListOp& own = *op.list;
    if (request.id == 0 && to_.worker.requests.assign_id(request) == 0)
        return UCS_ERR_NO_MEMORY;
    if (request.wants_cancel && op.by_messages && op.status == UCS_OK)
        op.status = UCS_ERR_CANCELED;
    while (op.status == UCS_OK && own.asked < own.list.bytes) {
        if (own.replies >= kListAsksMax || !may_ask())
            return own.replies > 0 ? UCS_INPROGRESS : UCS_ERR_NO_RESOURCE;
        ListPart part{};
        ListCursor behind = own.next;
        if (!behind.take(own.list, SIZE_MAX, &part))
            return UCS_ERR_IO_ERROR;  // the program has changed it
        RmaRequest message{};
        message.sender = to_.peer.peer_names;
        message.op_id = request.id;
        message.at = {key_of(part.key).memory().memory, part.remote};
        message.length = part.length;
        message.kind = RmaKind::kGet;
        const ucs_status_t status = send_request(message);
        if (status == UCS_ERR_NO_RESOURCE && own.replies > 0)
            return UCS_INPROGRESS;
        if (status != UCS_OK)
            return status;
        op.by_messages = true;
        ++unanswered_;
        ++own.replies;
        to_.worker.count(WorkerCounter::kRmaAsked);
        own.next = behind;
        own.asked += part.length;
    }
    if (own.replies > 0)
        return UCS_INPROGRESS;
    op.has_reply = true;
    return op.status;
}

bool RmaSender::on_list_data(const GetMessage& message, Request& request) {
    RmaOp& op = *request.rma;
    ListOp& own = *op.list;
    if (op.kind != RmaKind::kGet || own.replies == 0)
        return false;
    if (own.part.length == 0 && !own.coming.take(own.list, SIZE_MAX, &own.part))
        return false;
    if (message.head.offset != own.got || message.data.size() > own.part.length - own.got)
        return false;
    std::memcpy(own.part.local + own.got, message.data.data(), message.data.size());
    own.got += message.data.size();
    request.offset += message.data.size();
    return true;
}

/// The next piece of those that were asked for is here, or was refused.
void RmaSender::on_list_reply(Request& request, ucs_status_t status) {
    RmaOp& op = *request.rma;
    ListOp& own = *op.list;
    if (own.part.length == 0 && !own.coming.take(own.list, SIZE_MAX, &own.part))
        status = UCS_ERR_IO_ERROR;
    if (status == UCS_OK && own.got != own.part.length)
        status = UCS_ERR_IO_ERROR;
    own.part = {};
    own.got = 0;
    --own.replies;
    --unanswered_;
    if (op.status == UCS_OK)
        op.status = status;
    const bool is_over = op.status != UCS_OK || request.wants_cancel || own.asked == own.list.bytes;
    if (own.replies == 0) {
        op.has_reply = is_over;
        settle(request,
               request.wants_cancel && own.asked < own.list.bytes ? UCS_ERR_CANCELED : UCS_OK);
    } else if (!is_over && own.replies <= kListAsksMax / 2 && request.is_outstanding &&
               !request.is_queued) {
        to_.peer.lane.push_data(request);
    }
}

}  // namespace tagwire::proto
