// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/hot_rings.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "ucs/log/log.hpp"
#include "ucs/sys/futex.hpp"
#include "ucs/sys/limits.hpp"
#include "ucs/time/clock.hpp"
#include "uct/sm/sm_iface.hpp"

namespace tagwire::sm {

ucs_status_t HotRings::open(const SmForce& force) {
    poll_ = force.poll;
    crowding_ = Crowding(ucs::ticks_from_ns(Crowding::kCallNs));
    has_membarrier_ = force.wakeup != WakeupMode::kFence && ucs::register_global_barrier();
    if (force.wakeup == WakeupMode::kMembarrier && !has_membarrier_) {
        TW_LOG_ERROR(
            "TAGWIRE_SM_FORCE=wakeup:membarrier: membarrier(2) is not available; leave it out");
        return UCS_ERR_UNSUPPORTED;
    }
    ucs_status_t status = ucs::memfd_create_sealed("tagwire-bell", ucs::page_bytes(), &bell_fd_);
    if (status != UCS_OK)
        return status;
    if ((status = ucs::map_shared(bell_fd_.get(), ucs::page_bytes(), &bell_page_)) != UCS_OK)
        return status;
    bell_ = reinterpret_cast<Bell<>*>(bell_page_.base());
    bell_->magic = kBellMagic;
    return UCS_OK;
}

void HotRings::make_hot(Link& link) {
    if (link.rx_segment == nullptr)
        return;
    if (!link.is_hot || link.is_by_bell)
        link.rx.wake();
    link.is_by_bell = false;
    if (link.is_hot)
        return;
    link.is_hot = true;
    link.recent = 1;
    hot_.push_back(&link);
    tell_number();
}

/// The interface asks at each message.
void HotRings::tell_number() {
    iface_.set_several_hot(hot_.size() > 1);
}

void HotRings::make_cold(Link& link) {
    if (!link.is_hot)
        return;
    link.is_hot = false;
    hot_.erase(std::find(hot_.begin(), hot_.end(), &link));
    tell_number();
}

[[gnu::noinline]] void HotRings::answer_bell() {
    collect_bell(*bell_, [this](std::uint32_t bit) {
        const auto& links = iface_.connections.links();
        for (std::size_t i = bit; i < links.size(); i += kBellBits)
            if (links[i] != nullptr)
                invite(*links[i]);
    });
}

void HotRings::invite(Link& link) {
    if (!link.is_by_bell)
        return make_hot(link);
    if (link.is_hot || link.rx_segment == nullptr)
        return;
    link.is_hot = true;
    if (std::exchange(link.recent_round, round_) != round_)
        link.recent = 0;
    hot_.push_back(&link);
    tell_number();
}

// A message that comes behind the last look at an empty ring rings again.
void HotRings::let_guests_go() {
    const auto gone = std::remove_if(hot_.begin(), hot_.end(), [this](Link* link) {
        if (!link->is_by_bell)
            return false;
        if (link->recent >= many() || link->rx.peek().word != 0) {
            make_hot(*link);
            return false;
        }
        link->is_hot = false;
        return true;
    });
    hot_.resize(static_cast<std::size_t>(gone - hot_.begin()));
    tell_number();
}

// All peers write to the bell's page: a hostile one may clear what another has rung. It is rung
// again, so nothing else changes for a message that has come just now.
void HotRings::find_unrung(std::size_t most) {
    const auto& links = iface_.connections.links();
    for (std::size_t i = 0; i < std::min(most, links.size()); ++i) {
        next_unrung_ = next_unrung_ + 1 < links.size() ? next_unrung_ + 1 : 0;
        Link* const link = links[next_unrung_].get();
        if (link != nullptr && link->rx_segment != nullptr && !link->is_hot &&
            link->rx.peek().word != 0)
            set_bell(*bell_, link->index % kBellBits);
    }
}

[[gnu::noinline]] void HotRings::look(std::uint64_t calls) {
    find_unrung(1);
    const bool has_changed = poll_ == PollMode::kAuto && crowding_.look(ucs::ticks_now(), calls);
    ++looks_;
    if (has_changed || looks_ >= (is_crowded() ? kLooksPerCoolingCrowded : kLooksPerCooling))
        cool();
}

void HotRings::cool() {
    looks_ = 0;
    ++round_;
    const std::size_t kept_count = is_crowded() ? 0 : kKept;
    // A ring whose sender skips its fence while we cannot run the barrier for it is never left
    // alone.
    if (hot_.size() <= kept_count || sleeps_by_timer_)
        return;
    const std::size_t excess = hot_.size() - kept_count;
    const std::uint32_t active = is_crowded() ? kStream : 1;
    const auto kept = std::partition(hot_.begin(), hot_.end(), [active](Link* link) {
        return std::exchange(link->recent, 0) >= active;
    });
    const std::size_t idle = static_cast<std::size_t>(hot_.end() - kept);
    watch_by_bell(std::min(idle, excess));
}

/// Nobody polls the last `count` any more, unless a message has come.
void HotRings::watch_by_bell(std::size_t count) {
    if (count == 0)
        return;
    const std::span<Link*> sleepers = std::span<Link*>(hot_).last(count);
    for (Link* link : sleepers)
        link->rx.announce_sleep(kByBell);
    sleep_barrier();
    const auto asleep = std::remove_if(sleepers.begin(), sleepers.end(), [this](Link* link) {
        link->is_by_bell = link->rx.stays_asleep();
        if (!link->is_by_bell)
            return false;
        link->is_hot = false;
        iface_.count(SmCounter::kCooled);
        return true;
    });
    hot_.resize(hot_.size() - static_cast<std::size_t>(sleepers.end() - asleep));
    tell_number();
}

// Between the announcement of sleep and the look for what came meanwhile, for all rings at once.
void HotRings::sleep_barrier() const {
    if (has_membarrier_)
        ucs::global_barrier();
    ucs::full_barrier();
}

// The order is what makes it safe (ring.hpp, invariant 4): say that we sleep, barrier, look once
// more.
// Guests are none: they leave within the call of progress that invited them.
bool HotRings::try_sleep() {
    constexpr std::size_t kPerSleep = 64;
    find_unrung(kPerSleep);
    for (Link* link : hot_)
        link->rx.announce_sleep();
    bool ready = !arm_bell(*bell_, kArmedPacket);
    sleep_barrier();
    for (Link* link : hot_)
        ready |= link->rx.peek().word != 0;
    if (ready) {
        for (Link* link : hot_)
            link->rx.wake();
        disarm_bell(*bell_, kArmedPacket);
        return false;
    }
    for (Link* link : hot_)
        link->is_hot = false;
    hot_.clear();
    tell_number();
    return true;
}

void HotRings::expect_naps(bool are_expected) {
    if (std::exchange(naps_, are_expected) != are_expected)
        looks_ = kLooksPerCooling;
}

// A ring by bell pays for its order at each message, so a nap needs no barrier of other processors
// once all rings are.
std::atomic<std::uint32_t>* HotRings::try_nap() {
    if (sleeps_by_timer_)
        return nullptr;
    watch_by_bell(hot_.size());
    if (!hot_.empty())
        return nullptr;
    // SYNC sm_armed: relaxed; who has armed it is a thread that has had the caller's lock.
    const bool was_armed = (bell_->armed.load(std::memory_order_relaxed) & kArmedNap) != 0;
    if (arm_bell(*bell_, kArmedNap))
        return &bell_->armed;
    if (!was_armed)  // else another thread naps, and the sender that rang is to wake it
        end_nap();
    return nullptr;
}

void HotRings::end_nap() {
    disarm_bell(*bell_, kArmedNap);
}

// A thread that is about to sleep on the word finds it changed.
void HotRings::wake_nap() {
    // SYNC sm_armed: relaxed, as in disarm_bell(); what it is woken for is behind its own lock.
    if ((bell_->armed.load(std::memory_order_relaxed) & kArmedNap) != 0 &&
        (bell_->armed.fetch_and(~kArmedNap, std::memory_order_relaxed) & kArmedNap) != 0)
        ucs::wake_shared(bell_->armed);
}

}  // namespace tagwire::sm
