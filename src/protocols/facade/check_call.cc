// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/facade/check_call.hpp"

#include <memory>
#include <utility>

#include "protocols/api/tw_memory.h"
#include "protocols/completion/completion_queue.hpp"
#include "protocols/cost/op_names.hpp"
#include "protocols/request/context.hpp"
#include "protocols/request/memory.hpp"
#include "protocols/request/outgoing.hpp"
#include "protocols/request/refuse.hpp"
#include "protocols/request/request.hpp"
#include "protocols/wire/am_part.hpp"
#include "ucs/log/log.hpp"

namespace tagwire::proto {

namespace {

/// Levels of completion that a message awaits with the peer's help: it is then outstanding in the
/// order of the calls, which urgent ones do not keep.
constexpr std::uint32_t kNotUrgent =
    TW_OP_TRANSMIT_COMPLETE | TW_OP_DELIVERY_COMPLETE | TW_OP_MATCH_COMPLETE | TW_OP_SENT_COMPLETE;

/// nullptr: they are right.
const char* wrong_with_ends(const Context& context, const tw_op_t& op) {
    const bool is_told = op.complete != nullptr || op.cq != nullptr;
    if (op.request != nullptr && !is_told && (op.flags & TW_OP_COMPLETION) == 0)
        return "op->request needs op->complete, op->cq or TW_OP_COMPLETION as well";
    if (reinterpret_cast<std::uintptr_t>(op.request) % alignof(Request) != 0)
        return "op->request is not aligned to 16 bytes";
    if (op.cq == nullptr)
        return nullptr;
    if (op.complete != nullptr)
        return "op->cq cannot be combined with op->complete";
    if (&queue_of(op.cq).context() != &context)
        return "op->cq is a queue of another context";
    return nullptr;
}

}  // namespace

void WholeOp::fill(const tw_op_t& given) {
    if (ucs::has_size(given)) {
        std::construct_at(&full_, ucs::read_sized(given));
        op_ = &full_;
    } else {
        wrong_bytes_ = given.struct_bytes;
        op_ = nullptr;
    }
}

tw_status_t WholeOp::refuse(const char* call) const {
    return refuse_size(call, "op", wrong_bytes_, sizeof(tw_op_t));
}

tw_status_t refuse_null(const char* call, const char* argument) {
    TW_LOG_ERROR("%s: %s is NULL", call, argument);
    return TW_ERR_INVALID_PARAM;
}

tw_status_t check_list(const char* call, const tw_iov_t* iov, size_t iovcnt, size_t* length_p) {
    if (iovcnt > TW_IOV_MAX || (iov == nullptr && iovcnt > 0)) {
        TW_LOG_ERROR("%s: iovcnt is %zu: expected at most %d elements, and iov not NULL", call,
                     iovcnt, TW_IOV_MAX);
        return TW_ERR_INVALID_PARAM;
    }
    *length_p = 0;
    for (size_t i = 0; i < iovcnt; ++i) {
        if (__builtin_add_overflow(*length_p, iov[i].length, length_p)) {
            TW_LOG_ERROR("%s: the total length of iov overflows size_t", call);
            return TW_ERR_INVALID_PARAM;
        }
    }
    return TW_OK;
}

tw_status_t check_op(const char* call, const Context& context, const tw_op_t& op,
                     std::uint32_t allowed) {
    if ((op.flags & ~allowed) != 0) {
        TW_LOG_ERROR("%s: flags %s are not valid for this call; it accepts %s", call,
                     op_flag_names(op.flags & ~allowed).c_str(), op_flag_names(allowed).c_str());
        return TW_ERR_INVALID_PARAM;
    }
    if (const char* wrong = wrong_with_ends(context, op)) {
        TW_LOG_ERROR("%s: %s", call, wrong);
        return TW_ERR_INVALID_PARAM;
    }
    return TW_OK;
}

tw_status_t check_memory(const char* call, const Context& context, const tw_op_t& op,
                         const void* base, size_t length, const tw_iov_t* list, size_t count,
                         const char* name) {
    if (op.mem == nullptr)
        return TW_OK;
    const Memory& memory = memory_of(op.mem);
    bool is_inside = &memory.context() == &context;
    if (list == nullptr)
        is_inside = is_inside && memory.covers(base, length);
    for (size_t i = 0; i < count && list != nullptr; ++i)
        is_inside = is_inside && memory.covers(list[i].base, list[i].length);
    if (is_inside)
        return TW_OK;
    TW_LOG_ERROR("%s: the buffer is not inside the memory of %s", call, name);
    return TW_ERR_INVALID_PARAM;
}

tw_status_t check_target(const char* call, const tw_op_t& op, const char* name) {
    if (op.mem == nullptr || !memory_of(op.mem).is_read_only())
        return TW_OK;
    TW_LOG_ERROR(
        "%s: the memory of %s was mapped read-only when tw_mem_map() was called: "
        "nothing can be received into it",
        call, name);
    return TW_ERR_INVALID_PARAM;
}

tw_status_t check_send(const char* call, const Context& context, const Outgoing& message) {
    const tw_op_t& op = *message.op;
    const std::size_t own_bytes = message.am == nullptr ? 0 : message.am->header_bytes;
    tw_status_t status =
        check_op(call, context, op, message.am == nullptr ? kSendFlags : kAmSendFlags);
    if (status == TW_OK) {
        status = check_memory(call, context, op, message.base, message.length, message.list,
                              message.count);
    }
    if (status == TW_OK && (op.flags & TW_OP_URGENT) != 0 && (op.flags & kNotUrgent) != 0) {
        TW_LOG_ERROR("%s: TW_OP_URGENT cannot be combined with %s", call,
                     op_flag_names(op.flags & kNotUrgent).c_str());
        return TW_ERR_INVALID_PARAM;
    }
    const std::pair<std::uint32_t, std::size_t> limits[] = {
        {TW_OP_INJECT, context.options().inject_bytes}, {TW_OP_URGENT, TW_AM_URGENT_MAX}};
    for (const auto& [flag, limit] : limits) {
        if (status == TW_OK && (op.flags & flag) != 0 &&
            (own_bytes > limit || message.length > limit - own_bytes)) {
            TW_LOG_ERROR("%s: %s with %zu bytes; the limit is %zu", call,
                         op_flag_names(flag).c_str(), message.length + own_bytes, limit);
            status = TW_ERR_EXCEEDS_LIMIT;
        }
    }
    return status;
}

}  // namespace tagwire::proto
