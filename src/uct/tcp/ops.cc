// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/ops.hpp"

#include "ucs/debug/check.hpp"
#include "uct/tcp/tcp_iface.hpp"

namespace tagwire::tcp {

namespace {

constexpr unsigned kIndexBits = 32;

constexpr bool is_get(OpKind kind) {
    return kind == OpKind::kGetZcopy || kind == OpKind::kGetBcopy;
}

}  // namespace

void OpList::push_back(Op& op) {
    op.next = nullptr;
    op.prev = tail_;
    (tail_ != nullptr ? tail_->next : head_) = &op;
    tail_ = &op;
}

void OpList::erase(Op& op) {
    (op.prev != nullptr ? op.prev->next : head_) = op.next;
    (op.next != nullptr ? op.next->prev : tail_) = op.prev;
}

bool OpTable::has_room(const Connection& connection) const {
    return connection.ops_count + connection.unanswered < kRequestsMax &&
           (!free_.empty() || table_.size() < kCountMax);
}

Op* OpTable::create(Connection& connection, OpKind kind, TcpEp* ep, uct_completion_t* comp) {
    if (kind != OpKind::kReceive && !has_room(connection))
        return nullptr;
    if (free_.empty()) {
        table_.push_back(std::make_unique<Op>());
        table_.back()->id = table_.size() - 1;
        free_.push_back(table_.back().get());
    }
    Op& op = *free_.back();
    free_.pop_back();
    const auto index = static_cast<std::uint32_t>(op.id);
    serial_ = serial_ == UINT32_MAX ? 1 : serial_ + 1;
    op.id = std::uint64_t{serial_} << kIndexBits | index;
    op.kind = kind;
    op.connection = &connection;
    op.ep = ep;
    op.completion = comp;
    op.mark = op.left = op.length = op.tag = 0;
    op.cursor = uct::IovCursor();
    op.staging = nullptr;
    op.own = nullptr;
    op.posted = nullptr;
    if (kind == OpKind::kReceive) {
        connection.receives.push_back(op);
        return &op;
    }
    ++connection.ops_count;
    sent_flushes_ += kind == OpKind::kFlushSent ? 1 : 0;
    connection.gets += is_get(kind) ? 1 : 0;
    connection.ops.push_back(op);
    return &op;
}

void OpTable::release(Op& op) {
    if (op.staging != nullptr)
        iface_.staging.put(op.staging);
    if (op.own != nullptr)
        iface_.tcp_md().mem_dereg(op.own);
    sent_flushes_ -= op.kind == OpKind::kFlushSent ? 1 : 0;
    op.staging = nullptr;
    op.own = nullptr;
    op.connection = nullptr;
    free_.push_back(&op);
}

Op* OpTable::find(std::uint64_t id) {
    const auto index = static_cast<std::uint32_t>(id);
    if (index >= table_.size())
        return nullptr;
    Op& op = *table_[index];
    return op.id == id && op.connection != nullptr ? &op : nullptr;
}

Op* OpTable::find(const Connection& connection, std::uint64_t id) {
    Op* op = find(id);
    return op != nullptr && op->connection == &connection ? op : nullptr;
}

void OpTable::end_receive(Op& op) {
    op.connection->receives.erase(op);
    release(op);
}

void OpTable::finish(Op& op, ucs_status_t status) {
    TW_ASSERT(op.kind != OpKind::kReceive);
    Connection& connection = *op.connection;
    uct_completion_t* completion = op.completion;
    connection.ops.erase(op);
    --connection.ops_count;
    connection.gets -= is_get(op.kind) ? 1 : 0;
    release(op);
    if (connection.gets == 0)
        connection.fence_waits = false;
    if (completion != nullptr)
        uct::invoke_completion(completion, status);
    settle_flushes(connection);
}

void OpTable::abandon(Op& op, ucs_status_t status) {
    Connection& connection = *op.connection;
    connection.unanswered += is_local_flush(op.kind) ? 0 : 1;
    recall(connection);
    finish(op, status);
}

/// One at a time, and long before the requests come to their limit.
void OpTable::recall(Connection& connection) {
    if (connection.recalled > 0 || connection.unanswered < kRequestsMax / 2 ||
        connection.failure != UCS_OK)
        return;
    connection.recalled = connection.unanswered;
    static_cast<void>(
        iface_.sender.send_control(connection, Kind::kFlushRequest, FlushRequestBody{kRecallOp}));
}

void OpTable::end_recall(Connection& connection) {
    connection.unanswered -= std::exchange(connection.recalled, 0);
    recall(connection);
}

namespace {

bool is_written(const Op& flush) {
    const Connection& connection = *flush.connection;
    return connection.tx.written() >= flush.mark || connection.failure != UCS_OK;
}

}  // namespace

void OpTable::settle_flushes(Connection& connection) {
    if (sent_flushes_ > 0) [[unlikely]]
        settle_sent(connection);
    while (Op* oldest = connection.ops.front()) {
        if (oldest->kind != OpKind::kFlush || !is_written(*oldest))
            break;
        settle(*oldest);
    }
}

/// A completion may change the list.
void OpTable::settle_sent(Connection& connection) {
    const auto next = [&] {
        Op* op = connection.ops.front();
        while (op != nullptr && (op->kind != OpKind::kFlushSent || !is_written(*op)))
            op = op->next;
        return op;
    };
    while (Op* const flush = next())
        settle(*flush);
}

void OpTable::settle(Op& flush) {
    Connection& connection = *flush.connection;
    const ucs_status_t status = connection.failure != UCS_OK
                                    ? connection.failure
                                    : std::exchange(connection.put_failure, UCS_OK);
    connection.ops.erase(flush);
    --connection.ops_count;
    uct_completion_t* completion = flush.completion;
    release(flush);
    if (completion != nullptr)
        uct::invoke_completion(completion, status);
}

void OpTable::cancel(Connection& connection, const TcpEp* ep, ucs_status_t status) {
    iface_.guard().enter();  // the call may be any other than progress
    for (bool again = true; again;) {
        again = false;
        for (Op* op = connection.ops.front(); op != nullptr; op = op->next) {
            if (ep != nullptr && op->ep != ep)
                continue;
            iface_.sender.let_go(*op);
            abandon(*op, status);
            again = true;  // the callback may have ended others
            break;
        }
    }
    iface_.guard().leave();
}

}  // namespace tagwire::tcp
