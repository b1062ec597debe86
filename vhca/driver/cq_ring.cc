// SPDX-License-Identifier: BSD-3-Clause
#include <infiniband/mlx5dv.h>
#include <rdma/ib_user_verbs.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>

#include "vhca/driver/rings.hpp"

namespace tagwire::vhca::driver {

namespace {

enum RecordWord : unsigned { kConsumed = 0, kArmed = 1 };
constexpr std::uint32_t kIndexMask = 0xffffff;  // of the program's indices
constexpr std::size_t kOwnerAt = kCqeBytes - 1;

std::byte* pointer(std::uint64_t address) {
    return reinterpret_cast<std::byte*>(address);
}

bool is_after(std::uint32_t index, std::uint32_t other) {
    return static_cast<std::int32_t>(index - other) > 0;
}

/// The same event structure for every event of a CQ.
ib_uverbs_comp_event_desc event_of(std::uint64_t user_handle) {
    return {.cq_handle = user_handle};
}

}  // namespace

CqRing::CqRing(Config config)
    : config_(std::move(config)),
      record_(config_.record),
      producer_(config_.first),
      solicited_(config_.first),
      announced_(config_.first),
      consumed_(config_.first & kIndexMask) {
    is_gone_ = !record_.store(kArmed, kNotArmed);
}

std::uint64_t CqRing::place_of(std::uint32_t index) const {
    const RingMemory& ring = config_.ring;
    return ring.address + std::uint64_t{index & (ring.entries - 1)} * ring.entry_bytes +
           (ring.entry_bytes - kCqeBytes);
}

std::uint32_t CqRing::unconsumed() {
    const std::uint32_t consumed = record_.load(kConsumed, &is_gone_) & kIndexMask;
    if (consumed != consumed_) {
        consumed_ = consumed;
        moves_ = 0;
    }
    const std::uint32_t count = (producer_ - consumed) & kIndexMask;
    return count - std::min(count, moves_);
}

bool CqRing::put(const CqeImage& image, std::span<const std::byte> before) {
    std::byte* const place = pointer(place_of(producer_));
    const auto round = producer_ / config_.ring.entries;
    const auto owner =
        static_cast<std::uint8_t>(std::to_integer<unsigned>(image[kOwnerAt]) | (round & 1));
    const auto write = [&] {
        if (!before.empty())
            std::memcpy(place - kCqeBytes, before.data(), before.size());
        std::memcpy(place, image.data(), kOwnerAt);
        // SYNC record: pairs with the driver's load of the owner bit, before it reads the entry
        std::atomic_ref(reinterpret_cast<std::uint8_t&>(place[kOwnerAt]))
            .store(owner, std::memory_order_release);
    };
    is_gone_ = is_gone_ || !guarded(write);
    if (!is_gone_)
        ++producer_;
    return !is_gone_;
}

bool CqRing::take(Cq& /*cq*/, const Completion& completion) {
    if (is_gone_ || (!config_.ignores_overrun && unconsumed() >= config_.ring.entries))
        return false;
    CqeOwner owner = config_.owner_of(completion);
    owner.kind = config_.kind;
    owner.has_room_before = config_.ring.entry_bytes > kCqeBytes;
    const auto before = owner.has_room_before ? completion.data : std::span<const std::byte>();
    if (!put(make_cqe(completion, owner), before))
        return false;
    if (completion.is_solicited)
        solicited_ = producer_;
    poll();
    return true;
}

bool CqRing::poll() {
    if ((config_.channel == nullptr && !config_.announces) || is_gone_)
        return false;
    if (config_.channel != nullptr && config_.channel->has_waiting()) [[unlikely]]
        config_.channel->flush();
    const std::uint32_t armed = record_.load(kArmed, &is_gone_);
    if (is_gone_ || armed == kNotArmed)
        return false;
    const bool is_solicited_only = (armed & MLX5_CQ_DB_REQ_NOT_SOL) != 0;
    const std::uint32_t newest = is_solicited_only ? solicited_ : producer_;
    const std::uint32_t seen = producer_ - ((producer_ - armed) & kIndexMask);
    if (!is_after(newest, seen) || !is_after(newest, announced_) ||
        !record_.exchange(kArmed, armed, kNotArmed)) {  // armed anew just now: the next poll
        return false;
    }
    announced_ = producer_;
    if (config_.announces)
        config_.announces();
    if (config_.channel == nullptr)
        return true;
    ++events_;
    const auto event = event_of(config_.user_handle);
    config_.channel->push(std::as_bytes(std::span(&event, 1)));
    return true;
}

int CqRing::resize(const RingMemory& ring) {
    const std::uint32_t count = unconsumed();
    std::byte probe;
    const auto bytes = ring.bytes();
    if (is_gone_ || !copy_in(&probe, pointer(ring.address), 1) ||
        !copy_in(&probe, pointer(ring.address + bytes - 1), 1)) {
        return EFAULT;
    }
    if (count >= config_.ring.entries || count >= ring.entries)
        return EINVAL;
    poll();
    // Armed for all and nothing to say: all that was there is known. The RESIZE entry is nothing
    // to announce, and moves the rest one place on.
    const std::uint32_t armed = record_.load(kArmed, &is_gone_);
    const bool is_quiet = armed != kNotArmed && (armed & MLX5_CQ_DB_REQ_NOT_SOL) == 0;
    if (!put(make_resize_cqe()))
        return EFAULT;
    announced_ = is_quiet ? producer_ : announced_ + 1;
    ++solicited_;
    ++moves_;
    config_.ring = ring;
    return 0;
}

std::uint32_t CqRing::retire() {
    if (config_.channel == nullptr)
        return 0;
    const auto own = event_of(config_.user_handle);
    const auto taken = config_.channel->take_back([&](std::span<const std::byte> event) {
        return event.size() == sizeof own && std::memcmp(event.data(), &own, sizeof own) == 0;
    });
    events_ -= static_cast<std::uint32_t>(taken);
    return events_;
}

}  // namespace tagwire::vhca::driver
