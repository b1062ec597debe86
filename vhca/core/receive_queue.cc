// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/core/receive_queue.hpp"

#include <algorithm>
#include <cerrno>
#include <new>

#include "vhca/core/device_impl.hpp"
#include "vhca/core/memory.hpp"

namespace tagwire::vhca {

int ReceiveQueue::allocate(std::uint32_t places, std::uint32_t sge_max, ReceiveSource* source) {
    source_ = source;
    stride_ = sizeof(Receive) + sge_max * sizeof(ibv_sge);
    places_ = places;
    sge_max_ = sge_max;
    memory_.reset(new (std::nothrow) std::byte[stride_ * std::max(places, 1U)]);
    return memory_ == nullptr ? ENOMEM : 0;
}

int ReceiveQueue::post(const RecvWork& work) {
    if (work.sges.size() > sge_max_)
        return EINVAL;
    std::uint32_t place = free_;
    if (place != kNone)
        free_ = at(place).next;
    else if (fresh_ < places_)
        place = fresh_++;
    else
        return ENOMEM;
    Receive& receive = at(place);
    receive.wr_id = work.wr_id;
    receive.bytes = total_bytes(work.sges);
    receive.sge_count = static_cast<std::uint32_t>(work.sges.size());
    receive.next = kNone;
    std::copy(work.sges.begin(), work.sges.end(), receive.sges_begin());
    (oldest_ == kNone ? oldest_ : at(newest_).next) = place;
    newest_ = place;
    ++posted_;
    return 0;
}

void ReceiveQueue::refill() {
    if (source_ == nullptr) [[likely]]
        return;
    for (RecvWork work; has_room() && source_->next(&work);)
        static_cast<void>(post(work));  // of too many sges: the source's fault, it is skipped
}

std::uint32_t ReceiveQueue::take() {
    refill();
    const std::uint32_t place = oldest_;
    if (place != kNone) {
        oldest_ = at(place).next;
        --posted_;
    }
    return place;
}

void ReceiveQueue::release(std::uint32_t place) {
    at(place).next = free_;
    free_ = place;
}

void ReceiveQueue::put_back(std::uint32_t place) {
    newest_ = oldest_ == kNone ? place : newest_;
    at(place).next = oldest_;
    oldest_ = place;
    ++posted_;
}

void ReceiveQueue::drop_posted() {
    while (oldest_ != kNone) {
        const std::uint32_t place = oldest_;
        oldest_ = at(place).next;
        release(place);
    }
    posted_ = 0;
}

int SharedReceiveQueue::allocate() {
    if (config_.tm.cq != nullptr) {
        matching_.reset(new (std::nothrow)
                            TagMatching(device_, config_, device_.config.tm_untagged_min));
        if (matching_ == nullptr)
            return ENOMEM;
    }
    return queue.allocate(config_.wr_max, config_.sge_max, config_.source);
}

int SharedReceiveQueue::post(const RecvWork& work) {
    const int error = queue.post(work);
    if (matching_ != nullptr)
        matching_->posted(queue.posted());
    return error;
}

int SharedReceiveQueue::post_ops(std::span<TagWork> works, std::size_t* failed_p, Time now) {
    device_.now = now;
    int error = 0;
    for (std::size_t i = 0; i != works.size() && error == 0; ++i) {
        error = matching_ == nullptr ? EINVAL : matching_->post(works[i]);
        if (error != 0)
            *failed_p = i;
    }
    device_.settle();
    return error;
}

void SharedReceiveQueue::refill() {
    queue.refill();
    if (matching_ != nullptr)
        matching_->posted(queue.posted());
}

void SharedReceiveQueue::ask_sources() {
    refill();
    if (matching_ != nullptr)
        matching_->catch_up();
}

void SharedReceiveQueue::tell_limit() {
    config_.limit = 0;
    device_.late.tell(IBV_EVENT_SRQ_LIMIT_REACHED, *this, device_.now);
}

int SharedReceiveQueue::modify(const ibv_srq_attr& attr, int mask) {
    if (device_.is_dead)
        return EIO;
    // No resizing: mlx5 refuses it too.
    if (mask != IBV_SRQ_LIMIT || attr.srq_limit > config_.wr_max)
        return EINVAL;
    config_.limit = attr.srq_limit;
    check_limit();
    return 0;
}

void SharedReceiveQueue::query(ibv_srq_attr* attr) const {
    *attr = {.max_wr = config_.wr_max, .max_sge = config_.sge_max, .srq_limit = config_.limit};
}

}  // namespace tagwire::vhca
