// SPDX-License-Identifier: BSD-3-Clause
// Buffers of messages that do not fit a slot.
//
// BufferPool: one per sending interface, for all its peers. A buffer is a run of blocks. Runs are
// lent one behind the other, around and around over the whole span, which is larger than the caches
// of two processors: when a line is written again, the receiver's cache has it no more, and writing
// it waits for no transfer from there. LentBuffers: those of one connection, and a few of its own
// for the time when others have used up the pool. Both: owner thread of the sending interface.
// BufferReturns: the receiver's side, which gives buffers back. Owner thread of the receiving one.
//
// Invariants
//  (1) cursor_ is never inside a run: a run begins at the cursor, which moves to its end, or past a
//      run that it meets. So the next start in starts_ is the next run, as a whole.
//  (2) [cursor_, free_end_) has no run, and its pages are touched.
//  (3) A connection has at most as many blocks as are free, and at most kReturnCount buffers. So a
//      receiver that returns nothing leaves half of the pool to the others, two leave a third, and
//      so on; and its return ring is never full.
//  (4) A buffer is lent again only when its receiver has returned it, or is dead.
#pragma once

#include <ucs/type/status.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ucs/memory/reserve.hpp"
#include "ucs/sys/fd.hpp"
#include "ucs/sys/line_ownership.hpp"
#include "ucs/sys/shm.hpp"
#include "uct/sm/layout.hpp"
#include "uct/sm/line_wait.hpp"

namespace tagwire::sm {

class BufferPool;

class alignas(kCacheLine) LentBuffers : public ucs::FromReserve {
  public:
    LentBuffers(BufferPool& pool, std::uint32_t id, const RingGeometry& geometry,
                std::byte* segment);
    LentBuffers(const LentBuffers&) = delete;
    LentBuffers& operator=(const LentBuffers&) = delete;

    /// May `count` (at most kReserveCount) buffers of the largest size be taken now?
    [[nodiscard]] inline bool has(std::size_t count);
    /// The name of one; has() was true.
    inline std::uint32_t take();
    /// The buffer that was taken last holds `bytes` bytes; the blocks behind them go back.
    inline void shrink(std::uint32_t seg, std::size_t bytes);
    /// The buffer that was taken last is not used after all.
    inline void untake(std::uint32_t seg);
    [[nodiscard]] inline std::byte* buffer(std::uint32_t seg) const;
    /// Behind a message with `bytes` bytes in its buffer: fetches as many for the next one, where
    /// that takes so long that it pays (BufferPool::prefetch_from()).
    inline void prefetch_next(std::size_t bytes);

    [[nodiscard]] std::size_t out_count() const { return out_count_; }
    [[nodiscard]] bool prefetches() const { return prefetches_; }

  private:
    friend class BufferPool;

    [[nodiscard]] inline bool admits(std::size_t count) const;
    [[gnu::noinline]] bool has_slow(std::size_t count);
    [[gnu::noinline]] void measure_wait();
    std::uint32_t take_reserve();
    /// Takes back what the receiver has returned.
    void collect();
    /// Names of buffers that are not lent to this connection are ignored.
    void release(std::uint32_t seg);

    BufferPool& pool_;
    Returns& returns_;
    std::atomic<std::uint32_t>* entries_;
    std::byte* reserve_;
    std::size_t seg_bytes_;
    std::uint64_t collected_ = 0;
    std::uint32_t id_;          // among the pool's users
    std::uint32_t run_blocks_;  // with the largest buffer
    std::uint32_t out_count_ = 0;
    std::uint32_t out_blocks_ = 0;
    std::uint32_t reserve_free_ = (1U << kReserveCount) - 1;  // one bit each
    bool prefetches_ = false;
    LineWait wait_;
};

/// The longest message behind which the next buffer's lines are fetched. For longer ones that
/// gained nothing, or cost, but on Intel's processors, where it pays for every buffer
/// (docs/internals/adr/0018-one-pool-per-sender.md).
inline constexpr std::size_t kPrefetchMax = 2048 + 64;

/// The span of a pool: `bytes_min`, and more from where its connections need `bytes_each`.
struct PoolSizes {
    std::size_t bytes_min;
    std::size_t bytes_each;
    std::size_t bytes_max;

