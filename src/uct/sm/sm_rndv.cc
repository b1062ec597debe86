// SPDX-License-Identifier: BSD-3-Clause
// Rendezvous, both sides. The receiver moves the data:
//
//   sender                              receiver
//   state word = pending, kRndv ------> match, then
//                                         from the sender's arena: memcpy (kDirect)
//                                         otherwise: process_vm_readv, alone (kRead)
//               <----- kRndvHelp            or with the sender's help (kBoth)
//               <----- kPull              not permitted: the sender sends the data (kPull)
//                                       state word: pending -> done by compare-and-swap; if that
//                                       fails the sender cancelled meanwhile, and the receive ends
//                                       with UCS_ERR_CANCELED
//   completion  <----- kRndvFin
#include <algorithm>
#include <cstring>
#include <utility>

#include "ucs/log/log.hpp"
#include "uct/sm/sm_ep.hpp"
#include "uct/sm/sm_iface.hpp"

namespace tagwire::sm {

// ---- Receiver

bool SmIface::deliver_rndv(Link& link, Control control) {
    if (!takes_tags(link))
        return false;
    RndvBody body;
    std::memcpy(&body, link.rx.body(), sizeof body);
    const RingGeometry& geometry = link.rx_segment->geometry;
    const std::uint32_t header_bytes = control.length();
    const bool in_seg = (control.id() & kHeaderInSeg) != 0;
    const bool in_arena = (control.id() & kInArena) != 0;
    const std::byte* data =
        in_arena && link.arena ? link.arena->at(body.arena_offset, body.length) : nullptr;
    if (body.op >= kRndvCount || (in_seg && body.seg >= geometry.seg_count) ||
        (in_arena && data == nullptr) ||
        header_bytes > (in_seg ? geometry.seg_bytes : sizeof body.header) ||
        body.address + body.length < body.address) {
        violation(link, "rendezvous with an impossible header, buffer or operation");
        return false;
    }
    if (PostedEntry* entry = tags_.consume(body.tag)) {
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
    if (in_seg && !hand_over(link, body.seg, header_bytes, &header, &flags))
        return false;
    counters_.add(SmCounter::kUnexpected);
    const ucs_status_t status = invoke_unexpected_rndv(flags, body.tag, header, header_bytes,
                                                       body.address, body.length, &rkey);
    if (in_seg)
        after_callback(link, body.seg, header, flags, status);
    return true;
}

bool SmIface::deliver_rndv_request(Link& link, Control control) {
    if (!takes_tags(link))
        return false;
    RndvRequestBody body;
    std::memcpy(&body, link.rx.body(), sizeof body);
    const RingGeometry& geometry = link.rx_segment->geometry;
    const std::uint32_t header_bytes = control.length();
    const bool in_seg = (control.id() & kHeaderInSeg) != 0;
    if ((in_seg && body.seg >= geometry.seg_count) ||
        header_bytes > (in_seg ? geometry.seg_bytes : sizeof body.header)) {
        violation(link, "rendezvous request with an impossible header or buffer");
        return false;
    }
    void* header = in_seg ? link.rx_segment->buffer(body.seg)
                          : link.rx.body() + offsetof(RndvRequestBody, header);
    if (PostedEntry* entry = tags_.consume(body.tag)) {
        counters_.add(SmCounter::kMatched);
        tags_.complete_rndv(*entry, body.tag, header, header_bytes);
        if (in_seg)
            link.rx_segment->returns.give_back(body.seg);
        return true;
    }
    unsigned flags = 0;
    if (in_seg && !hand_over(link, body.seg, header_bytes, &header, &flags))
        return false;
    counters_.add(SmCounter::kUnexpected);
    const ucs_status_t status =
        invoke_unexpected_rndv(flags, body.tag, header, header_bytes, 0, 0, nullptr);
    if (in_seg)
        after_callback(link, body.seg, header, flags, status);
    return true;
}

void SmIface::start_receive(Link& link, const RndvBody& body, bool in_arena, PostedEntry& entry) {
    Op* op = new_op(link, OpKind::kReceive, nullptr, nullptr);
    if (op == nullptr) {
        complete_entry(entry, body.tag, 0, body.length, UCS_ERR_NO_MEMORY);
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
        const bool both = op->left >= options_.both_copy_min && op->left > kChunkBytesMin &&
                          !entry.is_scattered();
        op->mode = both ? ReceiveMode::kBoth : ReceiveMode::kRead;
    }
    link.set_steps(*op, true);
    // Behind older ones that are still copying it waits for its turn.
    if (link.receives.front() == op)
        step_receive(*op);
    if (link.has_work())
        add_work(link);
}

// One step of at most kCopyStepBytes. True: something moved.
bool SmIface::step_receive(Op& op) {
    Link& link = *op.owner;
    if (op.mode == ReceiveMode::kBoth)
        return step_both(op);
    if (op.mode == ReceiveMode::kLeaving)
        return step_leaving(op);
    ucs_status_t status = UCS_OK;
    const std::uint64_t bytes = std::min<std::uint64_t>(op.left, kCopyStepBytes);
    if (bytes > 0 && op.mode == ReceiveMode::kDirect) {
        op.cursor.scatter(op.direct, bytes);
        op.direct += bytes;
        counters_.add(SmCounter::kDirectBytes, bytes);
    } else if (bytes > 0) {
        iovec local[kIovMax];
        std::size_t count = 0;
        const std::size_t now = op.cursor.pieces(local, kIovMax, bytes, &count);
        status = ucs::process_read(link.peer.pid, local, count, op.remote, now);
        op.remote += now;
        op.left -= now;
        counters_.add(SmCounter::kProcessVmBytes, now);
        // The pid may have gone to another process by now: what was read counts only if the peer
        // still lives.
        if (status == UCS_OK && link.process != nullptr && link.process->pidfd &&
            !ucs::pidfd_is_alive(link.process->pidfd.get())) {
            status = UCS_ERR_CONNECTION_RESET;
        }
        if (status == UCS_ERR_REJECTED) {
            pull_instead(op);
            return true;
        }
        if (status == UCS_OK && op.left > 0)
            return true;
        finish_receive(op, status);
        return true;
    }
    op.left -= bytes;
    if (op.left == 0)
        finish_receive(op, status);
    return true;
}

// The peer's memory cannot be read any more (it may have become undumpable): the peer sends all of
// it.
void SmIface::pull_instead(Op& op) {
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

// Sender and receiver claim chunks of the same message until none is left; done when all are
// finished.
bool SmIface::step_both(Op& op) {
    Link& link = *op.owner;
    RndvWord& word = link.rx_segment->rndv(op.sender_op);
    const std::uint32_t chunks = chunk_count(op.copy_bytes);
    if (!op.both_started) {
        op.both_started = true;
        link.send_control(Kind::kRndvHelp,
                          RndvHelpBody{reinterpret_cast<std::uintptr_t>(op.entry->buffer),
                                       op.copy_bytes, op.generation, op.sender_op});
    }
    bool moved = false;
    std::uint32_t claimed = 0;
    for (std::uint64_t copied = 0; copied < kCopyStepBytes;) {
        if (!claim_chunk(word.next, op.generation, chunks, &claimed))
            break;
        const auto [offset, bytes] = chunk_at(op.copy_bytes, claimed);
        copied += bytes;
        const iovec local{op.entry->buffer + offset, bytes};
        const ucs_status_t status =
            ucs::process_read(link.peer.pid, &local, 1, op.source + offset, bytes);
        if (status != UCS_OK) {
            count_chunk(word.done, op.generation);
            const bool rejected = status == UCS_ERR_REJECTED;
            leave_both(op, ReceiveMode::kPull, rejected ? UCS_OK : status);
            return true;
        }
        counters_.add(SmCounter::kProcessVmBytes, bytes);
        count_chunk(word.done, op.generation);
        moved = true;
    }
    // SYNC sm_chunk: all chunks that are counted have been written.
    const std::uint64_t done = word.done.load(std::memory_order_acquire);
    if (word.failed.load(std::memory_order_relaxed) == rndv_word(op.generation, 1)) {
        leave_both(op, ReceiveMode::kRead,
                   UCS_OK);  // the sender cannot write to us: read all of it
        return true;
    }
    const bool stale = done >> 32 != op.generation;
    if (!stale && static_cast<std::uint32_t>(done) < chunks)
        return moved;
    const bool dead = link.process != nullptr && link.process->pidfd &&
                      !ucs::pidfd_is_alive(link.process->pidfd.get());
    finish_receive(op, dead ? UCS_ERR_CONNECTION_RESET : stale ? UCS_ERR_CANCELED : UCS_OK);
    return true;
}

// The sender may be writing a chunk right now: nothing else happens to the buffer before it has
// finished.
void SmIface::leave_both(Op& op, ReceiveMode next, ucs_status_t status) {
    RndvWord& word = op.owner->rx_segment->rndv(op.sender_op);
    const std::uint32_t end = chunk_count(op.copy_bytes);
    std::uint64_t seen = word.next.load(std::memory_order_relaxed);
    while (seen >> 32 == op.generation &&
           !word.next.compare_exchange_weak(seen, rndv_word(op.generation, end),
                                            std::memory_order_relaxed)) {
    }  // Ends: a lost exchange is a claim of the sender's, and it has few to make.
    op.mode = ReceiveMode::kLeaving;
    op.claimed = seen >> 32 == op.generation ? static_cast<std::uint32_t>(seen) : 0;
    op.next_mode = next;
    op.next_status = status;
}

bool SmIface::step_leaving(Op& op) {
    // SYNC sm_chunk: the sender's writes into the buffer are over when its chunks are counted.
    const std::uint64_t done =
        op.owner->rx_segment->rndv(op.sender_op).done.load(std::memory_order_acquire);
    if (done >> 32 == op.generation && static_cast<std::uint32_t>(done) < op.claimed)
        return false;
    if (op.next_status != UCS_OK)
        finish_receive(op, op.next_status);
    else if (op.next_mode == ReceiveMode::kPull)
        pull_instead(op);
    else
        op.mode = op.next_mode;
    return true;
}

void SmIface::finish_receive(Op& op, ucs_status_t status) {
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
    finish(op, status);
    complete_entry(entry, tag, 0, length, status);
}

// ---- Sender

RndvOp* SmIface::new_rndv(Link& link, SmEp* ep, uct_completion_t* comp) {
    if (!has_words(link, 1))
        return nullptr;
    Op* place = new_op(link, OpKind::kRndvSend, ep, comp);
    if (place == nullptr)
        return nullptr;
    link.ops.push_back(*place);
    RndvOp& op = take_word(link);
    op.op = place;
    place->rndv = &op;
    return &op;
}

bool SmIface::has_words(Link& link, std::size_t count) {
    if (!link.rndv_ops) {
        link.rndv_ops = std::make_unique<RndvOp[]>(kRndvCount);
        for (std::uint32_t i = kRndvCount; i > 0; --i)
            link.rndv_free.push_back(i - 1);
    }
    return link.rndv_free.size() >= count;
}

// has_words() was true.
RndvOp& SmIface::take_word(Link& link) {
    const std::uint32_t index = link.rndv_free.back();
    link.rndv_free.pop_back();
    RndvOp& op = link.rndv_ops[index];
    op.link = &link;
    op.index = index;
    op.op = nullptr;
    ++op.generation;
    op.helping = false;
    ++link.rndv_count;
    RndvWord& word = link.tx_rndv(index);
    word.next.store(rndv_word(op.generation, 0), std::memory_order_relaxed);
    word.done.store(rndv_word(op.generation, 0), std::memory_order_relaxed);
    word.failed.store(0, std::memory_order_relaxed);
    // Relaxed: the message that follows publishes the word.
    word.state.store(rndv_word(op.generation, RndvState::kPending), std::memory_order_relaxed);
    return op;
}

void SmIface::give_word(RndvOp& op) {
    Link& link = *std::exchange(op.link, nullptr);
    --link.rndv_count;
    link.rndv_free.push_back(op.index);
}

void SmIface::drop_rndv(RndvOp& op, ucs_status_t status) {
    Link& link = *op.link;
    if (op.helping)
        --link.helping;
    op.helping = false;
    if (op.own_memh != nullptr)
        md_.mem_dereg(std::exchange(op.own_memh, nullptr));
    give_word(op);
    Op& place = *std::exchange(op.op, nullptr);
    place.rndv = nullptr;
    finish(place, status);
}

void SmIface::deliver_fin(Link& link, const RndvFinBody& fin) {
    if (!link.rndv_ops || fin.op >= kRndvCount) {
        violation(link, "end of a rendezvous that never was");
        return;
    }
    RndvOp& op = link.rndv_ops[fin.op];
    if (op.op == nullptr || op.link == nullptr || op.generation != fin.generation)
        return;  // cancelled meanwhile
    const auto status = static_cast<ucs_status_t>(fin.status);
    drop_rndv(op, status <= 0 ? status : UCS_ERR_IO_ERROR);
}

void SmIface::deliver_help(Link& link, const RndvHelpBody& help) {
    if (!link.rndv_ops || help.op >= kRndvCount) {
        violation(link, "request to help with a rendezvous that never was");
        return;
    }
    RndvOp& op = link.rndv_ops[help.op];
    if (op.op == nullptr || op.link == nullptr || op.generation != help.generation || op.helping)
        return;
    if (help.length > op.length || help.address + help.length < help.address) {
        violation(link, "request to copy more than a rendezvous has");
        return;
    }
    if (link.copy_path != CopyPath::kProcessVm)
        return;  // the receiver goes on alone
    op.helping = true;
    op.help_address = help.address;
    op.help_bytes = help.length;
    ++link.helping;
    add_work(link);
}

// One chunk for one rendezvous of this link. True: something moved.
bool SmIface::step_help(Link& link) {
    for (std::uint32_t i = 0; i < kRndvCount && link.helping > 0; ++i) {
        RndvOp& op = link.rndv_ops[i];
        if (!op.helping)
            continue;
        RndvWord& word = link.tx_rndv(i);
        std::uint32_t claimed = 0;
        const bool alive = link.process == nullptr || !link.process->pidfd ||
                           ucs::pidfd_is_alive(link.process->pidfd.get());
        if (!alive ||
            !claim_chunk(word.next, op.generation, chunk_count(op.help_bytes), &claimed)) {
            op.helping = false;
            --link.helping;
            continue;
        }
        const auto [offset, bytes] = chunk_at(op.help_bytes, claimed);
        const iovec local{op.buffer + offset, bytes};
        if (ucs::process_write(link.peer.pid, &local, 1, op.help_address + offset, bytes) !=
            UCS_OK) {
            word.failed.store(rndv_word(op.generation, 1), std::memory_order_relaxed);
            op.helping = false;
            --link.helping;
        } else {
            counters_.add(SmCounter::kHelpedBytes, bytes);
        }
        count_chunk(word.done, op.generation);
        return true;
    }
    return false;
}

}  // namespace tagwire::sm
