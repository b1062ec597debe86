// SPDX-License-Identifier: BSD-3-Clause
// Operations on behalf of the peer (reads, writes and atomics that it asks for by message), and
// the steps of this side's own operations. Every number in a request is checked against the
// registrations; a request that is wrong is answered with an error, one that breaks the format
// ends the connection.
#include <algorithm>
#include <cstring>

#include "ucs/debug/check.hpp"
#include "ucs/log/log.hpp"
#include "uct/sm/atomics.hpp"
#include "uct/sm/sm_ep.hpp"
#include "uct/sm/sm_iface.hpp"

namespace tagwire::sm {

namespace {

constexpr bool is_blocking(OpKind kind) {
    return kind != OpKind::kFlush && kind != OpKind::kRndvSend && kind != OpKind::kReceive;
}

template <class Body>
Body body_copy(Link& link) {
    Body body;
    std::memcpy(&body, link.rx.body(), sizeof body);
    return body;
}

}  // namespace

bool SmIface::is_length(Link& link, Control control, std::size_t bytes) {
    if (control.length() == bytes)
        return true;
    violation(link, "message whose length is not that of its kind");
    return false;
}

bool SmIface::deliver_remote(Link& link, Control control) {
    switch (static_cast<Kind>(control.kind())) {
        case Kind::kRndvFin:
            if (!is_length(link, control, sizeof(RndvFinBody)))
                return false;
            deliver_fin(link, body_copy<RndvFinBody>(link));
            break;
        case Kind::kRndvHelp:
            if (!is_length(link, control, sizeof(RndvHelpBody)))
                return false;
            deliver_help(link, body_copy<RndvHelpBody>(link));
            break;
        case Kind::kGetHelp:
            if (!is_length(link, control, sizeof(GetHelpBody)))
                return false;
            deliver_get_help(link, body_copy<GetHelpBody>(link));
            break;
        case Kind::kPull:
            if (!is_length(link, control, sizeof(PullBody)))
                return false;
            deliver_pull(link, body_copy<PullBody>(link));
            break;
        case Kind::kPullData:
            if (!is_length(link, control, sizeof(PullDataBody)))
                return false;
            deliver_pull_data(link, body_copy<PullDataBody>(link));
            break;
        case Kind::kPush:
            if (!is_length(link, control, sizeof(PushBody)))
                return false;
            deliver_push(link, body_copy<PushBody>(link));
            break;
        case Kind::kPushAck: {
            if (!is_length(link, control, sizeof(PushAckBody)))
                return false;
            const auto ack = body_copy<PushAckBody>(link);
            Op* op = find_op(link, ack.op);
            if (op != nullptr && op->kind == OpKind::kPush)
                finish(*op, static_cast<ucs_status_t>(std::min(ack.status, 0)));
            break;
        }
        case Kind::kAtomic:
            if (!is_length(link, control, sizeof(AtomicBody)))
                return false;
            deliver_atomic(link, body_copy<AtomicBody>(link));
            break;
        case Kind::kAtomicReply: {
            if (!is_length(link, control, sizeof(AtomicReplyBody)))
                return false;
            const auto reply = body_copy<AtomicReplyBody>(link);
            Op* op = find_op(link, reply.op);
            if (op == nullptr || op->kind != OpKind::kAtomic)
                break;
            if (op->result != nullptr && reply.status == UCS_OK)
                std::memcpy(op->result, &reply.result, op->result_bytes);
            finish(*op, static_cast<ucs_status_t>(std::min(reply.status, 0)));
            break;
        }
        default:
            violation(link, "message of an unknown kind");
            return false;
    }
    return !link.violated;
}

// ---- Requests of the peer

void SmIface::deliver_pull(Link& link, const PullBody& pull) {
    if (link.serves.size() >= kServesMax)
        return violation(link, "more reads at once than a peer may ask for");
    Serve serve{pull.op, pull.key, pull.rndv_op, pull.generation, pull.address, pull.length};
    if (pull.rndv_op != kNoOp) {
        if (!link.rndv_ops || pull.rndv_op >= kRndvCount)
            return violation(link, "request for the data of a rendezvous that never was");
        const RndvOp& op = link.rndv_ops[pull.rndv_op];
        const auto start = reinterpret_cast<std::uintptr_t>(op.buffer);
        const bool alive =
            op.op != nullptr && op.link != nullptr && op.generation == pull.generation;
        if (alive && (pull.address != start || pull.length > op.length))
            return violation(link, "request for more than the data of a rendezvous");
    }
    link.serves.push_back(serve);
    add_work(link);
}

// Sends the peer the next piece of what it asked for. True: something moved.
bool SmIface::step_serve(Link& link) {
    Serve& serve = link.serves.front();
    if (!link.controls.empty() || link.claim(1) != UCS_OK || !link.segs.has(1))
        return false;
    const std::uint64_t bytes = std::min<std::uint64_t>(serve.left, seg_bytes_);
    const std::byte* from = nullptr;
    ucs_status_t status = UCS_ERR_INVALID_ADDR;
    if (serve.rndv_op != kNoOp) {
        const RndvOp& op = link.rndv_ops[serve.rndv_op];
        status = UCS_ERR_CANCELED;
        const std::uint64_t offset = serve.address - reinterpret_cast<std::uintptr_t>(op.buffer);
        // Checked again for each piece: the rendezvous may be another one by now.
        if (op.op != nullptr && op.link != nullptr && op.generation == serve.generation &&
            offset <= op.length && bytes <= op.length - offset) {
            from = reinterpret_cast<const std::byte*>(serve.address);
        }
    } else {
        from = md_.resolve(serve.key, serve.address, bytes, UCT_MD_MEM_ACCESS_REMOTE_GET);
    }
    PullDataBody data{serve.requester_op, 0, UCS_OK, static_cast<std::uint32_t>(bytes)};
    if (from != nullptr) {
        data.seg = link.segs.take();
        std::memcpy(link.segs.buffer(data.seg), from, bytes);
        counters_.add(SmCounter::kMessageBytes, bytes);
        serve.address += bytes;
        serve.left -= bytes;
    } else {
        data.status = status;
        data.length = 0;
        serve.left = 0;
    }
    link.send_control(Kind::kPullData, data);
    if (serve.left == 0)
        link.serves.pop_front();
    return true;
}

void SmIface::deliver_push(Link& link, const PushBody& push) {
    const RingGeometry& geometry = link.rx_segment->geometry;
    if (push.seg >= geometry.seg_count || push.length > geometry.seg_bytes)
        return violation(link, "write with an impossible buffer or length");
    std::byte* to = md_.resolve(push.key, push.address, push.length, UCT_MD_MEM_ACCESS_REMOTE_PUT);
    if (to != nullptr)
        std::memcpy(to, link.rx_segment->buffer(push.seg), push.length);
    link.rx_segment->returns.give_back(push.seg);
    if (to != nullptr && push.is_last == 0)
        return;
    // After an error the writer's operation is over, and it ignores what else we say about it.
    link.send_control(Kind::kPushAck,
                      PushAckBody{push.op, to != nullptr ? UCS_OK : UCS_ERR_INVALID_ADDR});
}

void SmIface::deliver_atomic(Link& link, const AtomicBody& atomic) {
    if (atomic.opcode >= UCT_ATOMIC_OP_LAST || (atomic.bytes != 4 && atomic.bytes != 8))
        return violation(link, "atomic operation of an unknown kind");
    std::byte* at =
        md_.resolve(atomic.key, atomic.address, atomic.bytes, UCT_MD_MEM_ACCESS_REMOTE_ATOMIC);
    AtomicReplyBody reply{0, atomic.op, UCS_ERR_INVALID_ADDR};
    if (at != nullptr && atomic.address % atomic.bytes == 0) {
        reply.status = UCS_OK;
        reply.result =
            atomic.bytes == 8
                ? apply_atomic<std::uint64_t>(at, atomic.opcode, atomic.value, atomic.compare)
                : apply_atomic<std::uint32_t>(at, atomic.opcode,
                                              static_cast<std::uint32_t>(atomic.value),
                                              static_cast<std::uint32_t>(atomic.compare));
    }
    link.send_control(Kind::kAtomicReply, reply);
}

// ---- Our operations

Op* SmIface::new_op(Link& link, OpKind kind, SmEp* ep, uct_completion_t* comp) {
    const bool is_receive = kind == OpKind::kReceive;
    if (is_receive ? receive_ops_ == kReceiveCountMax : !has_op())
        return nullptr;
    if (op_free_.empty()) {
        op_table_.push_back(std::make_unique<Op>());
        op_table_.back()->id = static_cast<std::uint32_t>(op_table_.size() - 1);
        op_free_.push_back(op_table_.back().get());
    }
    Op& op = *op_free_.back();
    op_free_.pop_back();
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

void SmIface::free_op(Op& op) {
    --(op.kind == OpKind::kReceive ? receive_ops_ : own_ops_);
    op.owner = nullptr;
    op_free_.push_back(&op);
}

Op* SmIface::find_op(Link& link, std::uint32_t id) {
    const std::uint32_t index = id & kOpIndexMask;
    if (index >= op_table_.size())
        return nullptr;
    Op& op = *op_table_[index];
    return op.id == id && op.owner == &link ? &op : nullptr;
}

void SmIface::finish(Op& op, ucs_status_t status) {
    Link& link = *op.owner;
    if (op.help != nullptr)
        end_help(op);
    link.set_steps(op, false);
    if (is_blocking(op.kind))
        --link.blocking_ops;
    (op.kind == OpKind::kReceive ? link.receives : link.ops).erase(op);
    uct_completion_t* completion = op.completion;
    free_op(op);
    complete(completion, status);
    // Flushes that have become the oldest are done.
    while (Op* oldest = link.ops.front()) {
        if (oldest->kind != OpKind::kFlush)
            break;
        link.ops.erase(*oldest);
        uct_completion_t* flushed = oldest->completion;
        free_op(*oldest);
        complete(flushed, link.failure);
    }
}

bool SmIface::flush_needed(const Link& link) {
    return !link.ops.empty();
}

ucs_status_t SmIface::start_flush(Link& link, SmEp* ep, uct_completion_t* comp) {
    Op* op = new_op(link, OpKind::kFlush, ep, comp);
    if (op == nullptr)
        return UCS_ERR_NO_RESOURCE;
    link.ops.push_back(*op);
    return UCS_INPROGRESS;
}

ucs_status_t SmIface::step_first(Op& op) {
    const std::uint32_t id = op.id;
    Link& link = *op.owner;
    first_status_ = UCS_INPROGRESS;
    op.is_first_step = true;
    step_op(op);
    Op* still = find_op(link, id);
    if (still != nullptr)
        still->is_first_step = false;
    return first_status_;
}

void SmIface::finish_step(Op& op, ucs_status_t status) {
    if (op.is_first_step) {
        // Done within the call that started it: its return value says so, the completion is not
        // touched.
        first_status_ = status;
        op.completion = nullptr;
    }
    finish(op, status);
}

bool SmIface::step_op(Op& op) {
    if (op.help != nullptr)
        return step_helped_get(op);
    Link& link = *op.owner;
    if (op.kind == OpKind::kPush) {
        if (!link.controls.empty() || link.claim(1) != UCS_OK || !link.segs.has(1))
            return false;
        const std::uint32_t seg = link.segs.take();
        const std::size_t bytes =
            op.cursor.gather(link.segs.buffer(seg), std::min<std::uint64_t>(op.left, seg_bytes_));
        counters_.add(SmCounter::kMessageBytes, bytes);
        op.left -= bytes;
        if (op.left == 0)
            link.set_steps(op, false);
        const PushBody push{op.remote, op.key,
                            seg,       static_cast<std::uint32_t>(bytes),
                            op.id,     op.left == 0 ? 1U : 0U};
        op.remote += bytes;
        link.send_control(Kind::kPush, push);
        return true;
    }
    iovec local[kIovMax];
    std::size_t count = 0;
    const std::size_t bytes =
        op.cursor.pieces(local, kIovMax, std::min<std::uint64_t>(op.left, kCopyStepBytes), &count);
    const bool is_put = op.kind == OpKind::kCopyPut;
    const bool knows = link.process != nullptr && link.process->pidfd;
    if (!op.guard.is_good()) {
        finish_step(op, UCS_ERR_INVALID_ADDR);
        return true;
    }
    ucs_status_t status = UCS_ERR_CONNECTION_RESET;
    if (!is_put || !knows || ucs::pidfd_is_alive(link.process->pidfd.get())) {
        status = is_put ? ucs::process_write(link.peer.pid, local, count, op.remote, bytes)
                        : ucs::process_read(link.peer.pid, local, count, op.remote, bytes);
    }
    // The data read counts only if it was the peer's: its pid may have gone to another process by
    // now.
    if (status == UCS_OK && !is_put && knows && !ucs::pidfd_is_alive(link.process->pidfd.get()))
        status = UCS_ERR_CONNECTION_RESET;
    if (status == UCS_ERR_REJECTED) {
        use_messages_instead(op);
        return true;
    }
    counters_.add(SmCounter::kProcessVmBytes, bytes);
    op.remote += bytes;
    op.left -= bytes;
    if (status == UCS_OK)
        status = op.guard.status();
    if (status != UCS_OK || op.left == 0)
        finish_step(op, status);
    return true;
}

// The peer's memory was within reach before and is not any more (it may have become undumpable).
void SmIface::use_messages_instead(Op& op) {
    Link& link = *op.owner;
    link.copy_path = CopyPath::kMessages;
    link.copy_reason = "process_vm_readv is not permitted any more";
    if (op.is_first_step) {
        finish_step(op, UCS_ERR_NO_RESOURCE);  // nothing has moved: the caller tries again
        return;
    }
    op.cursor = op.iov.cursor();
    op.cursor.skip(op.length - op.left);
    const bool is_put = op.kind == OpKind::kCopyPut;
    op.kind = is_put ? OpKind::kPush : OpKind::kPull;
    if (is_put)
        return;  // the next steps send
    link.set_steps(op, false);
    link.send_control(Kind::kPull, PullBody{op.remote, op.left, 0, op.key, kNoOp, op.id});
}

// The callback runs once, with all bytes, however small the owner's buffers are.
void SmIface::unpack_piece(Op& op, const std::byte* from, std::size_t bytes) {
    if (bytes == op.length)
        return op.unpack(op.unpack_arg, from, bytes);
    if (!op.gathered)
        op.gathered = std::make_unique<std::byte[]>(op.length);
    std::memcpy(op.gathered.get() + (op.length - op.left), from, bytes);
    if (bytes == op.left)
        op.unpack(op.unpack_arg, op.gathered.get(), op.length);
}

void SmIface::deliver_pull_data(Link& link, const PullDataBody& data) {
    const RingGeometry& geometry = link.rx_segment->geometry;
    if (data.seg >= geometry.seg_count || data.length > geometry.seg_bytes)
        return violation(link, "data with an impossible buffer or length");
    const std::byte* from = link.rx_segment->buffer(data.seg);
    Op* op = find_op(link, data.op);
    ucs_status_t status = static_cast<ucs_status_t>(std::min(data.status, 0));
    bool done = false;
    if (op != nullptr && (op->kind == OpKind::kPull || op->kind == OpKind::kReceive)) {
        if (status == UCS_OK && (data.length > op->left || data.length == 0))
            return violation(link, "more data than was asked for");
        if (op->unpack != nullptr && status == UCS_OK)
            unpack_piece(*op, from, data.length);
        else
            op->cursor.scatter(from, data.length);
        op->left -= data.length;
        done = status != UCS_OK || op->left == 0;
    }
    if (data.length > 0)
        link.rx_segment->returns.give_back(data.seg);
    if (!done)
        return;
    if (op->kind == OpKind::kReceive)
        finish_receive(*op, status);
    else
        finish(*op, status);
}

// One turn of a link: queued answers first, then one step of each kind of work. True: something
// moved.
bool SmIface::step_link(Link& link) {
    bool moved = false;
    while (!link.controls.empty() && link.failure == UCS_OK && link.claim(1) == UCS_OK) {
        const QueuedControl queued = link.controls.front();
        link.controls.pop_front();
        std::memcpy(link.tx.slot().body, queued.body, sizeof queued.body);
        link.tx.publish(queued.control);
        link.after_publish();
        moved = true;
    }
    if (!pending.empty() || link.fence_waits)
        link.tx.hold();
    if (link.failure != UCS_OK)
        return moved;
    while (!link.serves.empty() && step_serve(link))
        moved = true;
    if (link.helping > 0)
        moved |= step_help(link);
    if (!link.get_helps.empty())
        moved |= step_get_help(link);
    if (link.stepping == 0)
        return moved;
    for (Op* op = link.receives.front(); op != nullptr; op = link.receives.next(*op)) {
        if (!op->needs_steps)
            continue;
        moved |= step_receive(*op);
        break;  // the oldest first; `op` may be gone
    }
    for (Op* op = link.ops.front(); op != nullptr; op = link.ops.next(*op)) {
        if (!op->needs_steps)
            continue;
        moved |= step_op(*op);
        break;
    }
    return moved;
}

}  // namespace tagwire::sm
