// SPDX-License-Identifier: BSD-3-Clause
// The memory that callbacks get with a message: the peer's buffer itself, or a copy of it.
#pragma once

#include "ucs/memory/copy.hpp"
#include "uct/desc_pool.hpp"
#include "uct/iface_params.hpp"
#include "uct/sm/link.hpp"

namespace tagwire::sm {

class RxDescs {
  public:
    RxDescs() = default;
    RxDescs(const RxDescs&) = delete;
    RxDescs& operator=(const RxDescs&) = delete;
    ~RxDescs() {
        if (copies_ != nullptr)
            copies_->abandon();
    }

    void open(const uct::IfaceParams& params) {
        // A peer's buffers may be larger than ours.
        copies_ = new uct::DescPool(params.rx_headroom, kSegBytesMax, params.am_alignment,
                                    params.am_align_offset);
        copies_always_ = params.rx_headroom > 0 || params.am_alignment > kCacheLine ||
                         params.am_align_offset % params.am_alignment != 0;
    }

    /// The `bytes` bytes of a buffer as a callback may keep them; it goes on to settle(). Null: no
    /// descriptor now. A copy has given the buffer back.
    [[gnu::always_inline]] void* hand_over(RxSegment& segment, std::uint32_t seg,
                                           std::size_t bytes) {
        if (!copies_always_ && segment.may_keep(seg)) [[likely]]
            return segment.buffer(seg);
        return hand_over_copy(segment, seg, bytes);
    }
    /// After the callback that returned `status`.
    [[gnu::always_inline]] void settle(RxSegment& segment, std::uint32_t seg, void* data,
                                       ucs_status_t status) {
        if (data != segment.buffer(seg)) [[unlikely]]
            return settle_copy(data, status);
        if (status == UCS_INPROGRESS)
            ++segment.held;
        else
            segment.returns.give_back(seg);
    }

  private:
    [[gnu::noinline]] void* hand_over_copy(RxSegment& segment, std::uint32_t seg,
                                           std::size_t bytes) {
        std::byte* copy = copies_->take();
        if (copy == nullptr)
            return nullptr;
        ucs::copy_plain(copy, segment.buffer(seg), bytes);
        segment.returns.give_back(seg);
        return copy;
    }
    [[gnu::noinline]] void settle_copy(void* data, ucs_status_t status) {
        if (status != UCS_INPROGRESS)
            copies_->put(static_cast<std::byte*>(data));
    }

    uct::DescPool* copies_ = nullptr;  // abandons itself
    bool copies_always_ = false;       // headroom or an alignment that peers' buffers do not have
};

}  // namespace tagwire::sm
