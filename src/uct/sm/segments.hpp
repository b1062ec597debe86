// SPDX-License-Identifier: BSD-3-Clause
// Ownership of the buffers of a ring segment.
//
// SegmentPool: sender's side. A buffer is free (on a private stack, last in first out, so it is
// still in the cache) or with the receiver. Owner thread only. SegmentReturns: receiver's side;
// gives a buffer back through the segment's return ring. Never full, because it has as many entries
// as there are buffers. Owner thread only.
#pragma once

#include <cstdint>
#include <vector>

#include "ucs/memory/reserve.hpp"
#include "uct/sm/layout.hpp"

namespace tagwire::sm {

class SegmentPool {
  public:
    SegmentPool() = default;
    SegmentPool(const RingGeometry& geometry, std::byte* segment)
        : returns_(&reinterpret_cast<RingHead*>(segment)->returns),
          entries_(
              reinterpret_cast<std::atomic<std::uint32_t>*>(segment + geometry.returns_offset())),
          buffers_(segment + geometry.segs_offset()),
          seg_bytes_(geometry.seg_bytes),
          seg_count_(geometry.seg_count),
          is_out_(geometry.seg_count, false) {
        for (std::uint32_t i = geometry.seg_count; i > 0; --i)
            free_.push_back(i - 1);
    }

    /// At least `count` free buffers? Looks at what came back when not.
    bool has(std::size_t count) {
        if (free_.size() >= count)
            return true;
        collect();
        return free_.size() >= count;
    }
    /// has(1) was true.
    std::uint32_t take() {
        const std::uint32_t seg = free_.back();
        free_.pop_back();
        is_out_[seg] = true;
        return seg;
    }
    /// Not used after all.
    void untake(std::uint32_t seg) {
        is_out_[seg] = false;
        free_.push_back(seg);
    }
    [[nodiscard]] std::byte* buffer(std::uint32_t seg) const {
        return buffers_ + std::size_t{seg} * seg_bytes_;
    }
    [[nodiscard]] std::size_t out_count() const { return seg_count_ - free_.size(); }

  private:
    void collect() {
        // SYNC sm_return: the receiver has finished with a buffer before its index is counted.
        const std::uint64_t count = returns_->count.load(std::memory_order_acquire);
        // More than can be out: the peer writes nonsense. Then nothing comes back, and the sender
        // only waits.
        if (count - collected_ > seg_count_)
            return;
        for (; collected_ != count; ++collected_) {
            const std::uint32_t seg =
                entries_[collected_ & (seg_count_ - 1)].load(std::memory_order_relaxed);
            if (seg >= seg_count_ || !is_out_[seg])
                continue;
            untake(seg);
        }
    }

    Returns* returns_ = nullptr;
    std::atomic<std::uint32_t>* entries_ = nullptr;
    std::byte* buffers_ = nullptr;
    std::size_t seg_bytes_ = 0;
    std::uint32_t seg_count_ = 0;
    std::uint64_t collected_ = 0;
    ucs::ReserveVector<std::uint32_t> free_;
    ucs::ReserveVector<bool> is_out_;
};

class SegmentReturns {
  public:
    SegmentReturns() = default;
    SegmentReturns(const RingGeometry& geometry, std::byte* segment)
        : returns_(&reinterpret_cast<RingHead*>(segment)->returns),
          entries_(
              reinterpret_cast<std::atomic<std::uint32_t>*>(segment + geometry.returns_offset())),
          mask_(geometry.seg_count - 1) {}

    void give_back(std::uint32_t seg) {
        entries_[count_ & mask_].store(seg, std::memory_order_relaxed);
        // SYNC sm_return: our reads of the buffer and the entry above come before the count.
        returns_->count.store(++count_, std::memory_order_release);
    }

  private:
    Returns* returns_ = nullptr;
    std::atomic<std::uint32_t>* entries_ = nullptr;
    std::uint32_t mask_ = 0;
    std::uint64_t count_ = 0;
};

}  // namespace tagwire::sm
