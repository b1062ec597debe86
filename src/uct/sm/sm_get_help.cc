// SPDX-License-Identifier: BSD-3-Clause
// Long gets that both sides copy. The initiator reads registered memory of the peer by
// process_vm_readv, and asks the peer to write parts of it by process_vm_writev:
//
//   initiator                                owner of the memory
//   a word of its segment, kGetHelp ------>  while its progress runs:
//   claims chunks, reads them                claims chunks, writes them
//   all chunks claimed are done: the get is complete
//
// 1. The initiator waits for nobody: what the owner does not claim it reads itself. It asks only an
//    owner that polls.
// 2. The get ends, however it does, only when no chunk is being written any more.
#include <sched.h>

#include <algorithm>
#include <utility>

#include "uct/sm/sm_ep.hpp"
#include "uct/sm/sm_iface.hpp"

namespace tagwire::sm {

namespace {

/// Words that gets leave to rendezvous, which cannot do without.
constexpr std::size_t kWordsKept = kRndvCount / 2;
/// The number of times the end of a get looks for the end of a chunk; each time others may run.
constexpr unsigned kEndSpins = 1'000'000;

bool is_alive(const Link& link) {
    return link.process == nullptr || !link.process->pidfd ||
           ucs::pidfd_is_alive(link.process->pidfd.get());
}

/// Chunks that are finished; `if_late` when the word serves another operation by now.
std::uint32_t finished(const RndvWord& word, std::uint32_t generation, std::uint32_t if_late) {
    // SYNC sm_chunk: all chunks that are counted have been written.
    const std::uint64_t done = word.done.load(std::memory_order_acquire);
    return done >> 32 == generation ? static_cast<std::uint32_t>(done) : if_late;
}

/// Claims all that is left; how many have been claimed before.
std::uint32_t claim_rest(RndvWord& word, std::uint32_t generation, std::uint32_t end) {
    std::uint64_t seen = word.next.load(std::memory_order_relaxed);
    while (seen >> 32 == generation && static_cast<std::uint32_t>(seen) < end &&
           !word.next.compare_exchange_weak(seen, rndv_word(generation, end),
                                            std::memory_order_relaxed)) {
    }  // Ends: a lost exchange is a claim of the owner's, and it has few to make.
    return seen >> 32 == generation ? std::min(static_cast<std::uint32_t>(seen), end) : 0;
}

}  // namespace

// ---- Initiator

void SmIface::ask_for_help(Op& op, std::byte* buffer) {
    Link& link = *op.owner;
    const bool is_long = op.length >= options_.both_copy_min && op.length > kChunkBytesMin;
    if (!is_long || !link.tx_made || link.copy_path != CopyPath::kProcessVm ||
        !has_words(link, kWordsKept + 1))
        return;
    // A hint: it wakes nobody, waits for no room, and does not pile up before who reads nothing.
    if (!link.controls.empty() || !link.tx.is_followed() || link.claim(1) != UCS_OK)
        return;
    op.help = &take_word(link);
    op.buffer = buffer;
    op.mode = ReceiveMode::kBoth;
    op.generation = op.help->generation;
    link.send_control(Kind::kGetHelp,
                      GetHelpBody{reinterpret_cast<std::uintptr_t>(buffer), op.remote, op.length,
                                  op.generation, op.key, op.help->index, 0});
}

bool SmIface::step_helped_get(Op& op) {
    if (op.mode == ReceiveMode::kLeaving)
        return step_leaving_get(op);
    Link& link = *op.owner;
    RndvWord& word = link.tx_rndv(op.help->index);
    const std::uint32_t chunks = chunk_count(op.length);
    bool moved = false;
    std::uint32_t claimed = 0;
    for (std::uint64_t copied = 0; copied < kCopyStepBytes;) {
        if (!op.guard.is_good()) {
            leave_get(op, UCS_ERR_INVALID_ADDR);
            return true;
        }
        if (!claim_chunk(word.next, op.generation, chunks, &claimed))
            break;
        const auto [offset, bytes] = chunk_at(op.length, claimed);
        copied += bytes;
        const iovec local{op.buffer + offset, bytes};
        const ucs_status_t status =
            ucs::process_read(link.peer.pid, &local, 1, op.remote + offset, bytes);
        count_chunk(word.done, op.generation);
        if (status != UCS_OK) {
            leave_get(op, status);
            return true;
        }
        counters_.add(SmCounter::kProcessVmBytes, bytes);
        moved = true;
    }
    if (word.failed.load(std::memory_order_relaxed) == rndv_word(op.generation, 1)) {
        leave_get(op, UCS_OK);  // the owner cannot write to us: we read all of it
        return true;
    }
    if (finished(word, op.generation, 0) < chunks)
        return moved;
    // The data read counts only if it was the peer's: its pid may have gone to another process by
    // now.
    finish_step(op, is_alive(link) ? op.guard.status() : UCS_ERR_CONNECTION_RESET);
    return true;
}

/// The owner may be writing a chunk right now: nothing else happens to the buffer before it has
/// finished. Then the get ends with `status`, or begins anew without help.
void SmIface::leave_get(Op& op, ucs_status_t status) {
    op.claimed =
        claim_rest(op.owner->tx_rndv(op.help->index), op.generation, chunk_count(op.length));
    op.mode = ReceiveMode::kLeaving;
    op.next_status = status;
}

bool SmIface::step_leaving_get(Op& op) {
    Link& link = *op.owner;
    if (finished(link.tx_rndv(op.help->index), op.generation, op.claimed) < op.claimed)
        return false;
    if (op.next_status != UCS_OK && op.next_status != UCS_ERR_REJECTED) {
        finish_step(op, op.next_status);
        return true;
    }
    end_help(op);
    op.mode = ReceiveMode::kDirect;
    if (op.next_status == UCS_ERR_REJECTED)
        use_messages_instead(op);
    return true;
}

/// The buffer is only ours again. A chunk takes a few hundred microseconds, unless the owner has no
/// processor; one that was stopped has written its chunk, and has yet to count it.
void SmIface::end_help(Op& op) {
    Link& link = *op.owner;
    RndvOp& help = *std::exchange(op.help, nullptr);
    RndvWord& word = link.tx_rndv(help.index);
    const std::uint32_t claimed = op.mode == ReceiveMode::kLeaving
                                      ? op.claimed
                                      : claim_rest(word, op.generation, chunk_count(op.length));
    for (unsigned i = 0; i < kEndSpins && finished(word, op.generation, claimed) < claimed; ++i) {
        if (!is_alive(link))
            break;
        ::sched_yield();
    }
    give_word(help);
}

// ---- Owner

void SmIface::deliver_get_help(Link& link, const GetHelpBody& help) {
    if (help.word >= kRndvCount || help.address + help.length < help.address ||
        help.remote + help.length < help.remote)
        return violation(link, "request to help with a get that cannot be");
    if (link.get_helps.size() >= kServesMax)
        return violation(link, "more gets at once than a peer may ask help for");
    if (link.copy_path != CopyPath::kProcessVm)
        return;  // the reader goes on alone
    link.get_helps.push_back(
        {help.address, help.remote, help.length, help.generation, help.key, help.word});
    add_work(link);
}

// One chunk of the oldest that has any left. True: something moved.
bool SmIface::step_get_help(Link& link) {
    while (!link.get_helps.empty()) {
        const GetHelp help = link.get_helps.front();
        RndvWord& word = link.rx_segment->rndv(help.word);
        // Looked up for each chunk: the registration may have ended.
        const std::byte* from =
            md_.resolve(help.key, help.remote, help.length, UCT_MD_MEM_ACCESS_REMOTE_GET);
        std::uint32_t claimed = 0;
        if (from == nullptr || !is_alive(link) ||
            !claim_chunk(word.next, help.generation, chunk_count(help.length), &claimed)) {
            link.get_helps.pop_front();
            continue;
        }
        const auto [offset, bytes] = chunk_at(help.length, claimed);
        const iovec local{const_cast<std::byte*>(from) + offset, bytes};
        if (ucs::process_write(link.peer.pid, &local, 1, help.address + offset, bytes) != UCS_OK) {
            word.failed.store(rndv_word(help.generation, 1), std::memory_order_relaxed);
            link.get_helps.pop_front();
        } else {
            counters_.add(SmCounter::kHelpedBytes, bytes);
        }
        count_chunk(word.done, help.generation);
        return true;
    }
    return false;
}

}  // namespace tagwire::sm
