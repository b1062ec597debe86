// SPDX-License-Identifier: BSD-3-Clause
// What all sends come to.
#include "ep.hpp"
#include "flags.hpp"
#include "info.hpp"

namespace tagwire::fi {

namespace {

// Elements of lists are handed on as they are.
static_assert(sizeof(tw_iov_t) == sizeof(iovec) &&
              offsetof(tw_iov_t, base) == offsetof(iovec, iov_base) &&
              offsetof(tw_iov_t, length) == offsetof(iovec, iov_len));

constexpr std::uint64_t kSendFlags =
    kLevels | FI_INJECT | FI_MORE | FI_FENCE | FI_COMPLETION | FI_REMOTE_CQ_DATA;

/// Where several levels are asked for, the strongest counts.
std::uint32_t level_of(std::uint64_t flags) {
    if ((flags & FI_DELIVERY_COMPLETE) != 0)
        return TW_OP_DELIVERY_COMPLETE;
    if ((flags & FI_MATCH_COMPLETE) != 0)
        return TW_OP_MATCH_COMPLETE;
    return flag_if((flags & FI_TRANSMIT_COMPLETE) != 0, TW_OP_TRANSMIT_COMPLETE);
}

std::uint32_t op_flags_of(std::uint64_t flags) {
    if ((flags & ~std::uint64_t{FI_COMPLETION}) == 0) [[likely]]
        return 0;
    const std::uint32_t mapped = level_of(flags);
    return mapped | flag_if((flags & FI_INJECT) != 0, TW_OP_INJECT) |
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

std::size_t length_of(const Data& data) {
    std::size_t length = data.length;
    for (std::size_t i = 0; i < data.count; ++i)
        length += data.iov[i].iov_len;
    return length;
}

}  // namespace

template <bool kTagged>
ssize_t Ep::send(const Sending& what) {
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
    if (operation == nullptr || (tx.cq != nullptr && tx.cq->is_full())) [[unlikely]]
        return try_again();

    tw_op_t op;
    op.flags = op_flags_of(what.flags);
    op.context = operation;
    op.complete = on_send_end;
    op.request = nullptr;
    op.imm = what.imm;
    op.mem = what.data.mem;
    op.source = nullptr;
    op.message = nullptr;
    op.done = nullptr;
    tw_request_h request = nullptr;
    const tw_status_t status = call_send<kTagged>(to, what, op, &request);
    if (status == TW_OK) [[likely]] {
        if (tx.cntr != nullptr)
            tx.cntr->count_success();
        if (what.is_reported)
            tx.cq->push() = {{what.context, kKind, 0, nullptr, 0, 0}, FI_ADDR_NOTAVAIL};
        return 0;
    }
    if (status == TW_INPROGRESS) {
        operations_.take(OperationKind::kSend);
        operation->context = what.context;
        operation->flags = kKind;
        operation->is_reported = what.is_reported;
        operation->request = request;
        return 0;
    }
    return status == TW_ERR_NO_RESOURCE ? try_again() : -error_of(status);
}

template ssize_t Ep::send<false>(const Sending& what);
template ssize_t Ep::send<true>(const Sending& what);

void Ep::on_send_end(const tw_completion_t* done) {
    auto& operation = *static_cast<Operation*>(done->context);
    Ep& ep = *operation.ep;
    ep.end_send(*done, operation.context, operation.flags, operation.is_reported);
    ep.operations_.put(operation);
}

void Ep::end_send(const tw_completion_t& done, void* user_context, std::uint64_t flags,
                  bool is_reported) {
    if (done.status != TW_OK)
        return fail(tx, done, user_context, flags);
    if (tx.cntr != nullptr)
        tx.cntr->count_success();
    if (is_reported)
        tx.cq->push() = {{user_context, flags, 0, nullptr, 0, 0}, FI_ADDR_NOTAVAIL};
}

}  // namespace tagwire::fi
