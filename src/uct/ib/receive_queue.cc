// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/receive_queue.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "ucs/debug/check.hpp"
#include "ucs/log/log.hpp"
#include "ucs/sys/shm.hpp"
#include "uct/ib/message.hpp"

namespace tagwire::ib {

/// Lies at the front of its own mapping, the owners of its slots right behind it.
class ReceiveRegion : public uct::DescRegionHeader {
  public:
    /// nullptr: no memory, or the device refused it (logged).
    static ReceiveRegion* create(ReceiveQueue& queue, unsigned slots);
    /// The queue closes: nothing is posted any more. Lives on until the last slot is released.
    void abandon();

    static ReceiveRegion& of(void* address) {
        return *static_cast<ReceiveRegion*>(uct::desc_region_of(address));
    }
    /// The most slots that a region can have.
    static unsigned slots_max(std::size_t stride) {
        const std::size_t bytes = uct::kDescRegionBytes - front_bytes(0) - 2 * ucs::page_bytes();
        return static_cast<unsigned>(bytes / (stride + sizeof(std::uint64_t)));
    }

    [[nodiscard]] std::byte* message(unsigned slot) const {
        return mapping_.base() + slot * stride_ + message_offset_;
    }
    [[nodiscard]] std::uint32_t lkey() const { return lkey_; }
    void keep(std::byte* message, std::uint64_t owner);

  private:
    static constexpr std::uint64_t kNobody = ~std::uint64_t{0};

    explicit ReceiveRegion(ReceiveQueue& queue)
        : queue_(&queue), stride_(queue.stride_), message_offset_(queue.message_offset_) {
        magic = uct::kDescRegionMagic;
        release = release_slot;
    }
    ~ReceiveRegion() = default;

    static std::size_t front_bytes(unsigned slots) {
        return ucs::round_up(sizeof(ReceiveRegion) + slots * sizeof(std::uint64_t),
                             ucs::page_bytes());
    }
    static void release_slot(uct::DescRegionHeader* header, void* desc);
    void destroy();
    [[nodiscard]] unsigned slot_of(const void* address) const {
        const auto offset =
            static_cast<std::size_t>(static_cast<const std::byte*>(address) - mapping_.base());
        return static_cast<unsigned>(offset / stride_);
    }
    [[nodiscard]] std::uint64_t& owner(unsigned slot) {
        return reinterpret_cast<std::uint64_t*>(this + 1)[slot];
    }

