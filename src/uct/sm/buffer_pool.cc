// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/buffer_pool.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "ucs/sys/process.hpp"
#include "ucs/sys/processor.hpp"
#include "ucs/topo/topology.hpp"

namespace tagwire::sm {

namespace {

/// Pages are touched so many bytes at a time, by one system call instead of a fault for each.
constexpr std::size_t kTouchBytes = 128 * 1024;

/// No line takes longer; about a microsecond.
constexpr std::uint64_t kWaitTicksMax = 4096;

}  // namespace

// Twice the cache of one processor is the least that empties both sides' of a line until it is
// written again.
PoolSizes PoolSizes::of_machine(std::size_t fixed_bytes) {
    if (fixed_bytes != 0)
        return {fixed_bytes, 0, fixed_bytes};
    const std::size_t cache = ucs::system_topology().second_level_cache_bytes();
    const std::size_t most = kPoolBytesMax;
    return {std::min(2 * cache, most), cache / 16, std::min(8 * cache, most)};
}

// ---- Buffers of a connection

LentBuffers::LentBuffers(BufferPool& pool, std::uint32_t id, const RingGeometry& geometry,
                         std::byte* segment)
    : pool_(pool),
      returns_(reinterpret_cast<RingHead*>(segment)->returns),
      entries_(reinterpret_cast<std::atomic<std::uint32_t>*>(segment + geometry.returns_offset())),
      reserve_(segment + geometry.reserve_offset()),
      seg_bytes_(geometry.seg_bytes),
      id_(id),
      run_blocks_(run_of(geometry.seg_bytes)) {}

void BufferPool::prefetch_up_to(std::size_t bytes) {
    prefetch_max_ = bytes != 0 ? bytes : ucs::is_processor_of_intel() ? SIZE_MAX : kPrefetchMax;
}

bool LentBuffers::has_slow(std::size_t count) {
    const auto blocks = static_cast<std::uint32_t>(count * run_blocks_);
    if (pool_.free_blocks() < out_blocks_ + 2 * blocks || out_count_ + count > kReturnCount)
        collect();
    if (pool_.find_room(blocks) && admits(count))
        return true;
    collect();
    return static_cast<std::size_t>(std::popcount(reserve_free_)) >= count;
}

// The line is written: its block is free. One that an earlier message has fetched counts as near.
void LentBuffers::measure_wait() {
    const std::uint64_t from = pool_.prefetch_from_ticks_;
    if (pool_.room() == 0 || from > kWaitTicksMax)
        return wait_.skip();
    std::byte* const next = pool_.base_ + std::size_t{pool_.cursor_} * kBlockBytes;
    wait_.add(ucs::ownership_ticks(*reinterpret_cast<std::uint32_t*>(next)), kWaitTicksMax);
    prefetches_ = wait_.ticks() >= from;
}

std::uint32_t LentBuffers::take_reserve() {
    const auto index = static_cast<std::uint32_t>(std::countr_zero(reserve_free_));
    reserve_free_ &= ~(1U << index);
    ++out_count_;
    return index | kReserveBit;
}

void LentBuffers::collect() {
    // SYNC sm_return: the receiver has finished with a buffer before its name is counted.
    const std::uint64_t count = returns_.count.load(std::memory_order_acquire);
    // More than can be out: the peer writes nonsense. Then nothing comes back, and the sender only
    // waits.
    if (count - collected_ > kReturnCount)
        return;
    for (; collected_ != count; ++collected_)
        release(entries_[collected_ % kReturnCount].load(std::memory_order_relaxed));
}

void LentBuffers::release(std::uint32_t seg) {
    if ((seg & kReserveBit) != 0) {
        const std::uint32_t index = seg & ~kReserveBit;
        if (index >= kReserveCount || (reserve_free_ >> index & 1) != 0)
            return;
        reserve_free_ |= 1U << index;
        --out_count_;
        return;
    }
    const std::uint64_t bit = std::uint64_t{1} << (seg % 64);
    if (seg >= pool_.block_count_ || (pool_.starts_[seg / 64] & bit) == 0 ||
        pool_.owners_[seg] != id_)
        return;
    pool_.starts_[seg / 64] &= ~bit;
    pool_.lent_ -= pool_.lengths_[seg];
    out_blocks_ -= pool_.lengths_[seg];
    --out_count_;
}

// ---- The pool

ucs_status_t BufferPool::open(const PoolSizes& sizes) {
    if (base_ != nullptr)
        return UCS_OK;
    const std::size_t bytes = ucs::round_up(sizes.bytes_max, ucs::page_bytes());
    const ucs_status_t status =
        ucs::memfd_create_for_readers("tagwire-pool", bytes, &mapping_, &fd_);
    if (status != UCS_OK)
        return status;
    sizes_ = sizes;
    base_ = mapping_.base();
    block_count_ = static_cast<std::uint32_t>(bytes / kBlockBytes);
    starts_.assign((block_count_ + 63) / 64, 0);
    lengths_.assign(block_count_, 0);
    owners_.assign(block_count_, 0);
    set_span();
    return UCS_OK;
}

void BufferPool::set_span() {
    const std::size_t bytes =
        std::clamp(user_count_ * sizes_.bytes_each, sizes_.bytes_min, sizes_.bytes_max);
    span_ = std::max(span_, static_cast<std::uint32_t>(bytes / kBlockBytes));
}

LentBuffers* BufferPool::add_user(const RingGeometry& geometry, std::byte* segment) {
    const auto unused =
        std::ranges::find_if(users_, [](const User& user) { return user.buffers == nullptr; });
    const auto id = static_cast<std::uint32_t>(unused - users_.begin());
    if (unused == users_.end())
        users_.emplace_back();
    users_[id].buffers = std::make_unique<LentBuffers>(*this, id, geometry, segment);
    ++user_count_;
    set_span();
    if (touched_ == 0)
        touch_more();
    return users_[id].buffers.get();
}

void BufferPool::retire(LentBuffers& user, ucs::Mapping segment, int pidfd) {
    --user_count_;
    User& of = users_[user.id_];
    of.is_retired = true;
    of.segment = std::move(segment);
    if (pidfd >= 0)
        of.pidfd = ucs::duplicate(pidfd);
    collect_from(user.id_);
}

void BufferPool::forget(std::uint32_t user_id) {
    users_[user_id] = User{};
}

void BufferPool::release_all(LentBuffers& user) {
    for (std::uint32_t at = next_start(0); at < block_count_; at = next_start(at + 1))
        if (owners_[at] == user.id_)
            user.release(at);
}

void BufferPool::collect_from(std::uint32_t user_id) {
    User& user = users_[user_id];
    user.buffers->collect();
    if (!user.is_retired)
        return;
    if (user.pidfd && !ucs::pidfd_is_alive(user.pidfd.get()))
        release_all(*user.buffers);
    if (user.buffers->out_blocks_ == 0)
        forget(user_id);
}

std::uint32_t BufferPool::next_start(std::uint32_t from) const {
    if (from >= block_count_)
        return block_count_;
    std::size_t word = from / 64;
    std::uint64_t bits = starts_[word] & ~std::uint64_t{0} << (from % 64);
    while (bits == 0) {
        if (++word == starts_.size())
            return block_count_;
        bits = starts_[word];
    }
    return static_cast<std::uint32_t>(word * 64) +
           static_cast<std::uint32_t>(std::countr_zero(bits));
}

void BufferPool::touch_more() {
    const std::size_t from = touched_bytes();
    const std::size_t bytes = std::min(kTouchBytes, mapping_.bytes() - from);
    ucs::touch_pages(base_ + from, bytes);
    touched_ += static_cast<std::uint32_t>(bytes / kBlockBytes);
}

// A small part of the span is the worst distance between two uses of a line: the receiver's cache
// has it still. So a pool that has gone around grows as fast as there is time, and by a step at
// each turn where there is none.
bool BufferPool::grow() {
    if (!has_gone_around_ || touched_ >= span_ || base_ == nullptr)
        return false;
    touch_more();
    return true;
}

bool BufferPool::find_room(std::uint32_t blocks) {
    for (std::uint32_t passed = 0;;) {
        const std::uint32_t end = std::min(touched_, span_);
        if (blocks > end - std::min(cursor_, end)) {
            if (passed <= end) {
                passed += end - std::min(cursor_, end) + 1;
                cursor_ = 0;
                if (std::exchange(has_gone_around_, true) && end < span_)
                    touch_more();
            } else if (end < span_) {
                touch_more();
                passed = 0;
            } else {
                break;
            }
            continue;
        }
        const std::uint32_t run = next_start(cursor_);
        if (run - cursor_ >= blocks) {
            free_end_ = std::min(run, end);
            return true;
        }
        const std::uint32_t past = run + lengths_[run];
        collect_from(owners_[run]);
        if ((starts_[run / 64] >> (run % 64) & 1) == 0)
            continue;
        passed += past - cursor_;
        cursor_ = past;
    }
    free_end_ = cursor_;
    return false;
}

}  // namespace tagwire::sm
