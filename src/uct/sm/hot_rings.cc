// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/hot_rings.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "ucs/log/log.hpp"
#include "ucs/sys/limits.hpp"
#include "uct/sm/sm_iface.hpp"

namespace tagwire::sm {

ucs_status_t HotRings::open(WakeupMode wakeup) {
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
    if (link.is_hot || link.rx_segment == nullptr)
        return;
    link.rx.wake();
    link.is_hot = true;
    link.was_active = true;
    hot_.push_back(&link);
}

void HotRings::make_cold(Link& link) {
    if (!link.is_hot)
        return;
    link.is_hot = false;
    hot_.erase(std::find(hot_.begin(), hot_.end(), &link));
}

void HotRings::cool() {
    // A ring whose sender skips its fence while we cannot run the barrier for it is never left
    // alone.
    if (hot_.size() <= kKept || sleeps_by_timer_)
        return;
    const std::size_t excess = hot_.size() - kKept;
    const auto kept = std::partition(hot_.begin(), hot_.end(), [](Link* link) {
        return std::exchange(link->was_active, false);
    });
    const std::size_t idle = static_cast<std::size_t>(hot_.end() - kept);
    std::span<Link*> sleepers(hot_);
    sleepers = sleepers.last(std::min(idle, excess));
    if (sleepers.empty())
        return;
    for (Link* link : sleepers)
        link->rx.announce_sleep();
    sleep_barrier();
    const auto asleep = std::remove_if(sleepers.begin(), sleepers.end(), [this](Link* link) {
        if (!link->rx.stays_asleep())
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
