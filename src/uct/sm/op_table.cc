// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/op_table.hpp"

#include "ucs/debug/check.hpp"
#include "uct/sm/sm_iface.hpp"

namespace tagwire::sm {

namespace {

constexpr bool is_blocking(OpKind kind) {
    return kind != OpKind::kFlush && kind != OpKind::kRndvSend && kind != OpKind::kReceive;
}

}  // namespace

Op* OpTable::create(Link& link, OpKind kind, SmEp* ep, uct_completion_t* comp) {
    const bool is_receive = kind == OpKind::kReceive;
    if (is_receive ? receive_ops_ == kReceiveCountMax : !has_room())
        return nullptr;
    if (free_.empty()) {
        table_.push_back(std::make_unique<Op>());
        table_.back()->id = static_cast<std::uint32_t>(table_.size() - 1);
        free_.push_back(table_.back().get());
    }
    Op& op = *free_.back();
    free_.pop_back();
    ++(is_receive ? receive_ops_ : own_ops_);
    const std::uint32_t index = op.id & kOpIndexMask;
    const std::uint32_t serial = op.id >> kOpIndexBits;
    static_cast<OpState&>(op) = OpState{};
    op.id = (serial == kOpSerialMax ? 0 : serial + 1) << kOpIndexBits | index;
    op.kind = kind;
    op.owner = &link;
    op.ep = ep;
    op.completion = comp;
    if (is_blocking(kind))
        ++link.blocking_ops;
    return &op;
}

void OpTable::free(Op& op) {
    --(op.kind == OpKind::kReceive ? receive_ops_ : own_ops_);
    op.owner = nullptr;
    free_.push_back(&op);
}

Op* OpTable::find(const Link& link, std::uint32_t id) {
    const std::uint32_t index = id & kOpIndexMask;
    if (index >= table_.size())
        return nullptr;
    Op& op = *table_[index];
    return op.id == id && op.owner == &link ? &op : nullptr;
}

void OpTable::end_receive(Op& op) {
    Link& link = *op.owner;
    link.set_steps(op, false);
    link.receives.erase(op);
    free(op);
}

void OpTable::finish(Op& op, ucs_status_t status) {
    TW_ASSERT(op.kind != OpKind::kReceive);
    Link& link = *op.owner;
    if (op.help != nullptr)
        iface_.both.release(op);
    link.set_steps(op, false);
    if (is_blocking(op.kind))
        --link.blocking_ops;
    link.ops.erase(op);
    uct_completion_t* completion = op.completion;
    free(op);
    complete(completion, status);
    // Flushes that have become the oldest are done.
    while (Op* oldest = link.ops.front()) {
        if (oldest->kind != OpKind::kFlush)
            break;
        link.ops.erase(*oldest);
        uct_completion_t* flushed = oldest->completion;
        free(*oldest);
        complete(flushed, link.failure);
    }
}

ucs_status_t OpTable::start_flush(Link& link, SmEp* ep, uct_completion_t* comp) {
    Op* op = create(link, OpKind::kFlush, ep, comp);
    if (op == nullptr)
        return UCS_ERR_NO_RESOURCE;
    link.ops.push_back(*op);
    return UCS_INPROGRESS;
}

void OpTable::cancel(Link& link, const SmEp* ep, ucs_status_t status) {
    iface_.guard().enter();  // the call may be any other than progress
    // Callbacks may begin others, and end any: another round, and from the first on.
    for (bool again = true; again;) {
        again = false;
        for (Op* op = link.ops.front(); op != nullptr;) {
            Op* const next = link.ops.next(*op);
            if (ep != nullptr && op->ep != ep) {
                op = next;
                continue;
            }
            again = true;
            const std::uint32_t next_id = next == nullptr ? 0 : next->id;
            if (op->rndv != nullptr) {
                op->rndv->withdraw();
                iface_.rndv.drop(*op->rndv, status);
            } else {
                finish(*op, status);
            }
            if (next != nullptr)
                op = next->id == next_id && next->owner == &link ? next : link.ops.front();
            else
                op = nullptr;
        }
    }
    iface_.guard().leave();
}

}  // namespace tagwire::sm
