// SPDX-License-Identifier: BSD-3-Clause
// Posted receives: the receive queue of a queue pair and the body of a shared one.
//
// A place goes   free -> posted -> taken (a message fills it, then its completion waits) -> free.
// It is free again when the completion was polled, as on real cards: a program that does not poll
// finds the queue full. Receives are taken in the order of posting.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "vhca/core/objects.hpp"
#include "vhca/core/tag_matching.hpp"

namespace tagwire::vhca {

/// A posted receive; its sges follow it in memory.
struct Receive {
    std::uint64_t wr_id;
    std::uint64_t bytes;  // sum of the sges
    std::uint32_t sge_count;
    std::uint32_t next;  // in the posted or free list

    [[nodiscard]] ibv_sge* sges_begin() { return reinterpret_cast<ibv_sge*>(this + 1); }
    [[nodiscard]] std::span<const ibv_sge> sges() { return {sges_begin(), sge_count}; }
};
static_assert(alignof(ibv_sge) <= alignof(Receive) && sizeof(Receive) % alignof(ibv_sge) == 0);

class ReceiveQueue {
  public:
    static constexpr std::uint32_t kNone = ~std::uint32_t{0};

    /// `source`: has what is posted; nullptr: post() does. ENOMEM when there is no memory.
    int allocate(std::uint32_t places, std::uint32_t sge_max, ReceiveSource* source);

    /// ENOMEM: full. EINVAL: too many sges.
    int post(const RecvWork& work);
    /// Posts what the source has, as far as there is room.
    void refill();
    /// The oldest posted one, kNone when there is none.
    std::uint32_t take();
    void release(std::uint32_t place);
    /// A taken receive becomes the next to be taken.
    void put_back(std::uint32_t place);
    /// All that were posted but not taken are free again.
    void drop_posted();

    [[nodiscard]] Receive& at(std::uint32_t place) {
        return *reinterpret_cast<Receive*>(memory_.get() + std::size_t{place} * stride_);
    }
    [[nodiscard]] std::uint32_t posted() const { return posted_; }

  private:
    [[nodiscard]] bool has_room() const { return free_ != kNone || fresh_ < places_; }

    ReceiveSource* source_ = nullptr;
    std::unique_ptr<std::byte[]> memory_;
    std::size_t stride_ = 0;
    std::uint32_t places_ = 0, sge_max_ = 0;
    std::uint32_t fresh_ = 0;  // places from here on were never used: their memory is untouched
    std::uint32_t free_ = kNone;
    std::uint32_t oldest_ = kNone, newest_ = kNone;
    std::uint32_t posted_ = 0;
};

class SharedReceiveQueue final : public Srq {
  public:
    SharedReceiveQueue(Device::Impl& device, const SrqConfig& config)
        : Srq(config.user), pd(config.pd), device_(device), config_(config) {}

    int allocate();
    int post(const RecvWork& work) override;
    int modify(const ibv_srq_attr& attr, int mask) override;
    void query(ibv_srq_attr* attr) const override;
    int post_ops(std::span<TagWork> works, std::size_t* failed_p, Time now) override;
    [[nodiscard]] std::uint32_t number() const override { return number_; }
    void set_number(std::uint32_t number) { number_ = number; }

    /// Takes from the source what the program has posted there, receives and list operations.
    void catch_up() {
        if (config_.source != nullptr || config_.tm.source != nullptr) [[unlikely]]
            ask_sources();
    }
    std::uint32_t take() {
        const std::uint32_t place = queue.take();
        if (config_.limit != 0) [[unlikely]]
            check_limit();
        return place;
    }
    [[nodiscard]] TagMatching* matching() const { return matching_.get(); }

    Pd* const pd;
    std::uint32_t users = 0;
    ReceiveQueue queue;  // tag matching: for messages that match nothing

  private:
    void ask_sources();
    void refill();
    void check_limit() {
        if (config_.source != nullptr) [[unlikely]]
            refill();
        if (queue.posted() < config_.limit) [[unlikely]]
            tell_limit();
    }
    void tell_limit();

    Device::Impl& device_;
    SrqConfig config_;
    std::uint32_t number_ = 0;
    std::unique_ptr<TagMatching> matching_;  // nullptr: an ordinary SRQ
};

}  // namespace tagwire::vhca