    /// By the second-level cache of a processor; `fixed_bytes`, if not 0, whatever the cache.
    static PoolSizes of_machine(std::size_t fixed_bytes);
};

class BufferPool {
  public:
    BufferPool() = default;
    BufferPool(const BufferPool&) = delete;
    BufferPool& operator=(const BufferPool&) = delete;

    /// Makes the segment, whose pages are touched as they are used. Again: UCS_OK.
    ucs_status_t open(const PoolSizes& sizes);
    /// Connections fetch the lines of the next buffer early where one takes so long. Before the
    /// first connection; never without it.
    void prefetch_from(std::uint64_t ticks) { prefetch_from_ticks_ = ticks; }
    /// Limits fetching to what follows messages of at most so many bytes; 0: to what pays on this
    /// processor.
    void prefetch_up_to(std::size_t bytes);
    [[nodiscard]] std::uint32_t block_count() const { return block_count_; }
    [[nodiscard]] int fd() const { return fd_.get(); }

    /// For the connection whose ring segment that is. Owned by the pool.
    LentBuffers* add_user(const RingGeometry& geometry, std::byte* segment);
    /// The connection is over. Its buffers wait for their return, which comes through its segment,
    /// or for the death of the process that `pidfd` names (-1: unknown).
    void retire(LentBuffers& user, ucs::Mapping segment, int pidfd);

    /// When there is time: touches more pages, if all that were touched at first have been used. So
    /// the span that is used grows, for programs that use it. False: there was nothing to do.
    bool grow();

    /// Bytes that may be lent at a time.
    [[nodiscard]] std::size_t span_bytes() const { return std::size_t{span_} * kBlockBytes; }
    /// Bytes of pages that are in memory.
    [[nodiscard]] std::size_t touched_bytes() const { return std::size_t{touched_} * kBlockBytes; }
    [[nodiscard]] std::size_t lent_blocks() const { return lent_; }

  private:
    friend class LentBuffers;

    struct User {
        std::unique_ptr<LentBuffers> buffers;  // null: free
        ucs::Mapping segment;                  // of a retired one
        ucs::UniqueFd pidfd;
        bool is_retired = false;
    };

    [[nodiscard]] std::uint32_t free_blocks() const { return span_ - lent_; }
    [[nodiscard]] std::uint32_t room() const { return free_end_ - cursor_; }
    bool find_room(std::uint32_t blocks);
    void touch_more();
    [[nodiscard]] std::uint32_t next_start(std::uint32_t from) const;
    void set_span();
    void collect_from(std::uint32_t user_id);
    void release_all(LentBuffers& user);
    void forget(std::uint32_t user_id);

    std::uint32_t take(std::uint32_t user_id, std::uint32_t blocks) {
        const std::uint32_t start = cursor_;
        starts_[start / 64] |= std::uint64_t{1} << (start % 64);
        lengths_[start] = static_cast<std::uint16_t>(blocks);
        owners_[start] = user_id;
        cursor_ += blocks;
        lent_ += blocks;
        return start;
    }

