// SPDX-License-Identifier: BSD-3-Clause
// Long copies that both sides make. The reader takes the data by process_vm_readv, and asks the
// owner of the data to write parts of it by process_vm_writev:
//
//   reader                                   owner of the data
//   a RndvWord, kRndvHelp or kGetHelp ---->  while its progress runs:
//   claims chunks, reads them                claims chunks, writes them
//   all chunks claimed are done: the copy is complete
//
// The reader is the receiver of a rendezvous, whose word is in the sender's segment, or the
// initiator of a get, whose word is in its own.
//
//   kBoth --- all chunks are done --------------------------------------------------> finished
//     | leave(): the rest is claimed                                                     ^
//     +--> kLeaving --- the owner's chunks are done ---> alone, by messages, or with an error
//
// Invariants
//  (1) The reader waits for nobody: it reads the chunks that the owner does not claim. A get asks
//      only an owner that polls.
//  (2) The copy ends only when no chunk is being written any more; when its link fails, a receive
//      ends at once.
#pragma once

#include <algorithm>

#include "uct/sm/layout.hpp"
#include "uct/sm/link.hpp"
#include "uct/sm/transfer.hpp"

namespace tagwire::sm {

/// The chunks of one copy of `total` bytes, as both sides claim and count them.
class SharedChunks {
  public:
    SharedChunks(RndvWord& word, std::uint32_t generation, std::uint64_t total)
        : word_(word), generation_(generation), total_(total) {}

    /// The next chunk is ours. False: none is left.
    [[nodiscard]] bool claim(Chunk* chunk_p) const {
        std::uint32_t index = 0;
        if (!claim_chunk(word_.next, generation_, count(), &index))
            return false;
        *chunk_p = chunk_at(total_, index);
        return true;
    }
    /// Nobody claims any more. Returns the number of chunks that were claimed before.
    [[nodiscard]] std::uint32_t claim_rest() const {
        const std::uint32_t end = count();
        std::uint64_t seen = word_.next.load(std::memory_order_relaxed);
        while (seen >> 32 == generation_ && static_cast<std::uint32_t>(seen) < end &&
               !word_.next.compare_exchange_weak(seen, rndv_word(generation_, end),
                                                 std::memory_order_relaxed)) {
        }  // Ends: a lost exchange is a claim of the other side's, and it has few to make.
        return seen >> 32 == generation_ ? std::min(static_cast<std::uint32_t>(seen), end) : 0;
    }
    /// A claimed chunk was written, or will not be.
    void finish() const { count_chunk(word_.done, generation_); }
    /// Chunks that are finished; `if_late` when the word serves another copy by now.
    [[nodiscard]] std::uint32_t finished(std::uint32_t if_late) const {
        // SYNC sm_chunk: all chunks that are counted have been written.
        const std::uint64_t done = word_.done.load(std::memory_order_acquire);
        return done >> 32 == generation_ ? static_cast<std::uint32_t>(done) : if_late;
    }
    /// The owner cannot write, before it finishes the chunk that it claimed.
    void refuse() const {
        word_.failed.store(rndv_word(generation_, 1), std::memory_order_relaxed);
    }
    /// After finished(), which makes it visible.
    [[nodiscard]] bool is_refused() const {
        return word_.failed.load(std::memory_order_relaxed) == rndv_word(generation_, 1);
    }
    [[nodiscard]] std::uint32_t count() const { return chunk_count(total_); }

  private:
    RndvWord& word_;
    std::uint32_t generation_;
    std::uint64_t total_;
};

/// Both halves of such copies, for all links of an interface.
class BothCopy {
  public:
    /// Copies of at least `min_bytes` are made by both sides.
    BothCopy(SmIface& owner, std::size_t min_bytes) : iface_(owner), min_bytes_(min_bytes) {}

    // ---- Reader
    /// Whether a copy of this length is worth two.
    [[nodiscard]] bool is_long(std::uint64_t bytes) const;
    /// Whether the owner is asked to help with a read of lent memory: with a single one only from
    /// twice that length on, since asking takes its time. In a stream the owner has nothing else to
    /// do meanwhile.
    [[nodiscard]] bool is_worth_asking(std::uint64_t bytes, bool is_in_stream) const {
        return is_long(bytes) && (is_in_stream || bytes / 2 > min_bytes_);
    }
    /// A get that has not begun, into this buffer: from here on the peer copies parts of it, too,
    /// unless there is a reason against it.
    void ask_owner(Op& get, std::byte* buffer);
    /// A step of an operation whose mode is kBoth or kLeaving. True: something moved.
    bool step(Op& op);
    /// The program wants the buffer of a receive back: it ends with UCS_ERR_CANCELED. False: its
    /// owner is still writing a chunk; the receive ends when it has.
    [[nodiscard]] bool abandon(Op& receive);
    /// A get ends: its word is given back when nobody writes to the buffer any more.
    void release(Op& get);

    // ---- Owner
    void deliver_rndv_help(Link& link, const RndvHelpBody& help);
    void deliver_get_help(Link& link, const GetHelpBody& help);
    /// Write one chunk of what the peer asked help for. True: something moved.
    bool step_rndv_help(Link& link);
    bool step_get_help(Link& link);

  private:
    enum class Written { kNothing, kChunk, kRefused };

    static SharedChunks chunks_of(const Op& op);
    static void ask_sender(Op& receive);
    static void leave(Op& op, ucs_status_t status);
    static bool has_left(const Op& op);
    static bool await_left(const Op& op);
    bool step_leaving(Op& op);
    void finish(Op& op, ucs_status_t status);
    Written write_chunk(const Link& link, const SharedChunks& chunks, const std::byte* from,
                        std::uint64_t to);

    SmIface& iface_;
    const std::size_t min_bytes_;
};

}  // namespace tagwire::sm
