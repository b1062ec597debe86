// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/both_copy.hpp"

#include <utility>

#include "ucs/sys/step_aside.hpp"
#include "ucs/time/clock.hpp"
#include "uct/sm/sm_iface.hpp"

namespace tagwire::sm {

namespace {

/// Words that gets leave to rendezvous, which cannot do without.
constexpr std::size_t kWordsKept = kRndvCount / 2;
/// The number of times the end of a copy looks for the end of a chunk; each time others may run.
constexpr std::uint64_t kLeavingNs = 500'000'000;
constexpr unsigned kStepsPerLook = 256;  // at the owner's life

}  // namespace

// ---- Reader

bool BothCopy::is_long(std::uint64_t bytes) const {
    return bytes >= min_bytes_ && bytes > kChunkBytesMin;
}

void BothCopy::ask_owner(Op& get, std::byte* buffer) {
    Link& link = *get.owner;
    if (!is_long(get.length) || !link.tx_made || link.copy_path != CopyPath::kProcessVm ||
        !link.has_words(kWordsKept + 1))
        return;
    // A hint: it wakes nobody, waits for no room, and does not pile up before who reads nothing.
    if (!link.controls.empty() || !link.tx.is_followed() || link.claim(1) != UCS_OK)
        return;
    get.help = &link.take_word();
    get.buffer = buffer;
    get.source = get.remote;
    get.copy_bytes = get.length;
    get.mode = ReceiveMode::kBoth;
    get.generation = get.help->generation;
    link.send_control(Kind::kGetHelp,
                      GetHelpBody{reinterpret_cast<std::uintptr_t>(buffer), get.remote, get.length,
                                  get.generation, get.key, get.help->index, get.is_lent ? 1U : 0U});
}

void BothCopy::ask_sender(Op& receive) {
    receive.both_started = true;
    receive.buffer = receive.entry->buffer;
    receive.owner->send_control(
        Kind::kRndvHelp, RndvHelpBody{reinterpret_cast<std::uintptr_t>(receive.buffer),
                                      receive.copy_bytes, receive.generation, receive.sender_op});
}

SharedChunks BothCopy::chunks_of(const Op& op) {
    const Link& link = *op.owner;
    RndvWord& word = op.kind == OpKind::kReceive ? link.rx_segment->rndv(op.sender_op)
                                                 : link.tx_rndv(op.help->index);
    return {word, op.generation, op.copy_bytes};
}

bool BothCopy::step(Op& op) {
    if (op.mode == ReceiveMode::kLeaving)
        return step_leaving(op);
    if (op.kind == OpKind::kReceive && !op.both_started)
        ask_sender(op);
    const Link& link = *op.owner;
    const SharedChunks chunks = chunks_of(op);
    bool moved = false;
    Chunk chunk{};
    for (std::uint64_t copied = 0; copied < kCopyStepBytes; copied += chunk.bytes) {
        if (!op.guard.is_good()) {
            leave(op, UCS_ERR_INVALID_ADDR);
            return true;
        }
        if (!chunks.claim(&chunk))
            break;
        const iovec local{op.buffer + chunk.offset, chunk.bytes};
        const ucs_status_t status = ucs::process_read_proved(link.peer.pid, link.proof, &local, 1,
                                                             op.source + chunk.offset, chunk.bytes);
        chunks.finish();
        if (status != UCS_OK) {
            leave(op, status);
            return true;
        }
        iface_.count(SmCounter::kProcessVmBytes, chunk.bytes);
        moved = true;
    }
    constexpr std::uint32_t kLate = UINT32_MAX;  // the word serves another copy
    const std::uint32_t finished = chunks.finished(kLate);
    if (chunks.is_refused()) {
        leave(op, UCS_OK);
        return true;
    }
    if (finished < chunks.count())
        return moved;
    finish(op, finished == kLate ? UCS_ERR_CANCELED : op.guard.status());
    return true;
}

/// The owner may be writing a chunk right now: nothing else happens to the buffer before it has
/// finished. Then the reader goes on alone (UCS_OK) or by messages (UCS_ERR_REJECTED), or the
/// operation ends with `status`.
void BothCopy::leave(Op& op, ucs_status_t status) {
    op.claimed = chunks_of(op).claim_rest();
    op.mode = ReceiveMode::kLeaving;
    op.next_status = status;
}

bool BothCopy::has_left(const Op& op) {
    return chunks_of(op).finished(op.claimed) >= op.claimed;
}

/// A chunk takes a few hundred microseconds, unless the owner has no processor; one that was
/// stopped has written its chunk, and has yet to count it.
bool BothCopy::await_left(const Op& op) {
    const std::uint64_t end = ucs::clock_now_ns() + kLeavingNs;
    for (unsigned i = 0; !has_left(op); ++i) {
        if (i % kStepsPerLook == 0 && (!op.owner->is_alive() || ucs::clock_now_ns() > end))
            return false;
        ucs::step_aside();
    }
    return true;
}

bool BothCopy::step_leaving(Op& op) {
    if (!has_left(op))
        return false;
    const ucs_status_t status = op.next_status;
    const bool by_messages = status == UCS_ERR_REJECTED;
    if (status != UCS_OK && !by_messages) {
        finish(op, status);
    } else if (op.kind == OpKind::kReceive) {
        op.mode = ReceiveMode::kRead;
        if (by_messages)
            iface_.rndv.pull_instead(op);
    } else {
        release(op);
        op.mode = ReceiveMode::kDirect;
        if (by_messages)
            iface_.remote.use_messages_instead(op);
    }
    return true;
}

void BothCopy::finish(Op& op, ucs_status_t status) {
    if (op.kind == OpKind::kReceive)
        iface_.rndv.finish_receive(op, status);
    else
        iface_.remote.finish_step(op, status);
}

bool BothCopy::abandon(Op& receive) {
    if (receive.mode == ReceiveMode::kBoth)
        leave(receive, UCS_ERR_CANCELED);
    receive.next_status = UCS_ERR_CANCELED;
    return await_left(receive) && step_leaving(receive);
}

void BothCopy::release(Op& get) {
    if (get.mode != ReceiveMode::kLeaving)
        get.claimed = chunks_of(get).claim_rest();
    await_left(get);
    get.owner->give_word(*std::exchange(get.help, nullptr));
}

// ---- Owner

void BothCopy::deliver_rndv_help(Link& link, const RndvHelpBody& help) {
    if (!link.rndv_ops || help.op >= kRndvCount)
        return iface_.ends.violation(link, "request to help with an unknown rendezvous");
    RndvOp& op = link.rndv_ops[help.op];
    if (op.op == nullptr || op.link == nullptr || op.generation != help.generation || op.helping)
        return;
    if (help.length > op.length || help.address + help.length < help.address)
        return iface_.ends.violation(link, "request to copy outside the buffer of a rendezvous");
    if (link.copy_path != CopyPath::kProcessVm)
        return;  // the receiver goes on alone
    op.helping = true;
    op.help_address = help.address;
    op.help_bytes = help.length;
    ++link.helping;
    iface_.add_work(link);
}

void BothCopy::deliver_get_help(Link& link, const GetHelpBody& help) {
    if (help.word >= kRndvCount || help.address + help.length < help.address ||
        help.remote + help.length < help.remote || help.is_lent > 1)
        return iface_.ends.violation(link, "request to help with a get of impossible addresses");
    if (link.copy_path != CopyPath::kProcessVm || link.get_helps.size() >= kServesPause)
        return;  // the reader goes on alone
    link.get_helps.push_back({help.address, help.remote, help.length, help.generation, help.key,
                              help.word, help.is_lent != 0});
    iface_.add_work(link);
}

BothCopy::Written BothCopy::write_chunk(const Link& link, const SharedChunks& chunks,
                                        const std::byte* from, std::uint64_t to) {
    Chunk chunk{};
    if (ucs::process_prove(link.peer.pid, link.proof) != UCS_OK || !chunks.claim(&chunk))
        return Written::kNothing;
    const iovec local{const_cast<std::byte*>(from) + chunk.offset, chunk.bytes};
    const bool done =
        ucs::process_write(link.peer.pid, &local, 1, to + chunk.offset, chunk.bytes) == UCS_OK;
    if (done)
        iface_.count(SmCounter::kHelpedBytes, chunk.bytes);
    else
        chunks.refuse();
    chunks.finish();
    return done ? Written::kChunk : Written::kRefused;
}

bool BothCopy::step_rndv_help(Link& link) {
    for (std::uint32_t i = 0; i < kRndvCount && link.helping > 0; ++i) {
        RndvOp& op = link.rndv_ops[i];
        if (!op.helping)
            continue;
        const SharedChunks chunks(link.tx_rndv(i), op.generation, op.help_bytes);
        const Written written = write_chunk(link, chunks, op.buffer, op.help_address);
        if (written != Written::kChunk) {
            op.helping = false;
            --link.helping;
        }
        if (written != Written::kNothing)
            return true;
    }
    return false;
}

// The oldest that has any left.
bool BothCopy::step_get_help(Link& link) {
    while (!link.get_helps.empty()) {
        const GetHelp help = link.get_helps.front();
        // Looked up for each chunk: the registration, or the message, may have ended.
        const std::byte* from = help.is_lent
                                    ? iface_.loans.find(link, help.key, help.remote, help.length)
                                    : iface_.sm_md().resolve(help.key, help.remote, help.length,
                                                             UCT_MD_MEM_ACCESS_REMOTE_GET);
        const SharedChunks chunks(link.rx_segment->rndv(help.word), help.generation, help.length);
        const Written written =
            from == nullptr ? Written::kNothing : write_chunk(link, chunks, from, help.address);
        if (written != Written::kChunk)
            link.get_helps.pop_front();
        if (written != Written::kNothing)
            return true;
    }
    return false;
}

}  // namespace tagwire::sm
