// SPDX-License-Identifier: BSD-3-Clause
// Private receive descriptors: for users who asked for headroom (which must not lie where a peer
// can write), and for messages of a peer so many of whose buffers are held that it would soon have
// none left to send with. Owner thread only. One region; descriptors are made when first needed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <new>
#include <vector>

#include "ucs/log/log.hpp"
#include "ucs/sys/shm.hpp"
#include "uct/desc_region.hpp"

namespace tagwire::sm {

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
    ~DescPool() {
        if (held() == 0)
            return;
        TW_LOG_WARN("%zu receive descriptors were not released before their interface was closed",
                    held());
        new ucs::Mapping(std::move(mapping_));  // whoever holds them may still look at them
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
    struct Region : uct::DescRegionHeader {
        DescPool* pool;
    };

    static void release(uct::DescRegionHeader* header, void* desc) {
        DescPool& pool = *static_cast<Region*>(header)->pool;
        pool.put(static_cast<std::byte*>(desc) + pool.user_headroom_);
    }

    bool grow() {
        const std::size_t page = ucs::page_bytes();
        const std::size_t bytes = ucs::round_up(stride_ * kCountMax, page);
        const std::size_t fits = std::min(bytes, uct::kDescRegionBytes - page);
        if (!mapping_) {
            if (ucs::map_behind_header(-1, fits, page, uct::kDescRegionBytes, &mapping_) != UCS_OK)
                return false;
            ::new (mapping_.front()) Region{{uct::kDescRegionMagic, &DescPool::release}, this};
        }
        if ((made_ + 1) * stride_ > fits)
            return false;
        free_.push_back(mapping_.base() + made_ * stride_);
        ++made_;
        return true;
    }

    std::size_t user_headroom_;
    std::size_t data_offset_ = 0;
    std::size_t stride_ = 0;
    std::size_t made_ = 0;
    ucs::Mapping mapping_;
    std::vector<std::byte*> free_;
};

}  // namespace tagwire::sm