    std::byte* base_ = nullptr;
    std::uint64_t prefetch_from_ticks_ = UINT64_MAX;
    std::size_t prefetch_max_ = kPrefetchMax;
    std::uint32_t cursor_ = 0;
    std::uint32_t free_end_ = 0;
    std::uint32_t span_ = 0;
    std::uint32_t lent_ = 0;
    std::uint32_t touched_ = 0;
    bool has_gone_around_ = false;
    std::uint32_t block_count_ = 0;
    std::uint32_t user_count_ = 0;               // that are not retired
    ucs::ReserveVector<std::uint64_t> starts_;   // one bit each
    ucs::ReserveVector<std::uint16_t> lengths_;  // in blocks, of the run that starts there
    ucs::ReserveVector<std::uint32_t> owners_;   // index in users_
    ucs::ReserveVector<User> users_;
    PoolSizes sizes_{};
    ucs::UniqueFd fd_;
    ucs::Mapping mapping_;
};

class BufferReturns {
  public:
    BufferReturns() = default;
    BufferReturns(const RingGeometry& geometry, std::byte* segment)
        : returns_(&reinterpret_cast<RingHead*>(segment)->returns),
          entries_(
              reinterpret_cast<std::atomic<std::uint32_t>*>(segment + geometry.returns_offset())) {}

    void give_back(std::uint32_t seg) {
        entries_[count_ % kReturnCount].store(seg, std::memory_order_relaxed);
        // SYNC sm_return: our reads of the buffer and the entry above come before the count.
        returns_->count.store(++count_, std::memory_order_release);
    }

  private:
    Returns* returns_ = nullptr;
    std::atomic<std::uint32_t>* entries_ = nullptr;
    std::uint64_t count_ = 0;
};

// ---- Per message

constexpr std::uint32_t blocks_of(std::size_t bytes) {
    return static_cast<std::uint32_t>((bytes + kBlockBytes - 1) / kBlockBytes);
}

/// Unused until the next turn, behind each buffer. A processor asks for the lines behind those that
/// it reads: the first ones of the next message, if that followed at once, which the receiver's
/// cache would have to give up again before they are written.
inline constexpr std::uint32_t kGapBlocks = 2;
/// Blocks of a run with a buffer of that size; 0 for none.
constexpr std::uint32_t run_of(std::size_t bytes) {
    return bytes == 0 ? 0 : blocks_of(bytes) + kGapBlocks;
}

inline bool LentBuffers::admits(std::size_t count) const {
    const std::size_t blocks = count * run_blocks_;
    return blocks <= pool_.room() &&
           out_blocks_ + blocks + (blocks - run_blocks_) <= pool_.free_blocks() &&
           out_count_ + count <= kReturnCount;
}

inline bool LentBuffers::has(std::size_t count) {
    return admits(count) || has_slow(count);
}

inline void LentBuffers::prefetch_next(std::size_t bytes) {
    if (bytes > pool_.prefetch_max_)
        return;
    if (wait_.is_due()) [[unlikely]]
        measure_wait();
    if (!prefetches_)
        return;
    const std::byte* const next = pool_.base_ + std::size_t{pool_.cursor_} * kBlockBytes;
    const std::size_t end = std::min(bytes, std::size_t{pool_.room()} * kBlockBytes);
    for (std::size_t at = 0; at < end; at += kCacheLine)
        ucs::prefetch_ownership(next + at);
}

inline std::uint32_t LentBuffers::take() {
    if (!admits(1)) [[unlikely]]
        return take_reserve();
    ++out_count_;
    out_blocks_ += run_blocks_;
    return pool_.take(id_, run_blocks_);
}

inline void LentBuffers::shrink(std::uint32_t seg, std::size_t bytes) {
    if ((seg & kReserveBit) != 0) [[unlikely]]
        return;
    const std::uint32_t blocks = run_of(bytes);
    const std::uint32_t back = run_blocks_ - blocks;
    pool_.lengths_[seg] = static_cast<std::uint16_t>(blocks);
    pool_.cursor_ -= back;
    pool_.lent_ -= back;
    out_blocks_ -= back;
}

inline void LentBuffers::untake(std::uint32_t seg) {
    shrink(seg, 0);
    release(seg);
}

inline std::byte* LentBuffers::buffer(std::uint32_t seg) const {
    if ((seg & kReserveBit) != 0) [[unlikely]]
        return reserve_ + std::size_t{seg & ~kReserveBit} * seg_bytes_;
    return pool_.base_ + std::size_t{seg} * kBlockBytes;
}

}  // namespace tagwire::sm
