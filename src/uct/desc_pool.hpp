// SPDX-License-Identifier: BSD-3-Clause
// Private receive descriptors that callbacks may keep: of sm for users who asked for headroom
// (which must not lie where a peer can write) and where the peer would run out of send buffers as
// the user holds them, of tcp for messages that come in several parts. Owner thread only.
// Descriptors, and the regions they lie in, are made when first needed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <new>
#include <vector>

#include "ucs/log/log.hpp"
#include "ucs/memory/reserve.hpp"
#include "ucs/sys/shm.hpp"
#include "uct/desc_region.hpp"

namespace tagwire::uct {

class DescPool {
  public:
    static constexpr std::size_t kCountMax = 4096;

    /// The data of each descriptor starts where (address + align_offset) is a multiple of
    /// `alignment` (a power of two, at most a page).
    DescPool(std::size_t headroom, std::size_t data_bytes, std::size_t alignment,
             std::size_t align_offset)
        : user_headroom_(headroom) {
        const std::size_t unit = std::max(alignment, std::size_t{64});
        data_offset_ = ucs::round_up(headroom + align_offset, unit) - align_offset;
        stride_ = ucs::round_up(data_offset_ + data_bytes, unit);
    }
    DescPool(const DescPool&) = delete;
    DescPool& operator=(const DescPool&) = delete;
    /// The interface closes. Whoever still holds descriptors may read and release them.
    void abandon() {
        if (held() == 0) {
            delete this;
            return;
        }
        TW_LOG_WARN("%zu receive descriptors were not released before their interface was closed",
                    held());
        abandoned_ = true;
    }

    /// Where the data goes, the headroom before it; null when all descriptors are held.
    std::byte* take() {
        if (free_.empty() && !grow())
            return nullptr;
        std::byte* desc = free_.back();
        free_.pop_back();
        return desc + data_offset_;
    }
    void put(std::byte* data) { free_.push_back(data - data_offset_); }

    [[nodiscard]] std::size_t held() const { return made_ - free_.size(); }

  private:
    struct Region : DescRegionHeader {
        DescPool* pool;
    };

    static void release(DescRegionHeader* header, void* desc) {
        DescPool& pool = *static_cast<Region*>(header)->pool;
        pool.free_.push_back(static_cast<std::byte*>(desc) + pool.user_headroom_ -
                             pool.data_offset_);
        if (pool.abandoned_ && pool.held() == 0)
            delete &pool;
    }

    bool grow() {
        if (made_ == kCountMax)
            return false;
        const std::size_t page = ucs::page_bytes();
        const std::size_t per_region = (kDescRegionBytes - page) / stride_;
        const std::size_t place = made_ % per_region;
        if (place == 0) {
            const std::size_t bytes = ucs::round_up(per_region * stride_, page);
            ucs::Mapping region;
            if (ucs::map_behind_header(-1, bytes, page, kDescRegionBytes, &region) != UCS_OK)
                return false;
            ::new (region.front()) Region{{kDescRegionMagic, &DescPool::release}, this};
            regions_.push_back(std::move(region));
        }
        free_.push_back(regions_.back().base() + place * stride_);
        ++made_;
        return true;
    }

    std::size_t user_headroom_;
    std::size_t data_offset_ = 0;
    std::size_t stride_ = 0;
    std::size_t made_ = 0;
    bool abandoned_ = false;
    ucs::ReserveVector<ucs::Mapping> regions_;
    ucs::ReserveVector<std::byte*> free_;
};

}  // namespace tagwire::uct
