// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/hot_rings.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "ucs/log/log.hpp"
#include "ucs/sys/limits.hpp"
#include "ucs/time/clock.hpp"
#include "uct/sm/sm_iface.hpp"

namespace tagwire::sm {

ucs_status_t HotRings::open(WakeupMode wakeup, PollMode poll) {
    poll_ = poll;
    crowding_ = Crowding(ucs::ticks_from_ns(Crowding::kCallNs));
    has_membarrier_ = wakeup != WakeupMode::kFence && ucs::register_global_barrier();
    if (wakeup == WakeupMode::kMembarrier && !has_membarrier_) {
        TW_LOG_ERROR(
            "TAGWIRE_SM_WAKEUP=membarrier: membarrier(2) is not available; set auto or fence");
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
}

void HotRings::make_cold(Link& link) {
    if (!link.is_hot)
        return;
    link.is_hot = false;
    hot_.erase(std::find(hot_.begin(), hot_.end(), &link));
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
}

[[gnu::noinline]] void HotRings::look(std::uint64_t calls) {
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
    std::span<Link*> sleepers(hot_);
    sleepers = sleepers.last(std::min(idle, excess));
    if (sleepers.empty())
        return;
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
    for (Link* link : hot_)
        link->rx.announce_sleep();
    bool ready = !arm_bell(*bell_);
    sleep_barrier();
    for (Link* link : hot_)
        ready |= link->rx.peek().word != 0;
    if (ready) {
        for (Link* link : hot_)
            link->rx.wake();
        bell_->armed.store(0, std::memory_order_relaxed);
        return false;
    }
    for (Link* link : hot_)
        link->is_hot = false;
    hot_.clear();
    return true;
}

}  // namespace tagwire::sm