    ReceiveQueue* queue_;  // nullptr: abandoned
    std::size_t stride_;
    std::size_t message_offset_;
    std::uint32_t lkey_ = 0;
    unsigned slots_ = 0;
    unsigned kept_ = 0;
    OwnedMr mr_{nullptr, nullptr};
    ucs::Mapping mapping_;
};
static_assert(sizeof(ReceiveRegion) % alignof(std::uint64_t) == 0);

ReceiveRegion* ReceiveRegion::create(ReceiveQueue& queue, unsigned slots) {
    const std::size_t bytes = ucs::round_up(slots * queue.stride_, ucs::page_bytes());
    ucs::Mapping mapping;
    if (ucs::map_behind_header(-1, bytes, front_bytes(slots), uct::kDescRegionBytes, &mapping) !=
        UCS_OK)
        return nullptr;
    const IbMd& md = *queue.md_;
    ibv_mr* mr = md.reg_mr(mapping.base(), bytes, IBV_ACCESS_LOCAL_WRITE);
    if (mr == nullptr) {
        if (!std::exchange(queue.has_told_, true)) {  // it is tried again and again
            TW_LOG_ERROR(
                "%s: %zu bytes of receive buffers cannot be registered: %s (locked memory is "
                "limited by ulimit -l)",
                md.device().name().c_str(), bytes, std::strerror(errno));
        }
        return nullptr;
    }
    auto* region = ::new (mapping.front()) ReceiveRegion(queue);
    region->slots_ = slots;
    region->lkey_ = mr->lkey;
    region->mr_ = owned(mr, md.verbs().dereg_mr);
    region->mapping_ = std::move(mapping);
    std::fill_n(&region->owner(0), slots, kNobody);
    return region;
}

void ReceiveRegion::keep(std::byte* message, std::uint64_t owner_of_slot) {
    TW_ASSERT(owner_of_slot != kNobody && owner(slot_of(message)) == kNobody);
    owner(slot_of(message)) = owner_of_slot;
    ++kept_;
}

void ReceiveRegion::release_slot(uct::DescRegionHeader* header, void* desc) {
    ReceiveRegion& region = *static_cast<ReceiveRegion*>(header);
    const unsigned slot = region.slot_of(desc);
    TW_ASSERT(desc >= region.mapping_.base() && slot < region.slots_);
    TW_ASSERT(region.owner(slot) != kNobody);
    const std::uint64_t owner = std::exchange(region.owner(slot), kNobody);
    --region.kept_;
    if (region.queue_ != nullptr) [[likely]]
        region.queue_->release(region.message(slot), owner);
    else if (region.kept_ == 0)
        region.destroy();
}

void ReceiveRegion::abandon() {
    queue_ = nullptr;
    mr_.reset();
    if (kept_ == 0)
        destroy();
}

void ReceiveRegion::destroy() {
    const ucs::Mapping mapping = std::move(mapping_);  // this object lies in it
    this->~ReceiveRegion();
}

// ---- The queue

ucs_status_t ReceiveQueue::open(const IbMd& md, const ReceiveQueueParams& params, Released released,
                                void* arg) {
    md_ = &md;
    params_ = params;
    params_.buffers_max = std::max(params.buffers_max, params.depth);
    released_ = released;
    arg_ = arg;
    wanted_ = params.wanted == 0 ? params.depth : params.wanted;
    set_target();
    lay_out();
    ucs_status_t status = check();
    if (status == UCS_OK)
        status = create_srq();
    if (status != UCS_OK)
        return status;
    free_.assign(params_.buffers_max, nullptr);
    for (unsigned i = 0; i != kRefillBatch; ++i) {
        elements_[i].length = static_cast<std::uint32_t>(params.message_bytes);
        chain_[i] = {0, i + 1 < kRefillBatch ? &chain_[i + 1] : nullptr, &elements_[i], 1};
    }
    status = refill(true);
    if (status != UCS_OK) {
        close();
        return status;
    }
    arm_limit();
    return UCS_OK;
}

void ReceiveQueue::lay_out() {
    // Slots do not share cache lines. A message begins one where its data may lie like that.
    constexpr std::size_t kLine = 64;
    const std::size_t unit = std::max(params_.alignment, kLine);
    const std::size_t behind = params_.front_bytes + params_.align_offset;
    message_offset_ = ucs::round_up(params_.headroom, kLine);
    if ((message_offset_ + behind) % params_.alignment != 0)
        message_offset_ = ucs::round_up(params_.headroom + behind, unit) - behind;
    stride_ = ucs::round_up(message_offset_ + params_.message_bytes, unit);
    if (unit < ucs::page_bytes() && stride_ % ucs::page_bytes() == 0)
        stride_ += unit;  // else the beginnings of all messages compete for few lines of a cache
}

void ReceiveQueue::set_target() {
    target_ = wanted();
    batch_ = std::clamp(target_ / 2, 1U, kRefillBatch);
}

ucs_status_t ReceiveQueue::check() const {
    const Device& device = md_->device();
    if (params_.depth == 0 || params_.message_bytes < kMessageBytesMin ||
        params_.message_bytes > uct::kDescRegionBytes || ReceiveRegion::slots_max(stride_) == 0 ||
        (params_.tags != 0 && params_.cq == nullptr)) {
        TW_LOG_ERROR("%s: a receive queue of %u buffers of %zu bytes is not possible",
                     device.name().c_str(), params_.depth, params_.message_bytes);
        return UCS_ERR_INVALID_PARAM;
    }
    const auto exceeds = [&device](const char* what, unsigned wanted, unsigned limit) {
        if (wanted <= limit)
            return false;
        TW_LOG_ERROR("%s: %u %s are needed; the device allows at most %u", device.name().c_str(),
                     wanted, what, limit);
        return true;
    };
    const auto wr_max = static_cast<unsigned>(std::max(device.attr().orig_attr.max_srq_wr, 0));
    const ibv_tm_caps& tm = device.attr().tm_caps;
    const bool is_too_much =
        exceeds("posted receive buffers", params_.depth, wr_max) ||
        (params_.tags != 0 && (exceeds("posted tags", params_.tags, tm.max_num_tags) ||
                               exceeds("tag operations", params_.tag_ops, tm.max_ops)));
    return is_too_much ? UCS_ERR_EXCEEDS_LIMIT : UCS_OK;
}

ucs_status_t ReceiveQueue::create_srq() {
    ibv_srq* srq = nullptr;
    errno = 0;
    if (params_.tags == 0) {
        ibv_srq_init_attr attr{};
        attr.srq_context = params_.context;
        attr.attr = {.max_wr = params_.depth, .max_sge = 1, .srq_limit = 0};
        srq = md_->verbs().create_srq(md_->pd(), &attr);
    } else {
        ibv_srq_init_attr_ex attr{};
        attr.srq_context = params_.context;
        attr.attr = {.max_wr = params_.depth, .max_sge = 1, .srq_limit = 0};
        attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ |
                         IBV_SRQ_INIT_ATTR_TM;
        attr.srq_type = IBV_SRQT_TM;
        attr.pd = md_->pd();
        attr.cq = params_.cq;
        attr.tm_cap = {.max_num_tags = params_.tags, .max_ops = params_.tag_ops};
        srq = create_srq_ex(md_->device().context(), &attr);
    }
    if (srq == nullptr) {
        const int error = errno;
        if (params_.refusal_p != nullptr) {
            *params_.refusal_p = std::strerror(error);
        } else {
            TW_LOG_ERROR("%s: cannot create a shared receive queue of %u buffers and %u tags: %s",
                         md_->device().name().c_str(), params_.depth, params_.tags,
                         std::strerror(error));
        }
        return error == ENOMEM ? UCS_ERR_NO_MEMORY : UCS_ERR_IO_ERROR;
    }
    srq_ = owned(srq, md_->verbs().destroy_srq);
    return UCS_OK;
}

void ReceiveQueue::close() {
    srq_.reset();
    if (kept_ != 0) {
        TW_LOG_WARN("%u receive descriptors were not released before their interface was closed",
                    kept_);
    }
    for (ReceiveRegion* region : regions_)
        region->abandon();
    regions_.clear();
    free_count_ = 0;
    posted_ = slots_ = kept_ = 0;
}

void ReceiveQueue::keep(std::byte* message, std::uint64_t owner) {
    ++kept_;
    ReceiveRegion::of(message).keep(message, owner);
}

void ReceiveQueue::release(std::byte* message, std::uint64_t owner) {
    --kept_;
    put_back(message);
    released_(arg_, owner);
}

void ReceiveQueue::arm_limit() {
    is_limit_owed_ = params_.limit != 0 && posted_ <= limit();
    if (params_.limit == 0 || is_limit_owed_)
        return;
    ibv_srq_attr attr{};
    attr.srq_limit = limit();
    if (const int error = md_->verbs().modify_srq(srq_.get(), &attr, IBV_SRQ_LIMIT); error != 0) {
        TW_LOG_WARN("%s: the limit event of a receive queue cannot be armed: %s",
                    md_->device().name().c_str(), std::strerror(error));
    }
}

// ---- Posting

ucs_status_t ReceiveQueue::want(unsigned more) {
    wanted_ += more;
    set_target();
    const ucs_status_t status = refill(true);
    if (status != UCS_OK)
        want_less(more);
    return status;
}

void ReceiveQueue::want_less(unsigned less) {
    wanted_ -= less;
    set_target();
}

ucs_status_t ReceiveQueue::post_missing(unsigned batch_min) {
    while (posted_ + batch_min <= target_) {
        const unsigned wanted = std::min(target_ - posted_, kRefillBatch);
        if (free_count_ < wanted && slots_ < params_.buffers_max && !grow() && free_count_ == 0)
            return UCS_ERR_NO_MEMORY;
        const auto count = static_cast<unsigned>(std::min<std::size_t>(wanted, free_count_));
        if (count == 0)
            break;  // the user holds the rest
        if (const ucs_status_t status = post(count); status != UCS_OK)
            return status;
    }
    return UCS_OK;
}

ucs_status_t ReceiveQueue::post(unsigned count) {
    std::byte* const* const first = &free_[free_count_ - count];
    for (unsigned i = 0; i != count; ++i) {
        chain_[i].wr_id = elements_[i].addr = reinterpret_cast<std::uint64_t>(first[i]);
        elements_[i].lkey = ReceiveRegion::of(first[i]).lkey();
    }
    ibv_recv_wr& last = chain_[count - 1];
    ibv_recv_wr* const after = std::exchange(last.next, nullptr);
    ibv_recv_wr* bad = nullptr;
    const int error = ibv_post_srq_recv(srq_.get(), chain_.data(), &bad);
    last.next = after;
    if (error != 0) [[unlikely]] {
        // Those before the refused one are posted.
        const auto taken = static_cast<unsigned>(bad - chain_.data());
        posted_ += taken;
        std::copy(first + taken, first + count, &free_[free_count_ - count]);
        free_count_ -= taken;
        TW_LOG_ERROR("%s: posting receive buffers failed with %u of %u posted: %s",
                     md_->device().name().c_str(), posted_, params_.depth, std::strerror(error));
        return UCS_ERR_IO_ERROR;
    }
    posted_ += count;
    free_count_ -= count;
    if (is_limit_owed_) [[unlikely]]
        arm_limit();
    return UCS_OK;
}

/// More slots: those that are to be posted, or a share of what there is, so that it is not done
/// often.
bool ReceiveQueue::grow() {
    const unsigned share = std::max(slots_ / 4, kRefillBatch);
    const unsigned wanted = slots_ < target_ ? std::max(target_ - slots_, share) : share;
    regions_.reserve(regions_.size() + 1);
    const unsigned slots =
        std::min({wanted, params_.buffers_max - slots_, ReceiveRegion::slots_max(stride_)});
    ReceiveRegion* region = ReceiveRegion::create(*this, slots);
    if (region == nullptr) {
        if (slots_ < target_)
            return false;
        TW_LOG_WARN("%s: no memory for more than %u receive buffers; the program holds %u of them",
                    md_->device().name().c_str(), slots_, kept_);
        params_.buffers_max = slots_;
        return true;
    }
    has_told_ = false;
    regions_.push_back(region);
    slots_ += slots;
    for (unsigned slot = slots; slot-- != 0;)
        put_back(region->message(slot));
    return true;
}

}  // namespace tagwire::ib
