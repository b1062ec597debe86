// SPDX-License-Identifier: BSD-3-Clause
// Calls, steps and ends of one-sided operations; the ways by the lane.
#include "protocols/rma/rma_sender.hpp"

#include <algorithm>

#include <uct/api/tagwire_uct.h>

#include "protocols/request/envelope.hpp"
#include "protocols/request/memory.hpp"
#include "protocols/request/rail.hpp"
#include "protocols/request/request_table.hpp"
#include "protocols/rma/atomics.hpp"
#include "protocols/rma/remote_key.hpp"
#include "protocols/transfer/transfer.hpp"

namespace tagwire::proto {

namespace {

/// Puts of registered memory up to this length are copied: cheaper than a completion of the device.
constexpr std::size_t kCopiedPutMax = 2048;
/// Times that an emulated operation tries in one step, where the lane answers at once.
constexpr unsigned kTriesMax = 64;

std::uint32_t done_flag_of(RmaKind kind) {
    return kind == RmaKind::kPut   ? TW_DONE_PUT
           : kind == RmaKind::kGet ? TW_DONE_GET
                                   : TW_DONE_ATOMIC;
}

/// UCT_ATOMIC_OP_LAST: transports have no such operation.
uct_atomic_op_t uct_atomic_of(std::uint8_t operation) {
    switch (operation) {
        case TW_ATOMIC_ADD:
            return UCT_ATOMIC_OP_ADD;
        case TW_ATOMIC_AND:
            return UCT_ATOMIC_OP_AND;
        case TW_ATOMIC_OR:
            return UCT_ATOMIC_OP_OR;
        case TW_ATOMIC_XOR:
            return UCT_ATOMIC_OP_XOR;
        case TW_ATOMIC_SWAP:
            return UCT_ATOMIC_OP_SWAP;
        case TW_ATOMIC_CSWAP:
            return UCT_ATOMIC_OP_CSWAP;
        default:
            return UCT_ATOMIC_OP_LAST;
    }
}

/// The lane has this operation, and it answers what was there before.
bool has_fetch(const Rail& rail, const RmaWish& wish) {
    const auto& cap = rail.attr().cap;
    const uct_atomic_op_t opcode = uct_atomic_of(wish.operation);
    return opcode != UCT_ATOMIC_OP_LAST &&
           ((wish.number_bytes() == sizeof(std::uint32_t) ? cap.atomic32 : cap.atomic64).fop_flags &
            (std::uint64_t{1} << opcode)) != 0;
}

/// An atomic whose number before is wanted: in *before, or when `done` is called.
ucs_status_t post_atomic(uct_ep_h lane, const RmaWish& op, std::uint8_t operation,
                         std::uint64_t operand, std::uint64_t compare, uct_rkey_t key,
                         std::uint64_t* before, uct_completion_t* done) {
    const uct_atomic_op_t opcode = uct_atomic_of(operation);
    if (op.number_bytes() == sizeof(std::uint32_t)) {
        auto* const before32 = reinterpret_cast<std::uint32_t*>(before);  // its low half
        const auto operand32 = static_cast<std::uint32_t>(operand);
        if (opcode == UCT_ATOMIC_OP_CSWAP) {
            return uct_ep_atomic_cswap32(lane, static_cast<std::uint32_t>(compare), operand32,
                                         op.address, key, before32, done);
        }
        return uct_ep_atomic32_fetch(lane, opcode, operand32, before32, op.address, key, done);
    }
    if (opcode == UCT_ATOMIC_OP_CSWAP)
        return uct_ep_atomic_cswap64(lane, compare, operand, op.address, key, before, done);
    return uct_ep_atomic64_fetch(lane, opcode, operand, before, op.address, key, done);
}

/// An atomic that nobody waits for. UCS_ERR_UNSUPPORTED: the lane has none such.
ucs_status_t post_only(uct_ep_h lane, const Rail& rail, const RmaOp& op, uct_rkey_t key) {
    const uct_atomic_op_t opcode = uct_atomic_of(op.operation);
    const bool is_32 = op.number_bytes() == sizeof(std::uint32_t);
    const auto& cap = rail.attr().cap;
    if (((is_32 ? cap.atomic32 : cap.atomic64).op_flags & (std::uint64_t{1} << opcode)) == 0)
        return UCS_ERR_UNSUPPORTED;
    if (is_32) {
        return uct_ep_atomic32_post(lane, opcode, static_cast<std::uint32_t>(op.operand),
                                    op.address, key);
    }
    return uct_ep_atomic64_post(lane, opcode, op.operand, op.address, key);
}

/// The owner was asked.
ucs_status_t answer_of(const RmaOp& op) {
    return op.has_reply ? op.status : UCS_INPROGRESS;
}

}  // namespace

// ---- Calls

Request* RmaSender::make_request(const RmaCall& call, bool is_held) {
    Request* request =
        to_.worker.requests.make(RequestKind::kRma, call.op, call.request_p, is_held);
    if (request == nullptr)
        return nullptr;
    tw_completion_t& done = request->done;
    done.flags =
        done_flag_of(call.what.kind) | flag_if((request->flags & TW_OP_IMM) != 0, TW_DONE_IMM);
    done.length = done.message_length =
        call.what.kind == RmaKind::kAtomic ? call.what.number_bytes() : call.length;
    done.imm = (request->flags & TW_OP_IMM) != 0 ? call.op->imm : 0;
    return request;
}

tw_status_t RmaSender::call(const RmaCall& call) {
    if (to_.lane.failure != UCS_OK)
        return static_cast<tw_status_t>(to_.lane.failure);
    if (to_.own_memory != nullptr) [[unlikely]] {
        tw_status_t status = TW_OK;
        if (call_here(call, &status))
            return status;
    }
    const bool is_held =
        to_.lane.is_paused && call.op != nullptr && (call.op->flags & TW_OP_IMM) != 0;
    if (is_held && !asks_to_queue(call.op))
        return TW_ERR_NO_RESOURCE;
    if (!to_.peer.hold.has_sent) [[unlikely]]
        to_.peer.lane.note_sending();
    RequestTable& requests = to_.worker.requests;
    Request* request = make_request(call, is_held);
    if (request == nullptr)
        return TW_ERR_NO_RESOURCE;
    if (!to_.ops.add(*request, call.what) ||
        (call.pieces != nullptr && !to_.ops.add_list(*request, *call.pieces)) ||
        !requests.set_buffer(*request, call.base, call.length, call.list, call.count,
                             call.op == nullptr ? nullptr : call.op->mem)) {
        requests.release(*request);
        return TW_ERR_NO_RESOURCE;
    }
    if (!to_.peer.lane.submit(*request)) {
        requests.release(*request);
        return TW_ERR_NO_RESOURCE;
    }
    if (to_.lane.state == EpState::kReady && gathers(to_.lane.rail()))
        to_.peer.lane.write_out(call.op);
    return requests.answer(*request, call.op, call.request_p);
}

bool RmaSender::try_atomic(const RmaWish& wish, const LaneKey& key) {
    const auto& cap = to_.lane.rail().attr().cap;
    if ((cap.flags & UCT_IFACE_FLAG_ATOMIC_CPU) == 0 || !has_fetch(to_.lane.rail(), wish))
        return false;
    std::uint64_t before = 0;
    if (post_atomic(to_.lane.ep, wish, wish.operation, wish.operand, wish.compare, key.bundle.rkey,
                    &before, nullptr) != UCS_OK)
        return false;
    store_result(wish, before);
    return true;
}

ucs_status_t RmaSender::start(Request& request) {
    if (request.rma->kind != RmaKind::kKeys && request.rma->key != nullptr)
        to_.peer.lane.want_keys(*request.rma->key);
    if ((request.flags & TW_OP_IMM) != 0 &&
        std::exchange(request.rma->owes_notice, this) == nullptr)
        to_.window.owe_notice();
    const ucs_status_t status = advance(request);
    if (status == UCS_INPROGRESS)
        to_.worker.set_outstanding(request, to_.peer);
    return status;
}

// ---- Steps

/// UCS_INPROGRESS: a transfer, a piece or a reply is to end first.
ucs_status_t RmaSender::advance(Request& request) {
    RmaOp& op = *request.rma;
    if (op.phase == RmaPhase::kMove) {
        if (const ucs_status_t status = move(request); status != UCS_OK)
            return status;
        op.phase = RmaPhase::kNotice;
    }
    if (op.phase == RmaPhase::kNotice) {
        if ((request.flags & TW_OP_IMM) != 0) {
            if (const ucs_status_t status = send_notice(request); status != UCS_OK)
                return status;
            op.owes_notice = nullptr;
            to_.window.notice_has_gone();
        }
        op.phase = RmaPhase::kAck;
    }
    if (op.phase == RmaPhase::kAck) {
        const ucs_status_t status =
            is_acked(request) || is_tracked(request) ? acknowledge(request) : UCS_OK;
        if (status != UCS_ERR_NO_RESOURCE)
            op.phase = RmaPhase::kEnd;
        return status;
    }
    return op.pieces.empty() && !(op.by_messages && !op.has_reply) ? op.status : UCS_INPROGRESS;
}

/// It is outstanding, and what it waited for has ended: the next step, or its end.
void RmaSender::settle(Request& request, ucs_status_t status) {
    RmaOp& op = *request.rma;
    if (status != UCS_OK && to_.lane.failure != UCS_OK)
        status = to_.lane.failure;
    if (op.status == UCS_OK)
        op.status = status;
    if (!request.is_outstanding)
        return;  // a queue has it, and start() goes on
    if (op.status != UCS_OK)
        return to_.worker.finish(request, op.status);
    if (!request.is_queued)
        to_.peer.lane.push_data(request);
}

ucs_status_t RmaSender::resume(Request& request) {
    const ucs_status_t status = advance(request);
    if (status == UCS_ERR_NO_RESOURCE)
        return status;
    to_.peer.lane.remove(request);
    if (status != UCS_INPROGRESS) {
        to_.worker.finish(request, status);
    } else {
        if (request.transfer != nullptr)
            begun(request);
        if (to_.flushes.are_leaving())
            to_.flushes.check();  // its data may have gone
    }
    return UCS_OK;
}

void RmaSender::piece_ended(Request& request, ucs_status_t status, std::uint64_t value) {
    RmaOp& op = *request.rma;
    if (op.kind == RmaKind::kAtomic && op.phase == RmaPhase::kMove && status == UCS_OK) {
        if (op.is_emulated && value != op.compare) {
            op.compare = value;  // another guess
            return settle(request, UCS_OK);
        }
        store_result(op, value);
        op.is_there = true;
        op.phase = RmaPhase::kNotice;
    }
    if (op.pieces.empty() || status != UCS_OK)
        settle(request, status);
}

// ---- The ways

/// nullptr: the lane does not reach the memory.
const LaneKey* RmaSender::key_for(const RmaWish& wish) const {
    const Rail& rail = to_.lane.rail();
    if (!rail.can_get() || !rail.can_put())
        return nullptr;
    const std::uint8_t domain = to_.rma_lane.peer_domain;
    const LaneKey* key = wish.key->found(domain);
    // Relaxed: it tells nothing else.
    if (key != nullptr && key->is_settled.load(std::memory_order_relaxed))
        return key;
    return wish.key->resolve(domain, rail.domain());
}

bool RmaSender::is_asked(const Request& request) const {
    const RmaOp& op = *request.rma;
    if (op.kind == RmaKind::kKeys || op.by_messages)
        return true;
    if (op.list != nullptr)
        return !is_list_reached(op);
    const LaneKey* key = key_for(op);
    if (op.kind != RmaKind::kAtomic)
        return key == nullptr && request.buffer.length > 0;
    const char* reason = nullptr;
    return way_of_atomic(op, key, &reason) == RmaWay::kMessages;
}

ucs_status_t RmaSender::move(Request& request) {
    switch (request.rma->kind) {
        case RmaKind::kPut:
            return put(request);
        case RmaKind::kGet:
            return get(request);
        case RmaKind::kKeys:
            return request.rma->by_messages ? answer_of(*request.rma) : ask(request);
        default:
            return atomic(request);
    }
}

/// The lane's device, or the processors, use the buffer where it is.
bool RmaSender::may_transfer(RmaKind kind, std::size_t length, bool is_mapped) const {
    const Rail& rail = to_.lane.rail();
    if (kind == RmaKind::kPut && length <= std::max(kCopiedPutMax, rail.attr().cap.put.max_short))
        return false;
    return is_mapped || (rail.domain().attr.cap.flags & UCT_MD_FLAG_NEED_MEMH) == 0 ||
           to_.worker.has_cache;
}

ucs_status_t RmaSender::put(Request& request) {
    const std::size_t length = request.buffer.length;
    if (length == 0)
        return UCS_OK;
    if (request.rma->list != nullptr)
        return move_list(request);
    const LaneKey* key = request.rma->by_messages ? nullptr : key_for(*request.rma);
    if (key == nullptr)
        return put_by_messages(request);
    if (request.offset == 0 && (request.flags & TW_OP_INJECT) == 0 &&
        may_transfer(RmaKind::kPut, length, request.buffer.memory != nullptr)) {
        const ucs_status_t status = make_transfer(request, key);
        if (status != UCS_ERR_NO_MEMORY)
            return status;
    }
    return put_pieces(request, *key);
}

ucs_status_t RmaSender::put_pieces(Request& request, const LaneKey& key) {
    struct Piece {
        const Request* request;
        std::size_t bytes;
        static std::size_t pack(void* to, void* arg) {
            const auto& piece = *static_cast<const Piece*>(arg);
            piece.request->buffer.gather(to, piece.request->offset, piece.bytes);
            return piece.bytes;
        }
    };
    const auto& cap = to_.lane.rail().attr().cap.put;
    const std::size_t length = request.buffer.length;
    const std::uint64_t address = request.rma->address;
    to_.flushes.note_put();
    while (request.offset < length) {
        std::size_t bytes = 0;
        const std::byte* at = request.buffer.piece(request.offset, &bytes);
        bytes = std::min(bytes, length - request.offset);
        ucs_status_t status = UCS_OK;
        if (bytes <= cap.max_short) {
            status = uct_ep_put_short(to_.lane.ep, at, static_cast<unsigned>(bytes),
                                      address + request.offset, key.bundle.rkey);
        } else {
            bytes = std::min(cap.max_bcopy, length - request.offset);
            Piece piece{&request, bytes};
            status = status_of(uct_ep_put_bcopy(to_.lane.ep, Piece::pack, &piece,
                                                address + request.offset, key.bundle.rkey));
        }
        if (status != UCS_OK)
            return status;
        request.offset += bytes;
    }
    return UCS_OK;
}

ucs_status_t RmaSender::get(Request& request) {
    if (request.buffer.length == 0)
        return UCS_OK;
    RmaOp& op = *request.rma;
    if (op.list != nullptr)
        return move_list(request);
    if (op.by_messages)
        return answer_of(op);
    const LaneKey* key = key_for(op);
    if (key == nullptr)
        return ask(request);
    if (request.offset == 0 &&
        may_transfer(RmaKind::kGet, request.buffer.length, request.buffer.memory != nullptr)) {
        const ucs_status_t status = make_transfer(request, key);
        if (status != UCS_ERR_NO_MEMORY)
            return status;
    }
    return get_pieces(request, *key);
}

ucs_status_t RmaSender::get_pieces(Request& request, const LaneKey& key) {
    const auto unpack = [](void* arg, const void* data, std::size_t bytes) {
        const RmaPiece& piece = *static_cast<const RmaPiece*>(arg);
        if (piece.request != nullptr)
            piece.request->buffer.scatter(piece.offset, data, bytes);
    };
    RmaOp& op = *request.rma;
    const std::size_t length = request.buffer.length;
    while (request.offset < length && op.status == UCS_OK) {
        RmaPiece* piece = to_.ops.make_piece(request, *this);
        if (piece == nullptr)
            return UCS_ERR_NO_RESOURCE;
        piece->offset = request.offset;
        const std::size_t bytes =
            std::min(to_.lane.rail().attr().cap.get.max_bcopy, length - request.offset);
        const ucs_status_t status = uct_ep_get_bcopy(
            to_.lane.ep, unpack, piece, bytes, op.address + request.offset, key.bundle.rkey, piece);
        if (status != UCS_INPROGRESS)
            to_.ops.release_piece(*piece);
        if (status != UCS_INPROGRESS && status != UCS_OK)
            return status;
        request.offset += bytes;
    }
    return op.pieces.empty() ? op.status : UCS_INPROGRESS;
}

// ---- Atomics

ucs_status_t RmaSender::atomic(Request& request) {
    RmaOp& op = *request.rma;
    if (op.by_messages)
        return answer_of(op);
    if (!op.pieces.empty())
        return UCS_INPROGRESS;
    const LaneKey* key = key_for(op);
    const char* reason = nullptr;
    switch (way_of_atomic(op, key, &reason)) {
        case RmaWay::kMessages:
            return ask(request);
        case RmaWay::kEmulated:
            return emulate(request, *key);
        default:
            return atomic_by_lane(request, *key);
    }
}

RmaWay RmaSender::way_of_atomic(const RmaWish& wish, const LaneKey* key,
                                const char** reason) const {
    const auto& cap = to_.lane.rail().attr().cap;
    const bool is_of_device = (cap.flags & UCT_IFACE_FLAG_ATOMIC_DEVICE) != 0;
    const bool is_of_processor = (cap.flags & UCT_IFACE_FLAG_ATOMIC_CPU) != 0;
    if (key == nullptr) {
        *reason = "the transport does not reach the memory";
    } else if (is_of_device && !wish.key->memory().by_device) {
        *reason = "processors change numbers of this memory, since another transport reaches it";
    } else if (is_of_device && wish.number_bytes() == sizeof(std::uint32_t)) {
        *reason = "the device has no atomics of 32 bits";
    } else if (!is_of_device && !is_of_processor) {
        *reason = "the transport has no atomics";
    } else if (has_fetch(to_.lane.rail(), wish)) {
        if (is_of_device) {
            *reason = "the device alone changes numbers of this memory";
            return RmaWay::kAtomic;
        }
        const bool is_direct = key->is_direct.load(std::memory_order_relaxed);  // Relaxed: as below
        *reason = is_direct ? "the processors' atomics reach the memory"
                            : "the owner's processor alone reaches the memory";
        return is_direct ? RmaWay::kAtomic : RmaWay::kByOwner;
    } else if (is_of_device || key->is_direct.load(std::memory_order_relaxed)) {
        // Relaxed: it tells nothing else.
        *reason = "the transport has no such operation, but compares and swaps";
        return RmaWay::kEmulated;
    } else {
        *reason = "the transport has no such operation";
    }
    return RmaWay::kMessages;
}

// ---- Explanations

RmaWay RmaSender::way_of(const RmaWish& wish, std::size_t length, bool is_mapped,
                         const char** reason) const {
    const bool is_atomic = wish.kind == RmaKind::kAtomic;
    if (to_.own_memory != nullptr && !(is_atomic && is_of_device(wish))) {
        *reason = "the memory is of the worker's own process";
        return is_atomic || length > 0 ? RmaWay::kStores : RmaWay::kNothing;
    }
    const Rail& rail = to_.lane.rail();
    const LaneKey* key = key_for(wish);
    if (is_atomic)
        return way_of_atomic(wish, key, reason);
    if (length == 0) {
        *reason = "there is nothing to move";
        return RmaWay::kNothing;
    }
    if (key == nullptr) {
        *reason = rail.can_get() && rail.can_put()
                      ? "the packed key has no room for a key of this device, and the owner has "
                        "not told it yet"
                      : "the transport has no put and get";
        return RmaWay::kMessages;
    }
    // Relaxed: it tells nothing else.
    if (key->is_direct.load(std::memory_order_relaxed)) {
        *reason = "loads and stores reach the memory";
        return RmaWay::kStores;
    }
    if (may_transfer(wish.kind, length, is_mapped)) {
        *reason = wish.kind == RmaKind::kPut ? "longer than what is copied"
                                             : "the buffer can be written where it is";
        return RmaWay::kTransfer;
    }
    if (wish.kind == RmaKind::kPut && length <= rail.attr().cap.put.max_short) {
        *reason = "short enough for the transport to take it in the call";
        return RmaWay::kShort;
    }
    *reason = wish.kind == RmaKind::kPut && length <= kCopiedPutMax
                  ? "a copy is cheaper than a completion of the device"
                  : "the buffer has no handle, and there is no registration cache";
    return RmaWay::kCopied;
}

/// By an operation that the lane has.
ucs_status_t RmaSender::atomic_by_lane(Request& request, const LaneKey& key) {
    RmaOp& op = *request.rma;
    if (op.result == nullptr && !is_acked(request)) {
        const ucs_status_t status = post_only(to_.lane.ep, to_.lane.rail(), op, key.bundle.rkey);
        if (status != UCS_ERR_UNSUPPORTED)
            return status;
    }
    RmaPiece* piece = to_.ops.make_piece(request, *this);
    if (piece == nullptr)
        return UCS_ERR_NO_RESOURCE;
    const ucs_status_t status = post_atomic(to_.lane.ep, op, op.operation, op.operand, op.compare,
                                            key.bundle.rkey, &piece->value, piece);
    const std::uint64_t value = piece->value;
    if (status == UCS_INPROGRESS)
        return status;
    to_.ops.release_piece(*piece);
    if (status == UCS_OK) {
        store_result(op, value);
        op.is_there = true;
    }
    return status;
}

/// By compare-and-swap: of the number that is guessed to be there, first 0, then what was there.
ucs_status_t RmaSender::emulate(Request& request, const LaneKey& key) {
    RmaOp& op = *request.rma;
    op.is_emulated = true;
    for (unsigned i = 0; i < kTriesMax; ++i) {
        RmaPiece* piece = to_.ops.make_piece(request, *this);
        if (piece == nullptr)
            return UCS_ERR_NO_RESOURCE;
        const std::uint64_t wanted = combined(op.operation, op.type, op.compare, op.operand);
        const ucs_status_t status = post_atomic(to_.lane.ep, op, TW_ATOMIC_CSWAP, wanted,
                                                op.compare, key.bundle.rkey, &piece->value, piece);
        if (status == UCS_INPROGRESS)
            return status;
        const std::uint64_t value = piece->value;
        to_.ops.release_piece(*piece);
        if (status != UCS_OK)
            return status;
        if (value == op.compare) {
            store_result(op, value);
            op.is_there = true;
            return UCS_OK;
        }
        op.compare = value;
    }
    return UCS_ERR_NO_RESOURCE;
}

// ---- The end at the target

ucs_status_t RmaSender::acknowledge(Request& request) {
    RmaOp& op = *request.rma;
    const bool is_sent_enough = !is_acked(request);
    if (op.by_messages && !is_sent_enough)
        return answer_of(op);
    const bool has_moved_nothing = request.buffer.length == 0 && op.kind != RmaKind::kAtomic;
    if (op.is_there || has_moved_nothing || (request.buffer.length == 0 && !is_sent_enough))
        return UCS_OK;
    op.has_reply = op.has_reply || is_sent_enough;  // none is to come
    RmaPiece* piece = to_.ops.make_piece(request, *this);
    if (piece == nullptr)
        return UCS_ERR_NO_RESOURCE;
    const unsigned remote =
        (to_.lane.rail().attr().cap.flags & TAGWIRE_UCT_IFACE_FLAG_FLUSH_REMOTE) != 0
            ? unsigned{TAGWIRE_UCT_FLUSH_FLAG_REMOTE}
            : 0U;
    const unsigned flags = is_sent_enough ? unsigned{TAGWIRE_UCT_FLUSH_FLAG_SENT} : remote;
    const ucs_status_t status = uct_ep_flush(to_.lane.ep, flags, piece);
    if (status != UCS_INPROGRESS)
        to_.ops.release_piece(*piece);
    return status;
}

}  // namespace tagwire::proto
