// SPDX-License-Identifier: BSD-3-Clause
// The common path of all sends and receives, inlined into the calls of fi_msg(3) and fi_tagged(3):
// a call does not check for options that it cannot have.
#pragma once

#include "ep.hpp"
#include "flags.hpp"
#include "info.hpp"

namespace tagwire::fi {

// Elements of lists are handed on as they are.
static_assert(sizeof(tw_iov_t) == sizeof(iovec) &&
              offsetof(tw_iov_t, base) == offsetof(iovec, iov_base) &&
              offsetof(tw_iov_t, length) == offsetof(iovec, iov_len));

// ---- Sends

inline constexpr std::uint64_t kSendFlags =
    kLevels | FI_INJECT | FI_MORE | FI_FENCE | FI_COMPLETION | FI_REMOTE_CQ_DATA;

/// Where several levels are asked for, the strongest counts.
constexpr std::uint32_t level_of(std::uint64_t flags) {
    if ((flags & FI_DELIVERY_COMPLETE) != 0)
        return TW_OP_DELIVERY_COMPLETE;
    if ((flags & FI_MATCH_COMPLETE) != 0)
        return TW_OP_MATCH_COMPLETE;
    return flag_if((flags & FI_TRANSMIT_COMPLETE) != 0, TW_OP_TRANSMIT_COMPLETE);
}

constexpr std::uint32_t op_flags_of(std::uint64_t flags) {
    if ((flags & ~std::uint64_t{FI_COMPLETION}) == 0) [[likely]]
        return 0;
    return level_of(flags) | flag_if((flags & FI_INJECT) != 0, TW_OP_INJECT) |
           flag_if((flags & FI_MORE) != 0, TW_OP_MORE) |
           flag_if((flags & FI_FENCE) != 0, TW_OP_FENCE) |
           flag_if((flags & FI_REMOTE_CQ_DATA) != 0, TW_OP_IMM);
}

template <bool kTagged>
[[gnu::always_inline]] inline tw_status_t call_send(tw_ep_h ep, const Sending& what,
                                                    const tw_op_t& op, tw_request_h* request_p) {
    const Data& data = what.data;
    if (data.iov != nullptr) [[unlikely]] {
        const auto* iov = reinterpret_cast<const tw_iov_t*>(data.iov);
        return kTagged ? tw_tag_sendv(ep, iov, data.count, what.tag, &op, request_p)
                       : tw_msg_sendv(ep, iov, data.count, &op, request_p);
    }
    return kTagged ? tw_tag_send(ep, data.base, data.length, what.tag, &op, request_p)
                   : tw_msg_send(ep, data.base, data.length, &op, request_p);
}

inline std::size_t length_of(const Data& data) {
    std::size_t length = data.length;
    for (std::size_t i = 0; i < data.count; ++i)
        length += data.iov[i].iov_len;
    return length;
}

template <bool kTagged>
[[gnu::always_inline]] inline ssize_t Ep::send(const Sending& what) {
    constexpr std::uint64_t kKind = FI_SEND | (kTagged ? FI_TAGGED : FI_MSG);
    if ((what.flags & ~kSendFlags) != 0) [[unlikely]]
        return -FI_EBADFLAGS;
    if ((what.flags & FI_INJECT) != 0 && length_of(what.data) > inject_bytes_max) [[unlikely]]
        return -FI_EMSGSIZE;
    ssize_t error = 0;
    tw_ep_h to = peer(what.to, &error);
    Operation* operation = operations_.next();
    if (to == nullptr) [[unlikely]]
        return error;
    if (operation == nullptr) [[unlikely]]
        return -FI_ENOMEM;
    if (tx.cq != nullptr && tx.cq->refuses()) [[unlikely]]
        return try_again();
    // One-sided operations that have not begun, and atomics without a reply, must not be passed.
    const bool is_fenced = (what.flags & FI_FENCE) != 0;
    if (holds_sends(what.to, to) ||
        (is_fenced && (peer_of(to).waiting != 0 || atomics.is_pending(to)))) [[unlikely]]
        return try_again();

    tw_op_t op;
    fill(op, op_flags_of(what.flags));
    op.context = operation;
    op.complete = on_send_end;
    op.imm = what.imm;
    op.mem = what.data.mem;
    tw_request_h request = nullptr;
    const tw_status_t status = call_send<kTagged>(to, what, op, &request);
    if (status == TW_OK) [[likely]] {
        if (tx.cntr != nullptr)
            tx.cntr->count_success();
        if (what.is_reported)
            tx.cq->push({what.context, kKind, 0, nullptr, 0, 0});
        return 0;
    }
    if (status == TW_INPROGRESS) {
        operations_.begin(*operation, OperationKind::kSend, what.context, kKind, what.is_reported,
                          request);
        return 0;
    }
    return not_taken(status);
}

template <bool kTagged, bool kHasImm, class Entry>
[[gnu::always_inline]] inline bool Ep::try_send(const SendArgs& args, ssize_t* answer_p) {
    constexpr std::uint64_t kKind = FI_SEND | (kTagged ? FI_TAGGED : FI_MSG);
    if ((reinterpret_cast<std::uintptr_t>(args.desc) | usual_.no_sends) != 0) [[unlikely]]
        return false;
    tw_ep_h const to = known_peer(args.to);
    if (to == nullptr || !tx.cq->has_fast_room()) [[unlikely]]
        return false;
    tw_op_t& op = kHasImm ? usual_.send_imm : usual_.send;
    if constexpr (kHasImm)
        op.imm = args.imm;
    const tw_status_t status =
        kTagged ? tw_tag_send(to, args.buf, args.length, args.tag, &op, &usual_.sent)
                : tw_msg_send(to, args.buf, args.length, &op, &usual_.sent);
    *answer_p = 0;
    if (status == TW_OK) [[likely]] {
        tx.cq->push_fast(
            entry_of(static_cast<const Entry*>(nullptr), {args.context, kKind, 0, nullptr, 0, 0}));
    } else if (status == TW_INPROGRESS) {
        begin_usual_send(args.context, kKind);
    } else {
        *answer_p = not_taken(status);
    }
    return true;
}

/// Nobody can cancel it, so it needs no operation of its own.
template <bool kTagged, bool kHasImm>
[[gnu::always_inline]] inline bool Ep::try_inject(const SendArgs& args, ssize_t* answer_p) {
    tw_ep_h const to = known_peer(args.to);
    if (to == nullptr || !usual_.injects || args.length > inject_bytes_max) [[unlikely]]
        return false;
    tw_op_t& op = kHasImm ? usual_.inject_imm : usual_.inject;
    if constexpr (kHasImm)
        op.imm = args.imm;
    const tw_status_t status = kTagged
                                   ? tw_tag_send(to, args.buf, args.length, args.tag, &op, nullptr)
                                   : tw_msg_send(to, args.buf, args.length, &op, nullptr);
    *answer_p = status == TW_OK || status == TW_INPROGRESS ? 0 : not_taken(status);
    return true;
}

// ---- Receives: peeks, claims and buffered ones go their own way

inline constexpr std::uint64_t kReceiveFlags = FI_COMPLETION | FI_MORE | FI_TRANSMIT_COMPLETE |
                                               FI_MULTI_RECV | FI_PEEK | FI_CLAIM | FI_DISCARD;

template <bool kTagged>
[[gnu::always_inline]] inline ssize_t Ep::receive(const Receiving& what) {
    constexpr std::uint64_t kSpecial = FI_MULTI_RECV | FI_PEEK | FI_CLAIM | FI_DISCARD;
    if ((what.flags & kSpecial) != 0 || is_buffered) [[unlikely]]
        return receive_otherwise<kTagged>(Receiving(what));  // a copy: `what` stays in registers
    if ((what.flags & ~kReceiveFlags) != 0) [[unlikely]]
        return -FI_EBADFLAGS;
    tw_op_t op;
    fill(op, 0);
    op.complete = on_receive_end;
    op.mem = what.data.mem;
    return start(what, kTagged, op, 0, [&](const tw_op_t& wanted, tw_request_h* request_p) {
        return call_receive<kTagged>(what, wanted, request_p);
    });
}

template <bool kTagged>
[[gnu::always_inline]] inline bool Ep::try_receive(const ReceiveArgs& args, ssize_t* answer_p) {
    if ((reinterpret_cast<std::uintptr_t>(args.desc) | usual_.no_receives) != 0) [[unlikely]]
        return false;
    Operation* const operation = operations_.next_or_none();
    if (operation == nullptr) [[unlikely]]
        return false;
    tw_ep_h source = nullptr;
    if (args.from != FI_ADDR_UNSPEC && usual_.is_directed) {
        source = known_peer(args.from);
        if (source == nullptr) [[unlikely]]
            return false;
    }
    operation->context = args.context;
    tw_op_t& op = kTagged ? usual_.tagged_receive : usual_.msg_receive;
    op.context = operation;
    op.source = source;
    const tw_status_t status =
        kTagged ? tw_tag_recv(worker, args.buf, args.length, args.tag, args.ignore, &op,
                              &operation->request)
                : tw_msg_recv(worker, args.buf, args.length, &op, &operation->request);
    if (status != TW_INPROGRESS) [[unlikely]] {
        *answer_p = usual_ended_in_call(status, operation->context, args.length, kTagged);
        return true;
    }
    operations_.begin_usual(*operation, OperationKind::kReceive);
    *answer_p = 0;
    return true;
}

template <bool kTagged>
[[gnu::always_inline]] inline tw_status_t Ep::call_receive(const Receiving& what, const tw_op_t& op,
                                                           tw_request_h* request_p) {
    const Data& data = what.data;
    if (data.iov != nullptr) [[unlikely]] {
        const auto* iov = reinterpret_cast<const tw_iov_t*>(data.iov);
        return kTagged
                   ? tw_tag_recvv(worker, iov, data.count, what.tag, what.ignore, &op, request_p)
                   : tw_msg_recvv(worker, iov, data.count, &op, request_p);
    }
    return kTagged
               ? tw_tag_recv(worker, data.base, data.length, what.tag, what.ignore, &op, request_p)
               : tw_msg_recv(worker, data.base, data.length, &op, request_p);
}

/// A receive that may end in the call, or later, and its call(op, request_p). `op` has everything
/// but source, context and info; `flags` are those of its entry besides the kind of the message.
template <class Call>
[[gnu::always_inline]] inline ssize_t Ep::start(const Receiving& what, bool is_tagged, tw_op_t& op,
                                                std::uint64_t flags, const Call& call) {
    if ((caps & FI_DIRECTED_RECV) != 0 && what.from != FI_ADDR_UNSPEC) {
        ssize_t error = 0;
        op.source = peer(what.from, &error);
        if (op.source == nullptr)
            return error;
    }
    Operation* operation = operations_.next();
    if (operation == nullptr) [[unlikely]]
        return -FI_ENOMEM;
    tw_message_info_t info{};
    op.context = operation;
    op.info = &info;
    tw_request_h request = nullptr;
    const tw_status_t status = call(op, &request);
    if (status != TW_INPROGRESS) [[unlikely]] {
        if (is_refusal(status))
            return not_taken(status);
        end_receive(completion_of(status, info, length_of(what.data), is_tagged), what.context,
                    flags, what.is_reported);
        return 0;
    }
    operations_.begin(*operation, OperationKind::kReceive, what.context, flags, what.is_reported,
                      request);
    return 0;
}

}  // namespace tagwire::fi
