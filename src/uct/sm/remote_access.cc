// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/remote_access.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "ucs/memory/copy.hpp"
#include "ucs/sys/checked_copy.hpp"
#include "uct/sm/atomics.hpp"
#include "uct/sm/sm_iface.hpp"

namespace tagwire::sm {

// ---- Requests of the peer

void RemoteAccess::deliver_pull(Link& link, const PullBody& pull) {
    Serve serve{pull.op, pull.key, pull.rndv_op, pull.generation, pull.address, pull.length};
    if (pull.rndv_op != kNoOp) {
        if (!link.rndv_ops || pull.rndv_op >= kRndvCount)
            return iface_.ends.violation(link, "request for the data of an unknown rendezvous");
        const RndvOp& op = link.rndv_ops[pull.rndv_op];
        const auto start = reinterpret_cast<std::uintptr_t>(op.buffer);
        const bool alive =
            op.op != nullptr && op.link != nullptr && op.generation == pull.generation;
        if (alive && (pull.address != start || pull.length > op.length))
            return iface_.ends.violation(link,
                                         "request for data outside the buffer of a rendezvous");
    }
    link.serves.push_back(serve);
    iface_.add_work(link);
}

bool RemoteAccess::step_serve(Link& link) {
    Serve& serve = link.serves.front();
    if (!link.controls.empty() || link.claim(1) != UCS_OK || !link.segs->has(1))
        return false;
    const std::uint64_t bytes = std::min<std::uint64_t>(serve.left, iface_.seg_bytes());
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
        from =
            iface_.sm_md().resolve(serve.key, serve.address, bytes, UCT_MD_MEM_ACCESS_REMOTE_GET);
    }
    PullDataBody data{serve.requester_op, 0, UCS_OK, static_cast<std::uint32_t>(bytes)};
    if (from != nullptr) {
        data.seg = link.segs->take();
        status = ucs::read_checked(link.segs->buffer(data.seg), from, bytes);
        if (status != UCS_OK)
            link.segs->untake(std::exchange(data.seg, 0));
    }
    if (status == UCS_OK) {
        link.segs->shrink(data.seg, bytes);
        iface_.count(SmCounter::kMessageBytes, bytes);
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

void RemoteAccess::deliver_push(Link& link, const PushBody& push) {
    if (!link.rx_segment->geometry.has_buffer(push.seg, push.length))
        return iface_.ends.violation(link, "write with an impossible buffer or length");
    ucs_status_t status = UCS_ERR_INVALID_ADDR;
    {
        const Writing writing(own_writer());
        std::byte* to = iface_.sm_md().resolve(push.key, push.address, push.length,
                                               UCT_MD_MEM_ACCESS_REMOTE_PUT);
        if (to != nullptr)
            status = ucs::write_checked(to, link.rx_segment->buffer(push.seg), push.length);
    }
    link.rx_segment->returns.give_back(push.seg);
    if (status == UCS_OK && push.is_last == 0)
        return;
    // After an error the writer's operation is over, and it ignores what else we say about it.
    link.send_control(Kind::kPushAck, PushAckBody{push.op, status});
}

void RemoteAccess::deliver_atomic(Link& link, const AtomicBody& atomic) {
    if (atomic.opcode >= UCT_ATOMIC_OP_LAST || (atomic.bytes != 4 && atomic.bytes != 8))
        return iface_.ends.violation(link, "atomic operation of an unknown kind");
    const Writing writing(own_writer());
    std::byte* at = iface_.sm_md().resolve(atomic.key, atomic.address, atomic.bytes,
                                           UCT_MD_MEM_ACCESS_REMOTE_ATOMIC);
    AtomicReplyBody reply{0, atomic.op, UCS_ERR_INVALID_ADDR};
    if (at != nullptr && atomic.address % atomic.bytes == 0 && ucs::is_writable_word(at)) {
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

/// For what we write for peers: any thread may deregister the memory meanwhile.
const Writer<>& RemoteAccess::own_writer() {
    if (own_writer_.word == nullptr) {
        Writers& writers = iface_.sm_md().writers();
        own_index_ = writers.give(::getpid());
        own_writer_ = {writers.at(own_index_), own_index_ == kSharedWriter,
                       HostFences{!iface_.rings.has_membarrier()}};
    }
    return own_writer_;
}

RemoteAccess::~RemoteAccess() {
    own_writer_.leave();
    iface_.sm_md().writers().take_back(own_index_);
}

// ---- Our operations

ucs_status_t RemoteAccess::step_first(Op& op) {
    const std::uint32_t id = op.id;
    Link& link = *op.owner;
    first_status_ = UCS_INPROGRESS;
    op.is_first_step = true;
    step(op);
    Op* still = iface_.ops.find(link, id);
    if (still != nullptr)
        still->is_first_step = false;
    return first_status_;
}

void RemoteAccess::finish_step(Op& op, ucs_status_t status) {
    if (op.is_lent)
        status = iface_.loans.end_of(op.guard, status);
    if (op.is_first_step) {
        // Done within the call that started it: its return value says so, the completion is not
        // touched.
        first_status_ = status;
        op.completion = nullptr;
    }
    iface_.ops.finish(op, status);
}

bool RemoteAccess::step_push(Op& op) {
    Link& link = *op.owner;
    if (!link.controls.empty() || link.claim(1) != UCS_OK || !link.segs->has(1))
        return false;
    const std::uint32_t seg = link.segs->take();
    const std::size_t bytes = op.cursor.gather(
        link.segs->buffer(seg), std::min<std::uint64_t>(op.left, iface_.seg_bytes()));
    link.segs->shrink(seg, bytes);
    iface_.count(SmCounter::kMessageBytes, bytes);
    op.left -= bytes;
    if (op.left == 0)
        link.set_steps(op, false);
    const PushBody push{
        op.remote, op.key, seg, static_cast<std::uint32_t>(bytes), op.id, op.left == 0 ? 1U : 0U};
    op.remote += bytes;
    link.send_control(Kind::kPush, push);
    return true;
}

ucs_status_t RemoteAccess::write_piece(const Op& op, std::span<const iovec> from,
                                       std::size_t bytes) {
    const Link& link = *op.owner;
    const ucs_status_t proved = ucs::process_prove(link.peer.pid, link.proof);
    if (proved != UCS_OK)
        return proved;
    const Writing writing(link.writer);
    if (!op.guard.is_good())
        return UCS_ERR_INVALID_ADDR;
    return ucs::process_write(link.peer.pid, from.data(), from.size(), op.remote, bytes);
}

ucs_status_t RemoteAccess::read_piece(const Op& op, std::span<const iovec> to, std::size_t bytes) {
    const Link& link = *op.owner;
    if (!op.guard.is_good())
        return UCS_ERR_INVALID_ADDR;
    const ucs_status_t status =
        ucs::process_read_proved(link.peer.pid, link.proof, to.data(), to.size(), op.remote, bytes);
    return status == UCS_OK ? op.guard.status() : status;
}

bool RemoteAccess::step(Op& op) {
    if (op.help != nullptr)
        return iface_.both.step(op);
    if (op.kind == OpKind::kPush)
        return step_push(op);
    iovec local[kIovMax];
    std::size_t count = 0;
    const std::size_t bytes =
        op.cursor.pieces(local, kIovMax, std::min<std::uint64_t>(op.left, kCopyStepBytes), &count);
    const ucs_status_t status = op.kind == OpKind::kCopyPut ? write_piece(op, {local, count}, bytes)
                                                            : read_piece(op, {local, count}, bytes);
    if (status == UCS_ERR_REJECTED) {
        use_messages_instead(op);
        return true;
    }
    op.remote += bytes;
    op.left -= bytes;
    if (status == UCS_OK)
        iface_.count(SmCounter::kProcessVmBytes, bytes);
    if (status != UCS_OK || op.left == 0)
        finish_step(op, status);
    return true;
}

void RemoteAccess::use_messages_instead(Op& op) {
    Link& link = *op.owner;
    link.copy_path = CopyPath::kMessages;
    link.copy_reason = "process_vm_readv is not permitted any more";
    if (op.is_lent)
        return finish_step(op, UCS_ERR_UNSUPPORTED);  // a loan gives no right by messages
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

// The callback runs once, with all bytes, however small the owner's buffers are. It may destroy the
// endpoint, which ends the operation; the data stays until it returns.
void RemoteAccess::unpack_piece(Op& op, const std::byte* from, std::size_t bytes) {
    if (bytes == op.length)
        return op.unpack(op.unpack_arg, from, bytes);
    if (!op.gathered)
        op.gathered = std::make_unique<std::byte[]>(op.length);
    ucs::copy_plain(op.gathered.get() + (op.length - op.left), from, bytes);
    if (bytes != op.left)
        return;
    const std::unique_ptr<std::byte[]> whole = std::move(op.gathered);
    op.unpack(op.unpack_arg, whole.get(), op.length);
}

void RemoteAccess::deliver_pull_data(Link& link, const PullDataBody& data) {
    if (!link.rx_segment->geometry.has_buffer(data.seg, data.length))
        return iface_.ends.violation(link, "data with an impossible buffer or length");
    const std::byte* from = link.rx_segment->buffer(data.seg);
    Op* op = iface_.ops.find(link, data.op);
    ucs_status_t status = static_cast<ucs_status_t>(std::min(data.status, 0));
    bool done = false;
    if (op != nullptr && (op->kind == OpKind::kPull || op->kind == OpKind::kReceive)) {
        if (status == UCS_OK && (data.length > op->left || data.length == 0))
            return iface_.ends.violation(link, "more data than was requested");
        if (op->unpack != nullptr && status == UCS_OK)
            unpack_piece(*op, from, data.length);
        else
            op->cursor.scatter(from, data.length);
        op = iface_.ops.find(link, data.op);
        if (op != nullptr) {
            op->left -= std::min<std::uint64_t>(data.length, op->left);
            done = status != UCS_OK || op->left == 0;
        }
    }
    if (data.length > 0)
        link.rx_segment->returns.give_back(data.seg);
    if (!done)
        return;
    if (op->kind == OpKind::kReceive)
        iface_.rndv.finish_receive(*op, status);
    else
        iface_.ops.finish(*op, status);
}

void RemoteAccess::deliver_push_ack(Link& link, const PushAckBody& ack) {
    Op* op = iface_.ops.find(link, ack.op);
    if (op != nullptr && op->kind == OpKind::kPush)
        iface_.ops.finish(*op, static_cast<ucs_status_t>(std::min(ack.status, 0)));
}

void RemoteAccess::deliver_atomic_reply(Link& link, const AtomicReplyBody& reply) {
    Op* op = iface_.ops.find(link, reply.op);
    if (op == nullptr || op->kind != OpKind::kAtomic)
        return;
    if (op->result != nullptr && reply.status == UCS_OK)
        std::memcpy(op->result, &reply.result, op->result_bytes);
    iface_.ops.finish(*op, static_cast<ucs_status_t>(std::min(reply.status, 0)));
}

}  // namespace tagwire::sm
