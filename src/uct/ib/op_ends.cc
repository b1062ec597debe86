// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/op_ends.hpp"

#include <algorithm>
#include <cstring>

#include "uct/completion.hpp"
#include "uct/ib/rndv_sends.hpp"

namespace tagwire::ib {

void OpEnds::finish(SendOp& op, ucs_status_t status) {
    if (ending_ != nullptr && op.ep != ending_) [[unlikely]] {
        finish_later(op, status);
        return;
    }
    uct_completion_t* comp = op.comp;
    switch (op.kind) {
        case SendOp::Kind::kFlush:
        case SendOp::Kind::kCancel:
            keep_flush(*op.ep, op);
            settle_flushes(*op.ep);
            return;
        case SendOp::Kind::kRndvRead: {
            auto* read = static_cast<RndvRead*>(op.read);
            op.pool->put(&op);
            reads_.part_done(*read, status);
            return;
        }
        case SendOp::Kind::kUnpack:
            if (status == UCS_OK)
                op.unpack.call(op.unpack.arg, op.data(), op.unpack.bytes);
            break;
        case SendOp::Kind::kFetch:
            if (status == UCS_OK)
                std::memcpy(op.result.to, op.data(), op.result.bytes);
            break;
        default:
            break;
    }
    op.pool->put(&op);
    if (comp != nullptr)
        uct::invoke_completion(comp, status);
}

// ---- Flushes

void OpEnds::keep_flush(MessageEp& ep, SendOp& op) {
    SendOp** last = &ep.flushes;
    while (*last != nullptr)
        last = &(*last)->next;
    op.next = nullptr;
    *last = &op;
}

void OpEnds::settle_flushes(MessageEp& ep) {
    const std::uint64_t oldest = ep.rndv_first == nullptr ? UINT64_MAX : ep.rndv_first->serial;
    SendOp** at = &ep.flushes;
    while (*at != nullptr) {
        SendOp* op = *at;
        if (op->serial >= oldest) {
            at = &op->next;
            continue;
        }
        *at = op->next;
        uct_completion_t* comp = op->comp;
        const bool is_well = op->kind == SendOp::Kind::kCancel && ep.failure == UCS_ERR_CANCELED;
        op->pool->put(op);
        uct::invoke_completion(comp, is_well ? UCS_OK : ep.failure);
        at = &ep.flushes;  // the callback may have changed the list
    }
}

// ---- Ends that wait

void OpEnds::finish_later(SendOp& op, ucs_status_t status) {
    late_.push_back({&op, status});
    has_work_ = true;
}

void OpEnds::finish_late(const MessageEp* of) {
    for (std::size_t i = 0; i < late_.size();) {
        const Late late = late_[i];
        if (of != nullptr && late.op->ep != of) {
            ++i;
            continue;
        }
        late_.erase(late_.begin() + static_cast<std::ptrdiff_t>(i));
        finish(*late.op, late.status);
        i = 0;  // the callback may have changed the list
    }
}

bool OpEnds::has_late(const MessageEp& ep) const {
    return std::ranges::any_of(late_, [&](const Late& late) { return late.op->ep == &ep; });
}

}  // namespace tagwire::ib
