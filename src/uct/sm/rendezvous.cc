// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/rendezvous.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "uct/sm/sm_iface.hpp"

namespace tagwire::sm {

// ---- Receiver

bool Rendezvous::deliver(Link& link, Control control) {
    if (!iface_.tags.takes_tags(link))
        return false;
    RndvBody body;
    std::memcpy(&body, link.rx.body(), sizeof body);
    const RingGeometry& geometry = link.rx_segment->geometry;
    const std::uint32_t header_bytes = control.length();
    const bool in_seg = (control.id() & kHeaderInSeg) != 0;
    const bool in_arena = (control.id() & kInArena) != 0;
    const std::byte* data =
        in_arena && link.arena ? link.arena->at(body.arena_offset, body.length) : nullptr;
    if (body.op >= kRndvCount || (in_seg && !geometry.has_buffer(body.seg, header_bytes)) ||
        (in_arena && data == nullptr) || (!in_seg && header_bytes > sizeof body.header) ||
        body.address + body.length < body.address) {
        iface_.ends.violation(link, "rendezvous with an impossible header, buffer or operation");
        return false;
    }
    if (PostedEntry* entry = iface_.tags.consume(body.tag)) {
        if (in_seg)
            link.rx_segment->returns.give_back(body.seg);
        start_receive(link, body, in_arena, *entry);
        return true;
    }
    const PackedRkey rkey{kRkeyMagic,
                          body.key,
                          link.arena ? link.arena->id() : 0,
                          in_arena ? body.arena_offset : kNoOffset,
                          body.address,
                          body.length,
                          body.key_generation};
    void* header = link.rx.body() + offsetof(RndvBody, header);
    unsigned flags = 0;
    if (in_seg && !iface_.hand_over(link, body.seg, header_bytes, &header, &flags))
        return false;
    iface_.count(SmCounter::kUnexpected);
    const ucs_status_t status = iface_.invoke_unexpected_rndv(flags, body.tag, header, header_bytes,
                                                              body.address, body.length, &rkey);
    if (in_seg)
        iface_.descs.settle(*link.rx_segment, body.seg, header, status);
    return true;
}

bool Rendezvous::deliver_request(Link& link, Control control) {
    if (!iface_.tags.takes_tags(link))
        return false;
    RndvRequestBody body;
    std::memcpy(&body, link.rx.body(), sizeof body);
    const RingGeometry& geometry = link.rx_segment->geometry;
    const std::uint32_t header_bytes = control.length();
    const bool in_seg = (control.id() & kHeaderInSeg) != 0;
    if ((in_seg && !geometry.has_buffer(body.seg, header_bytes)) ||
        (!in_seg && header_bytes > sizeof body.header)) {
        iface_.ends.violation(link, "rendezvous request with an impossible header or buffer");
        return false;
    }
    void* header = in_seg ? link.rx_segment->buffer(body.seg)
                          : link.rx.body() + offsetof(RndvRequestBody, header);
    if (iface_.tags.give_rndv(body.tag, header, header_bytes)) {
        if (in_seg)
            link.rx_segment->returns.give_back(body.seg);
        return true;
    }
    unsigned flags = 0;
    if (in_seg && !iface_.hand_over(link, body.seg, header_bytes, &header, &flags))
        return false;
    iface_.count(SmCounter::kUnexpected);
    const ucs_status_t status =
        iface_.invoke_unexpected_rndv(flags, body.tag, header, header_bytes, 0, 0, nullptr);
    if (in_seg)
        iface_.descs.settle(*link.rx_segment, body.seg, header, status);
    return true;
}

void Rendezvous::start_receive(Link& link, const RndvBody& body, bool in_arena,
                               PostedEntry& entry) {
    Op* op = iface_.ops.create(link, OpKind::kReceive, nullptr, nullptr);
    if (op == nullptr) {
        iface_.tags.complete(entry, body.tag, 0, body.length, UCS_ERR_NO_MEMORY);
        link.send_control(Kind::kRndvFin, RndvFinBody{body.generation, body.op, UCS_ERR_NO_MEMORY});
        return;
    }
    op->entry = &entry;
    entry.set_matched(op);
    op->tag = body.tag;
    op->length = body.length;
    op->copy_bytes = std::min<std::uint64_t>(body.length, entry.capacity());
    op->left = op->copy_bytes;
    op->source = op->remote = body.address;
    op->sender_op = body.op;
    op->generation = body.generation;
    if (entry.is_scattered()) {
        op->cursor = entry.scattered()->cursor();
    } else {
        const uct_iov_t one{entry.buffer, entry.capacity(), nullptr, 0, 1};
        op->iov.assign(&one, 1);
        op->cursor = op->iov.cursor();
    }
    link.receives.push_back(*op);

    if (in_arena) {
        op->mode = ReceiveMode::kDirect;
        op->direct = link.arena->base() + body.arena_offset;
    } else if (link.copy_path == CopyPath::kSelf) {
        op->mode = ReceiveMode::kDirect;
        op->direct = reinterpret_cast<const std::byte*>(body.address);
    } else if (link.copy_path == CopyPath::kMessages) {
        op->mode = ReceiveMode::kPull;
        if (op->left > 0) {
            link.send_control(
                Kind::kPull, PullBody{body.address, op->left, body.generation, 0, body.op, op->id});
            return;
        }
    } else {
        const bool both = iface_.both.is_long(op->left) && !entry.is_scattered();
        op->mode = both ? ReceiveMode::kBoth : ReceiveMode::kRead;
    }
    link.set_steps(*op, true);
    // Behind older ones that are still copying it waits for its turn.
    if (link.receives.front() == op)
        step_receive(*op);
    if (link.has_work())
        iface_.add_work(link);
}

bool Rendezvous::step_receive(Op& op) {
    if (op.mode == ReceiveMode::kBoth || op.mode == ReceiveMode::kLeaving)
        return iface_.both.step(op);
    const std::uint64_t bytes = std::min<std::uint64_t>(op.left, kCopyStepBytes);
    if (bytes > 0 && op.mode != ReceiveMode::kDirect)
        return step_read(op);
    if (bytes > 0) {
        op.cursor.scatter(op.direct, bytes);
        op.direct += bytes;
        iface_.count(SmCounter::kDirectBytes, bytes);
    }
    op.left -= bytes;
    if (op.left == 0)
        finish_receive(op, UCS_OK);
    return true;
}

bool Rendezvous::step_read(Op& op) {
    const Link& link = *op.owner;
    iovec local[kIovMax];
    std::size_t count = 0;
    const std::size_t bytes =
        op.cursor.pieces(local, kIovMax, std::min<std::uint64_t>(op.left, kCopyStepBytes), &count);
    const ucs_status_t status =
        ucs::process_read_proved(link.peer.pid, link.proof, local, count, op.remote, bytes);
    op.remote += bytes;
    op.left -= bytes;
    iface_.count(SmCounter::kProcessVmBytes, bytes);
    if (status == UCS_ERR_REJECTED)
        pull_instead(op);
    else if (status != UCS_OK || op.left == 0)
        finish_receive(op, status);
    return true;
}

void Rendezvous::pull_instead(Op& op) {
    Link& link = *op.owner;
    link.copy_path = CopyPath::kMessages;
    link.copy_reason = "process_vm_readv is not permitted any more";
    op.mode = ReceiveMode::kPull;
    op.left = op.copy_bytes;
    op.cursor = op.entry->is_scattered() ? op.entry->scattered()->cursor() : op.iov.cursor();
    link.set_steps(op, false);
    link.send_control(Kind::kPull,
                      PullBody{op.source, op.left, op.generation, 0, op.sender_op, op.id});
}

void Rendezvous::finish_receive(Op& op, ucs_status_t status) {
    Link& link = *op.owner;
    if (status == UCS_OK && link.failure == UCS_OK) {
        std::uint64_t expected = rndv_word(op.generation, RndvState::kPending);
        // SYNC sm_rndv: after this the sender's cancel fails, before it ours does; the data was
        // copied before.
        if (!link.rx_segment->rndv(op.sender_op)
                 .state.compare_exchange_strong(expected,
                                                rndv_word(op.generation, RndvState::kDone),
                                                std::memory_order_acq_rel)) {
            status = UCS_ERR_CANCELED;
        }
    }
    if (link.failure == UCS_OK)
        link.send_control(Kind::kRndvFin, RndvFinBody{op.generation, op.sender_op, status});
    PostedEntry& entry = *op.entry;
    const uct_tag_t tag = op.tag;
    const std::uint64_t length = op.length;
    iface_.ops.end_receive(op);
    iface_.tags.complete(entry, tag, 0, length, status);
}

// ---- Sender

RndvOp* Rendezvous::start(Link& link, SmEp* ep, uct_completion_t* comp) {
    if (!link.has_words(1))
        return nullptr;
    Op* place = iface_.ops.create(link, OpKind::kRndvSend, ep, comp);
    if (place == nullptr)
        return nullptr;
    link.ops.push_back(*place);
    RndvOp& op = link.take_word();
    op.op = place;
    place->rndv = &op;
    return &op;
}

void Rendezvous::drop(RndvOp& op, ucs_status_t status) {
    Link& link = *op.link;
    if (op.helping)
        --link.helping;
    op.helping = false;
    if (op.own_memh != nullptr)
        iface_.sm_md().mem_dereg(std::exchange(op.own_memh, nullptr));
    link.give_word(op);
    Op& place = *std::exchange(op.op, nullptr);
    place.rndv = nullptr;
    iface_.ops.finish(place, status);
}

void Rendezvous::deliver_fin(Link& link, const RndvFinBody& fin) {
    if (!link.rndv_ops || fin.op >= kRndvCount) {
        iface_.ends.violation(link, "end of an unknown rendezvous");
        return;
    }
    RndvOp& op = link.rndv_ops[fin.op];
    if (op.op == nullptr || op.link == nullptr || op.generation != fin.generation)
        return;  // cancelled meanwhile
    const auto status = static_cast<ucs_status_t>(fin.status);
    drop(op, status <= 0 ? status : UCS_ERR_IO_ERROR);
}

}  // namespace tagwire::sm
