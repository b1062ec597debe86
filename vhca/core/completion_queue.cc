// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/core/completion_queue.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <new>

#include "vhca/core/device_impl.hpp"
#include "vhca/core/queue_pair.hpp"
#include "vhca/core/receive_queue.hpp"
#include "vhca/core/tag_matching.hpp"

namespace tagwire::vhca {

namespace {
std::unique_ptr<Cqe[]> make_ring(std::uint32_t capacity) {
    return std::unique_ptr<Cqe[]>(new (std::nothrow) Cqe[capacity]);
}
}  // namespace

std::unique_ptr<CompletionQueue> CompletionQueue::create(Device::Impl& device,
                                                         const CqConfig& config) {
    std::unique_ptr<CompletionQueue> cq(new (std::nothrow) CompletionQueue(device, config));
    if (cq != nullptr) {
        cq->capacity_ = std::bit_ceil(std::max(config.cqe, 1U));
        cq->ring_ = make_ring(config.consumer == nullptr ? cq->capacity_ : 1);
    }
    return cq != nullptr && cq->ring_ != nullptr ? std::move(cq) : nullptr;
}

void CompletionQueue::give_back(const Cqe& cqe) {
    if (cqe.from_queue != nullptr)
        cqe.from_queue->release(cqe.place);
    else if (cqe.matching != nullptr) [[unlikely]]
        cqe.matching->give_back(cqe);
    else
        cqe.qp->note_polled(cqe.place);
}

namespace {
Completion completion_of(const Cqe& cqe) {
    return {.wc = cqe.wc,
            .time = cqe.time,
            .from = cqe.from,
            .tm_tag = cqe.tm_tag,
            .tm_priv = cqe.tm_priv,
            .tm_count = cqe.tm_count,
            .is_solicited = cqe.is_solicited,
            .qp_user = cqe.qp != nullptr ? cqe.qp->dc().owner().user() : nullptr,
            .tag_srq_user = cqe.tag_srq_user,
            .data = cqe.data};
}
}  // namespace

bool CompletionQueue::poll(Completion* completion_p) {
    if (consumer_ == producer_)
        return false;
    const Cqe& cqe = at(consumer_++);
    completion_p->wc = cqe.wc;
    completion_p->time = cqe.time;
    completion_p->from = cqe.from;
    completion_p->tm_tag = cqe.tm_tag;
    completion_p->tm_priv = cqe.tm_priv;
    completion_p->tm_count = cqe.tm_count;
    completion_p->is_solicited = cqe.is_solicited;
    give_back(cqe);
    return true;
}

void CompletionQueue::hand_over(const Cqe& cqe) {
    if (state_ == State::kWell && !taker_->take(*this, completion_of(cqe))) [[unlikely]]
        break_off();
    give_back(cqe);
}

void CompletionQueue::break_off() {
    if (state_ == State::kWell) {
        state_ = State::kBroken;
        device_.note_broken(*this);
    }
}

void CompletionQueue::announce() {
    armed_ = Armed::kNo;
    announced_ = producer_;
    device_.sink.cq_event(*this);
}

void CompletionQueue::arm(bool solicited_only) {
    if (state_ == State::kStopped)
        return;
    if (!solicited_only)
        armed_ = Armed::kAll;
    else if (armed_ == Armed::kNo)
        armed_ = Armed::kSolicited;
    const std::uint64_t newest = armed_ == Armed::kAll ? producer_ : solicited_;
    if (newest > std::max(consumer_, announced_))
        announce();
}

Cqe* CompletionQueue::claim() {
    const bool is_full = taker_ == nullptr && producer_ + delayed_ - consumer_ == capacity_;
    if (is_full || state_ != State::kWell) [[unlikely]] {
        break_off();
        return nullptr;
    }
    if (taker_ != nullptr)
        return device_.late.is_on() ? device_.late.scratch() : ring_.get();
    if (producer_ == consumer_)
        begin_ = producer_;
    return device_.late.is_on() ? device_.late.scratch() : &at(producer_);
}

void CompletionQueue::publish(const Cqe& cqe) {
    if (device_.late.is_on()) [[unlikely]] {
        ++delayed_;
        device_.late.delay(*this, cqe, device_.now);
        return;
    }
    show(cqe);
}

void CompletionQueue::take_delayed(const Cqe& cqe) {
    --delayed_;
    if (taker_ != nullptr) {
        hand_over(cqe);
        return;
    }
    at(producer_) = cqe;
    show(cqe);
}

void CompletionQueue::show(const Cqe& cqe) {
    if (taker_ != nullptr) {
        hand_over(cqe);
        return;
    }
    ++producer_;
    if (cqe.is_solicited)
        solicited_ = producer_;
    if (armed_ == Armed::kAll || (armed_ == Armed::kSolicited && cqe.is_solicited))
        announce();
}

template <typename F>
void CompletionQueue::purge_if(F&& is_meant) {
    // The others move towards the producer, so that what was announced stays announced.
    std::uint64_t kept = producer_;
    for (std::uint64_t index = producer_; index-- != consumer_;)
        if (!is_meant(at(index)))
            at(--kept) = at(index);
    consumer_ = kept;
    if (delayed_ != 0)
        delayed_ -= device_.late.purge(*this, is_meant);
}

void CompletionQueue::purge(const QueuePair& qp) {
    purge_if([&qp](const Cqe& cqe) {
        if (cqe.qp == &qp && cqe.from_queue != nullptr)
            give_back(cqe);
        return cqe.qp == &qp;
    });
}

void CompletionQueue::purge(const TagMatching& matching, const ReceiveQueue& untagged) {
    purge_if(
        [&](const Cqe& cqe) { return cqe.matching == &matching || cqe.from_queue == &untagged; });
}

int CompletionQueue::resize(std::uint32_t cqe) {
    if (state_ == State::kStopped)
        return EIO;
    const std::uint64_t count = producer_ + delayed_ - consumer_;
    if (cqe == 0 || cqe > device_.config.cqe_max || cqe < count)
        return EINVAL;
    const std::uint32_t capacity = std::bit_ceil(cqe);
    if (taker_ != nullptr) {
        capacity_ = capacity;
        return 0;
    }
    std::unique_ptr<Cqe[]> ring = make_ring(capacity);
    if (ring == nullptr)
        return ENOMEM;
    for (std::uint64_t index = consumer_; index != producer_; ++index)
        ring[(index - begin_) & (capacity - 1)] = at(index);
    ring_ = std::move(ring);
    capacity_ = capacity;
    return 0;
}

}  // namespace tagwire::vhca
