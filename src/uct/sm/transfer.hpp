// SPDX-License-Identifier: BSD-3-Clause
// Operations that outlive the call that started them. All belong to one link and die with it,
// completed exactly once.
//
//   Op        of the initiator: get, put and atomics that take more than one step or an answer of
//             the peer, flushes, rendezvous sent, and the receiving side of a rendezvous
//   RndvOp    a rendezvous that this side sent; its index is that of its RndvWord in the segment
//   Serve     local memory that the peer reads by messages, because it may not do so itself
//   GetHelp   local memory that the peer reads, while this side writes parts of it to the peer
#pragma once

#include <uct/api/uct.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "ucs/datastruct/queue.hpp"
#include "ucs/memory/mpool.hpp"
#include "ucs/memory/reserve.hpp"
#include "uct/completion.hpp"
#include "uct/sm/iov.hpp"
#include "uct/sm/key_guard.hpp"
#include "uct/sm/layout.hpp"
#include "uct/sm/messages.hpp"
#include "uct/soft_tags.hpp"

namespace tagwire::sm {

struct Link;
struct Op;
struct RndvOp;
class SmEp;

/// A posted receive. Its second cache line is valid only as far as the flags in the first say.
class alignas(kCacheLine) PostedEntry : public uct::SoftReceive {
  public:
    using SoftReceive::SoftReceive;
    PostedEntry(const PostedEntry&) = delete;
    PostedEntry& operator=(const PostedEntry&) = delete;
    ~PostedEntry() {
        if (is_scattered()) [[unlikely]]
            pool_->destroy(pieces_);
    }

    /// The buffer has several pieces, of which SoftReceive::buffer is the first.
    [[nodiscard]] bool is_scattered() const { return has_extension(); }
    [[nodiscard]] IovCopy* scattered() const { return is_scattered() ? pieces_ : nullptr; }
    /// `pieces` go back to `pool` with the entry.
    void scatter(IovCopy* pieces, ucs::ObjectPool<IovCopy>& pool) {
        set_extension();
        pieces_ = pieces;
        pool_ = &pool;
    }

    /// The rendezvous that fills it.
    [[nodiscard]] Op* op() const { return is_matched() ? op_ : nullptr; }
    void set_matched(Op* by = nullptr) {
        SoftReceive::set_matched();
        op_ = by;
    }

  private:
    IovCopy* pieces_;
    ucs::ObjectPool<IovCopy>* pool_;
    Op* op_;
};

enum class OpKind : std::uint8_t {
    kFlush,     // done when it is the oldest
    kRndvSend,  // a rendezvous of ours, under way until the receiver has it
    kCopyGet,   // process_vm_readv, piece by piece
    kCopyPut,   // process_vm_writev, piece by piece
    kPull,      // the peer sends the data
    kPush,      // we send the data, the peer acknowledges the last piece
    kAtomic,    // the peer executes
    kReceive,   // rendezvous: fills a posted receive
};

enum class ReceiveMode : std::uint8_t { kDirect, kRead, kBoth, kLeaving, kPull };

/// One step of a copy that may take several: long enough to be efficient, short enough to stay
/// responsive.
constexpr std::size_t kCopyStepBytes = 512 * 1024;
/// The bytes that one side takes at a time when both copy `total` bytes: half, within limits. A
/// piece costs a system call, and one that is claimed late is waited for.
constexpr std::uint64_t kChunkBytesMin = 32 * 1024;
constexpr std::uint64_t kChunkBytesMax = kCopyStepBytes;
constexpr std::uint64_t chunk_size(std::uint64_t total) {
    constexpr std::uint64_t kPage = 4096;
    return std::clamp((total / 2 + kPage - 1) / kPage * kPage, kChunkBytesMin, kChunkBytesMax);
}

constexpr std::uint32_t chunk_count(std::uint64_t total) {
    const std::uint64_t size = chunk_size(total);
    return static_cast<std::uint32_t>((total + size - 1) / size);
}

struct Chunk {
    std::uint64_t offset;
    std::uint64_t bytes;
};

constexpr Chunk chunk_at(std::uint64_t total, std::uint32_t index) {
    const std::uint64_t size = chunk_size(total);
    return {index * size, std::min(size, total - index * size)};
}

/// The state that a new operation begins with. The iov is not part of it: it is large, and written
/// before it is read.
struct OpState {
    OpKind kind = OpKind::kFlush;
    ReceiveMode mode = ReceiveMode::kDirect;
    bool needs_steps = false;    // local work is left; otherwise it waits for the peer
    bool is_first_step = false;  // within the call that started it
    bool both_started = false;   // the sender was asked to help
    bool is_lent = false;        // kCopyGet by a loan; `key` is the owner's number of the buffer
    std::uint32_t id = kNoOp;    // what the peer's answers carry: serial << kOpIndexBits | index
    Link* owner = nullptr;
    SmEp* ep = nullptr;
    uct_completion_t* completion = nullptr;

    IovCursor cursor;          // over Op::iov, or that of a posted receive
    std::uint64_t remote = 0;  // peer's address of the next byte
    std::uint64_t left = 0;    // bytes still to move
    std::uint32_t key = 0;     // registration at the peer
    KeyGuard guard;            // kCopyGet, kCopyPut

    uct_unpack_callback_t unpack = nullptr;  // kPull of get_bcopy
    void* unpack_arg = nullptr;
    std::unique_ptr<std::byte[]> gathered;  // its bytes, when they come in pieces
    void* result = nullptr;                 // kAtomic
    std::uint32_t result_bytes = 0;

    PostedEntry* entry = nullptr;  // kReceive; what follows is of long gets, too
    const std::byte* direct = nullptr;
    std::uint64_t tag = 0;
    std::uint64_t length = 0;  // of the message; the buffer may be shorter
    std::uint64_t copy_bytes = 0;
    std::uint64_t source = 0;
    std::uint32_t sender_op = 0;
    std::uint32_t claimed = 0;          // kLeaving: chunks that must be finished first
    ucs_status_t next_status = UCS_OK;  // kLeaving: how it goes on (BothCopy::leave)
    RndvOp* rndv = nullptr;             // kRndvSend
    RndvOp* help = nullptr;             // kCopyGet: the peer may copy chunks of it, too
    std::byte* buffer = nullptr;        // of what both sides copy
    std::uint32_t generation = 0;
};

struct alignas(kCacheLine) Op : OpState, ucs::FromReserve {
    ucs::ListLink<Op> link;
    IovCopy iov;  // local memory
};

// An operation's number is serial << kOpIndexBits | index; the serial tells a late answer to an
// operation that is gone from one to its successor. kNoOp is none of them.
constexpr std::uint32_t kOpIndexBits = 17;
constexpr std::uint32_t kOpIndexMask = (1U << kOpIndexBits) - 1;
constexpr std::uint32_t kOpSerialMax = (1U << (32 - kOpIndexBits)) - 2;
/// Operations that an interface has under way by its own wish, and those of its peers: what it
/// receives by rendezvous. Apart, because neither may wait for the other: the answer that ends one
/// of ours comes behind the rendezvous that would have to wait.
constexpr std::uint32_t kOpCountMax = 4096;
constexpr std::uint32_t kReceiveCountMax = (1U << kOpIndexBits) - kOpCountMax;

struct alignas(kCacheLine) RndvOp : ucs::FromReserve {
    Link* link = nullptr;  // null: free
    Op* op = nullptr;      // its place among the link's operations, and its completion; null:
                           // the word serves a get
    uct_mem_h own_memh = nullptr;  // registered for this operation only
    std::byte* buffer = nullptr;
    std::uint64_t length = 0;
    std::uint64_t help_address = 0;
    std::uint64_t help_bytes = 0;
    std::uint32_t generation = 0;
    std::uint32_t index = 0;
    bool helping = false;

    /// The receiver cannot finish it any more; its data may be read for a while, but never counts.
    void withdraw();
};

struct Serve {
    std::uint32_t requester_op = kNoOp;
    std::uint32_t key = 0;
    std::uint32_t rndv_op = kNoOp;
    std::uint32_t generation = 0;
    std::uint64_t address = 0;
    std::uint64_t left = 0;
};

/// Memory of ours that the peer reads itself, and of which we write chunks into its buffer.
struct GetHelp {
    std::uint64_t address = 0;
    std::uint64_t remote = 0;
    std::uint64_t length = 0;
    std::uint32_t generation = 0;
    std::uint32_t key = 0;
    std::uint32_t word = 0;
    bool is_lent = false;  // `key` is the number of a lent buffer
};

/// A message to the peer that found the ring full.
struct QueuedControl {
    Control control;
    std::byte body[kBodyBytes];
};

constexpr std::uint64_t rndv_word(std::uint32_t generation, std::uint32_t low) {
    return std::uint64_t{generation} << 32 | low;
}
constexpr std::uint64_t rndv_word(std::uint32_t generation, RndvState state) {
    return rndv_word(generation, static_cast<std::uint32_t>(state));
}

/// As uct::invoke_completion(); null is allowed.
inline void complete(uct_completion_t* completion, ucs_status_t status) {
    if (completion != nullptr)
        uct::invoke_completion(completion, status);
}

/// Takes the next number below `end` of a counter of this generation (RndvWord::next).
template <class Counter>
bool claim_chunk(Counter& next, std::uint32_t generation, std::uint32_t end,
                 std::uint32_t* chunk_p) {
    std::uint64_t seen = next.load(std::memory_order_relaxed);
    do {  // Relaxed: a claim publishes nothing. Ends: a lost exchange is the other side's claim.
        if (seen >> 32 != generation || static_cast<std::uint32_t>(seen) >= end)
            return false;
    } while (!next.compare_exchange_weak(seen, seen + 1, std::memory_order_relaxed));
    *chunk_p = static_cast<std::uint32_t>(seen);
    return true;
}

/// Counts a finished chunk, unless the word serves another rendezvous by now (RndvWord::done).
template <class Counter>
void count_chunk(Counter& done, std::uint32_t generation) {
    std::uint64_t seen = done.load(std::memory_order_relaxed);
    do {
        if (seen >> 32 != generation)
            return;
        // SYNC sm_chunk: what the chunk's copier wrote is visible to whoever sees the count.
    } while (!done.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel,
                                         std::memory_order_relaxed));
}

}  // namespace tagwire::sm
